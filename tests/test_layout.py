"""The shape of the code: who may import whom, and that noise has one source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agents", "deploy", "mechanisms", "topics")

# What a package may import of the others.
ALLOWED = {
    "mechanisms": set[str](),
    "topics": {"mechanisms"},
    "deploy": {"mechanisms"},
    "agents": {"deploy", "mechanisms", "topics"},
}
PURE = {"numpy", "scipy", *sys.stdlib_module_names}
RANDOM = {"random", "numpy.random"}


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _imports(path: Path) -> Iterator[str]:
    """Every imported module, absolute: relative ones are resolved within the product."""
    here = ["hushstream", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _packages_of(path: Path) -> set[str]:
    names = (name.split(".") for name in _imports(path))
    return {name[1] for name in names if name[0] == "hushstream" and len(name) > 1}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_in_one_direction(package: str) -> None:
    assert _modules(package)
    wrong = {
        str(path.relative_to(ROOT)): sorted(others)
        for path in _modules(package)
        if (others := (_packages_of(path) & set(PACKAGES)) - ALLOWED[package] - {package})
    }
    assert wrong == {}


def test_mechanisms_are_pure() -> None:
    wrong = {}
    for path in _modules("mechanisms"):
        allowed = PURE | ({"cryptography"} if path.parent.name == "noise" else set())
        tops = {name.split(".")[0] for name in _imports(path)} - {"hushstream"}
        if tops - allowed:
            wrong[path.name] = sorted(tops - allowed)
    assert wrong == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_no_second_source_of_randomness(package: str) -> None:
    wrong = {}
    for path in _modules(package):
        text = path.read_text("utf-8")
        if RANDOM & set(_imports(path)) or "np.random" in text or "numpy.random" in text:
            wrong[str(path.relative_to(ROOT))] = "use keyed noise"
    assert wrong == {}


def test_a_forbidden_import_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "topics" / "bad.py"
    path.parent.mkdir()
    path.write_text("from ..agents import shard\nimport numpy.random\nfrom numpy import random\n")
    assert _packages_of(path) == {"agents"}
    assert "numpy.random" in set(_imports(path))


def test_locks_hold_hashes_and_no_address() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        entries = [line for line in lines if not line.startswith((" ", "#"))]
        assert len(entries) > 40
        assert all(" \\" in line and "==" in line for line in entries)
        assert not [line for line in lines if "://" in line or line.startswith("-")]


def test_the_run_time_lock_is_part_of_the_development_lock() -> None:
    def versions(name: str) -> set[str]:
        lines = (ROOT / name).read_text("utf-8").splitlines()
        return {line.split(" ;")[0].rstrip(" \\") for line in lines if line[:1].isalpha()}

    assert versions("requirements.lock") <= versions("requirements-dev.lock")
