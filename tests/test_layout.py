"""The shape of the code: allowed imports, and one source of noise."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from .tree import PACKAGES, ROOT, file_edges, imported, sources

# Packages from top to bottom: each imports only from those in lines below its own. Those in one
# line do not import each other. A place is a folder or a file; the longest path decides.
ORDER: tuple[tuple[str, ...], ...] = (
    ("__main__.py", "__init__.py"),
    ("cli",),
    ("cli/demo", "planning", "reading/live"),
    ("offline", "reading"),
    ("agents/worker",),
    ("agents/stages/topology.py",),
    ("agents/stages/ingest",),
    ("agents/stages/bound", "agents/stages/aggregate", "agents/stages/view"),
    ("agents/stages",),
    ("agents/clock", "agents/registry"),
    ("agents/kafka",),
    ("agents/deployment", "agents/snapshots", "agents/state"),
    ("agents/deployment/compiling", "agents/state/units"),
    ("agents/deployment/cluster", "agents/deployment/published", "agents/state/rows"),
    ("agents/deployment/model.py", "agents/state/rocks_errors.py", "agents/state/store.py"),
    ("agents/deployment/sharing.py", "agents/deployment/spread.py", "agents/state/layout.py"),
    ("agents", "deploy"),
    ("topics/config", "topics/assembly.py"),
    ("topics/config/checks",),
    ("topics/config/access", "topics/config/inputs"),
    ("topics/config/model.py",),
    ("topics/config/pipelines",),
    ("topics/config/aggregates",),
    ("topics/config/expressions",),
    ("topics/config/toml",),
    ("topics/sql", "topics/frames.py", "topics/releases.py"),
    ("topics/sql/outer",),
    ("topics/sql/aggregates",),
    ("topics/sql/expressions",),
    ("topics/sql/windows",),
    ("topics/sql/parsing",),
    ("topics/sql/columns.py",),
    ("topics/sql/refusal.py",),
    ("topics",),
    ("formats/events/attributes.py", "formats/events/decode.py"),
    ("formats/entries.py",),
    ("formats/events",),
    ("formats/schemas", "formats/values"),
    ("formats",),
    ("mechanisms/catalogue.py",),
    ("mechanisms/quantile",),  # of the histogram: bounds, selection, spending
    (
        "mechanisms/activity",
        "mechanisms/histogram",
        "mechanisms/pak",
        "mechanisms/phdstream",
        "mechanisms/privhp",
        "mechanisms/topl",
        "mechanisms/tops",
    ),
    ("mechanisms/slots",),
    ("mechanisms/spatial",),
    ("mechanisms/parts",),
    ("mechanisms/parts/bounds", "mechanisms/parts/thresholds", "mechanisms/parts/trees"),
    ("mechanisms/factorization",),
    ("mechanisms/accounting",),
    ("mechanisms/noise",),
    ("mechanisms",),
    ("mechanisms/keys.py", "mechanisms/validate.py"),
    ("client", "errors.py", "compiled.py"),
)
LEVEL = {place: level for level, places in enumerate(ORDER) for place in places}

PURE = {"numpy", "scipy", *sys.stdlib_module_names}
RANDOM = {("random",), ("numpy", "random")}

LOCKS = ("requirements.lock", "requirements-demo.lock", "requirements-dev.lock")
HOMONYMS: frozenset[str] = frozenset()  # classes of one name that are left: this list only shrinks

FILES = sources()


def _place(path: str) -> str:
    """The longest place in `ORDER` that contains a file."""
    places = [path, *map(str, PurePosixPath(path).parents)]
    return next(place for place in places if place in LEVEL)


def _upward(files: Mapping[str, str]) -> list[str]:
    """Imports that do not point downward."""
    return sorted(
        f"{path} -> {target}"
        for path, targets in file_edges(files).items()
        for target in targets
        if _place(path) != _place(target) and LEVEL[_place(target)] <= LEVEL[_place(path)]
    )


def _circle(files: Mapping[str, str]) -> list[str]:
    """One circle of imports; empty if there is none."""
    try:
        TopologicalSorter(file_edges(files)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_between_packages_point_downward() -> None:
    assert _upward(FILES) == []


def test_files_import_each_other_in_no_circle() -> None:
    assert _circle(FILES) == []


def test_every_place_of_the_order_exists() -> None:
    assert [place for place in LEVEL if not (ROOT / place).exists()] == []


def test_an_upward_import_and_a_circle_would_be_seen() -> None:
    files = {
        "mechanisms/noise/__init__.py": "from .keyed import KeyedNoise",
        "mechanisms/noise/keyed.py": "from ..parts import sketch\n",
        "mechanisms/parts/__init__.py": "",
        "mechanisms/parts/sketch.py": "from ..noise import KeyedNoise",
        "topics/records.py": "def late():\n    from ..agents.worker.shards.shard import Shard",
        "agents/worker/shards/shard.py": "",
    }
    assert _upward(files) == [
        "mechanisms/noise/keyed.py -> mechanisms/parts/sketch.py",
        "topics/records.py -> agents/worker/shards/shard.py",
    ]
    assert set(_circle(files)) == {list(files)[i] for i in (0, 1, 3)}


def test_families_of_mechanisms_do_not_know_each_other() -> None:
    files = {
        "mechanisms/pak/mechanism.py": "from ..tops import blocks",
        "mechanisms/tops/blocks.py": "",
    }
    assert _upward(files) == ["mechanisms/pak/mechanism.py -> mechanisms/tops/blocks.py"]


# Only a file with such a line can have one; to parse the whole tree takes seconds.
NAMED = re.compile(r"\b(?:import|from)\b.*\bhushstream\b")
CLASS = re.compile(r"\bclass\s+(\w+)")


def test_imports_within_the_product_are_relative() -> None:
    wrong = []
    for path, text in FILES.items():
        if not NAMED.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            absolute = (isinstance(node, ast.ImportFrom) and not node.level and node.module) or ""
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [absolute]
            wrong += [path for name in names if name.split(".")[0] == "hushstream"]
    assert wrong == []


def _homonyms(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names with several definitions, and where these are."""
    places = defaultdict(list)
    seen = Counter(name for text in files.values() for name in CLASS.findall(text))
    for path, text in files.items():
        if all(seen[name] == 1 for name in CLASS.findall(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_class_name_means_one_thing() -> None:
    assert {name: at for name, at in _homonyms(FILES).items() if name not in HOMONYMS} == {}


def test_a_class_name_that_means_two_things_would_be_seen() -> None:
    files = {"topics/a.py": "class Tree: ...", "agents/b.py": "class Tree: ...\nclass Leaf: ..."}
    assert _homonyms(files) == {"Tree": ["topics/a.py", "agents/b.py"]}


def test_mechanisms_are_pure() -> None:
    wrong = {}
    for path, text in FILES.items():
        if path.startswith("mechanisms/"):
            allowed = PURE | ({"cryptography"} if path.startswith("mechanisms/noise/") else set())
            tops = {name[0] for name in imported(path, text)} - {"hushstream"}
            if tops - allowed:
                wrong[path] = sorted(tops - allowed)
    assert wrong == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_no_second_source_of_randomness(package: str) -> None:
    wrong = [
        path
        for path, text in FILES.items()
        if path.startswith(f"{package}/")
        and (RANDOM & set(imported(path, text)) or "np.random" in text or "numpy.random" in text)
    ]
    assert wrong == []


def test_a_second_source_of_randomness_would_be_seen() -> None:
    for text in ("import numpy.random", "from numpy import random", "import random"):
        assert RANDOM & set(imported("topics/bad.py", text))


def test_locks_hold_hashes_and_no_address() -> None:
    for name in (*LOCKS, "requirements-uv.lock"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        entries = [line for line in lines if not line.startswith((" ", "#"))]
        assert len(entries) > 40 or "uv" in name
        assert all(" \\" in line and "==" in line for line in entries)
        assert not [line for line in lines if "://" in line or line.startswith("-")]


def test_locks_agree_and_differ_by_what_they_are_for() -> None:
    def versions(name: str) -> set[str]:
        lines = (ROOT / name).read_text("utf-8").splitlines()
        return {line.split(" ;")[0].rstrip(" \\") for line in lines if line[:1].isalpha()}

    production, demo, everything = map(versions, LOCKS)
    assert production < everything and demo < everything
    assert production < demo
