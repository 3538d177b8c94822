"""Tests mirror modules, or name further modules in lines ``Covers: path, path``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .tree import ROOT, sources

TESTS = {p.relative_to(ROOT).as_posix(): p for p in sorted((ROOT / "tests").rglob("test_*.py"))}
LINE = re.compile(r"^\s*Covers: (.+)$", re.MULTILINE)


def _namesake(path: str) -> str:
    """The path of a module's test."""
    place = PurePosixPath("tests", path)
    return str(place.with_name(f"test_{place.name.removeprefix('_')}"))


def _covers(text: str) -> list[str]:
    """The modules that the docstring of a test module says it covers."""
    if "Covers:" not in text:
        return []
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return [name for line in LINE.findall(docstring) for name in line.split(", ")]


def _covered() -> Iterator[tuple[str, str]]:
    for test, path in TESTS.items():
        yield from ((test, name) for name in _covers(path.read_text("utf-8")))


def _has_code(text: str) -> bool:
    """Whether a module does more than name what others define."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) for node in ast.walk(ast.parse(text)))


def _untested(files: dict[str, str], covered: set[str]) -> list[str]:
    return [
        path
        for path, text in files.items()
        if not (Path(path).name == "__init__.py" and not _has_code(text))
        and path not in covered
        and _namesake(path) not in TESTS
    ]


def test_every_module_has_its_test() -> None:
    assert _untested(sources(), {name for _, name in _covered()}) == []


def test_covered_modules_exist() -> None:
    wrong = [(test, name) for test, name in _covered() if name not in sources()]
    assert wrong == []


def test_a_module_without_a_test_would_be_seen() -> None:
    files = {"topics/new.py": "", "topics/__init__.py": '"""Nothing."""', "topics/names.py": ""}
    assert _untested(files, set()) == ["topics/new.py"]
    assert _untested(files, {"topics/new.py"}) == []
    assert _covers('"""Two.\n\nCovers: a.py, b.py\nCovers: c/d.py\n"""') == [
        "a.py",
        "b.py",
        "c/d.py",
    ]
