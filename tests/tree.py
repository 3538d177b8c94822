"""The product's modules and their imports, for the tests of its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "agents",
    "cli",
    "client",
    "deploy",
    "formats",
    "mechanisms",
    "offline",
    "planning",
    "reading",
    "topics",
)
Name = tuple[str, ...]


def paths() -> list[Path]:
    """Every source file of the product."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted([*ROOT.glob("*.py"), *files])


def name_of(path: Path) -> str:
    """The import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("hushstream", *(part for part in parts if part != "__init__")))


def modules() -> list[str]:
    """Every importable module of the product, without ``__main__``, which would run a command."""
    return [name_of(path) for path in paths() if path.stem != "__main__"]


def sources() -> dict[str, str]:
    """The text of every source file, by its path in the repository."""
    return dict(_read())


@cache
def _read() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths()}


@cache
def imported(path: str, text: str) -> tuple[Name, ...]:
    """Absolute names of everything that a file imports; relative ones start with ``hushstream``.

    An import from a module gives two names, the module's and the object's, which may be a module as
    well. Imports for the type checker alone count: a reader follows them too.
    """
    return tuple(_imported(path, text))


def _imported(path: str, text: str) -> Iterator[Name]:
    here = ("hushstream", *Path(path).parent.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            yield module
            yield from ((*module, alias.name) for alias in node.names)


def file_edges(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each file, the product's files that it imports from."""
    return {path: _targets(path, text, files) for path, text in files.items()}


def _targets(path: str, text: str, files: Mapping[str, str]) -> set[str]:
    found = set()
    names = [name[1:] for name in imported(path, text) if name[0] == "hushstream"]
    for name in names:
        if target := _file(name, files):
            found.add(target)
    # `from .a import b` names the package `a` too, which counts only if something else is taken.
    packages = {_file(name[:-1], files) for name in names if _file(name, files)}
    taken = {_file(name[:-1], files) for name in names if not _file(name, files)}
    inits = {target for target in packages - taken if target and target.endswith("__init__.py")}
    return found - inits - {path}


def _file(name: Sequence[str], files: Mapping[str, str]) -> str | None:
    place = "/".join(name)
    candidates = (f"{place}.py", f"{place}/__init__.py" if place else "__init__.py")
    return next((candidate for candidate in candidates if candidate in files), None)
