"""Docstrings say what a caller must know, and their first words say what they describe.

A docstring opens with an imperative or a noun. A public function of ``agents/`` that raises an
error of our own names it under ``Raises:``, and one that takes a time names its unit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from hushstream import errors

from .tree import sources

OPENERS = {
    "After", "Another", "At", "Before", "By", "For", "From", "How", "If", "In", "It", "Nobody",
    "Nothing", "Of", "On", "Somebody", "That", "There", "Those", "To", "Up", "What", "When",
    "Where", "Which", "Who", "Whoever", "Why",
}  # fmt: skip
TIMES = {"at", "beat_seconds", "made", "moment", "not_before", "now", "patience", "until"}
UNITS = re.compile(r"\b(micro|milli)?seconds\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = tuple[str, ast.Module | ast.ClassDef | Function, str]  # where, what, enclosing docstring


def _documented(where: str, node: ast.Module | ast.ClassDef, around: str = "") -> Iterator[Found]:
    yield where, node, around
    text = around + (ast.get_docstring(node) or "" if isinstance(node, ast.ClassDef) else "")
    for part in node.body:
        if isinstance(part, ast.ClassDef):
            yield from _documented(f"{where}:{part.name}", part, text)
        elif isinstance(part, Function):
            yield f"{where}:{part.name}", part, text


@cache
def every() -> list[Found]:
    """Everything that may have a docstring; one process reads it, when a test first asks."""
    return [one for path, text in sources().items() for one in _documented(path, ast.parse(text))]


@cache
def ours() -> set[str]:
    """Every error of our own: those of the tree, and those that packages add."""
    known = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.HushError)
    }
    for _ in range(3):
        known |= {
            node.name
            for _, node, _ in every()
            if isinstance(node, ast.ClassDef) and known & {ast.unparse(b) for b in node.bases}
        }
    return known


def _raised(function: Function) -> set[str]:
    """Errors of our own that a function raises itself."""
    raised = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc]
    names = {ast.unparse(e.func if isinstance(e, ast.Call) else e) for e in raised}
    return names & ours()


def _is_command(function: Function) -> bool:
    """Whether a docstring is a command's help text, which people read in a terminal."""
    return any(".command(" in ast.unparse(one) for one in function.decorator_list)


def faults(where: str, node: ast.AST, around: str = "") -> list[str]:
    """The faults of a docstring."""
    if not isinstance(node, ast.Module | ast.ClassDef | Function):
        return []
    text = ast.get_docstring(node) or ""
    found = []
    if text and (first := re.findall(r"\w+", text)[0]) in OPENERS:
        found.append(f"{where} opens with {first!r}: begin with an imperative or a noun")
    if not isinstance(node, Function) or not where.startswith("agents/") or ":_" in where:
        return found
    if _is_command(node):
        return found
    if not text:
        found.append(f"{where} has no docstring")
    section = text.partition("Raises:")[2]
    found += [f"{where} does not name {e} under Raises" for e in _raised(node) if e not in section]
    arguments = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
    if (times := sorted(arguments & TIMES)) and not UNITS.search(around + text):
        found.append(f"{where} does not name the unit of {', '.join(times)}")
    return found


def test_docstrings_say_what_a_caller_must_know() -> None:
    assert [fault for one in every() for fault in faults(*one)] == []


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ('def f():\n    """What it is."""', "opens with 'What'"),
        ("def f():\n    pass", "has no docstring"),
        ('def f():\n    """Do."""\n    raise RewoundError("x")', "does not name RewoundError"),
        ('def f():\n    """Do.\n\n    Raises:\n        EngineError: x.\n    """\n'
         '    raise LedgerError("x")', "does not name LedgerError"),
        ('def f(now: int):\n    """Do it."""', "does not name the unit of now"),
    ],
)  # fmt: skip
def test_the_rule_finds_what_is_missing(written: str, fault: str) -> None:
    (function,) = ast.parse(written).body
    (found,) = faults("agents/package/module.py:f", function)
    assert fault in found


def test_the_rule_lets_pass_what_is_well_described() -> None:
    text = "Wait.\n\n    Args:\n        now: seconds.\n\n    Raises:\n        EngineError: x.\n    "
    (function,) = ast.parse(f'def f(now: int):\n    """{text}"""\n    raise EngineError("x")').body
    assert faults("agents/package/module.py:f", function) == []
    (help_text,) = ast.parse(
        '@a.command()\ndef f():\n    """Do."""\n    raise EngineError("x")'
    ).body
    assert faults("agents/package/module.py:f", help_text) == []
