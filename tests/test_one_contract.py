"""Only `mechanisms` knows mechanisms by name, or what kind of keys one has.

The contract and the entries answer the questions of the rest of the product; an installed mechanism
is in no table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from hushstream.mechanisms.catalogue import BUILT_IN

from .tree import file_edges, sources

KINDS = {entry.name for entry in BUILT_IN}
TABLES = {"key_form", "key_fields", "FORECASTERS", "FORMS", "SIBLINGS"}
FILES = {path: text for path, text in sources().items() if not path.startswith("mechanisms/")}


def _docstrings(tree: ast.Module) -> set[int]:
    """Ids of the constants that are docstrings."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def named(text: str) -> Iterator[str]:
    """Kinds of mechanisms and tables by kind that a module's code names."""
    if not any(word in text for word in KINDS | TABLES):  # to parse the whole tree takes seconds
        return
    tree = ast.parse(text)
    prose = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in KINDS and id(node) not in prose:
            yield str(node.value)
        word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
        if word in TABLES:
            yield str(word)


def test_no_module_outside_the_families_names_a_kind() -> None:
    assert {path: found for path, text in FILES.items() if (found := list(named(text)))} == {}


def test_only_the_simulation_of_devices_imports_from_a_family() -> None:
    homes = tuple(f"mechanisms/{kind}/" for kind in KINDS)
    found = {
        path
        for path, targets in file_edges(sources()).items()
        if not path.startswith("mechanisms/") and any(t.startswith(homes) for t in targets)
    }
    assert found == {"offline/devices.py"}  # it is the other side of a survey


@pytest.mark.parametrize(
    "text",
    [
        'if p.kind == "privhp":\n    pass\n',
        'FORMS = {"pak": "slots"}\n',
        'def f(m):\n    return m.key_form == "code"\n',
        "from mechanisms import catalogue\nregistry.FORECASTERS\n",
    ],
)
def test_a_name_or_a_table_would_be_seen(text: str) -> None:
    assert list(named(text))


def test_prose_may_name_them() -> None:
    assert list(named('"""histogram"""\n\n\ndef f():\n    """pak"""\n')) == []
