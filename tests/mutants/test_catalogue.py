"""Every mutant still fits the product, and names tests that exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest

import pytest

from ..tree import ROOT
from .catalogue import BROKER, Mutant, load, nodes, sample, source

MUTANTS = load()


@cache
def _tests(path: str) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def _shapes(path: str, text: str) -> Iterator[str]:
    """What the compiler makes of a text, by statement: docstrings and comments do not count.

    Nothing here parses another language than Python: its whole text counts, and a mutant that does
    not compile there fails the build of its test, which is no proof. Look at it when you write it.
    """
    if not path.endswith(".py"):
        yield text
        return
    for statement in ast.parse(text).body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(None)
        yield ast.dump(statement)


@cache
def _plain(path: str) -> list[str]:
    """The same of a file as it is."""
    return list(_shapes(path, (ROOT / path).read_text("utf-8")))


def test_there_are_as_many_as_were_asked_for_under_names_of_their_own() -> None:
    assert len(MUTANTS) >= 80
    assert [name for name, n in Counter(m.name for m in MUTANTS).items() if n > 1] == []
    changes = Counter((m.file, m.applied(source(m))) for m in MUTANTS)
    assert max(changes.values()) == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_applies_once_parses_and_changes_the_program(mutant: Mutant) -> None:
    after = _shapes(mutant.file, mutant.applied(source(mutant)))
    assert any(one != other for one, other in zip_longest(after, _plain(mutant.file)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_says_what_it_breaks_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9-]+", mutant.name)
    assert mutant.why.endswith(".")
    assert mutant.tests
    for node in mutant.tests:
        path, _, name = node.partition("::")
        assert name.partition("[")[0] in _tests(path) | {""}, node


def test_what_has_moved_is_noticed() -> None:
    moved = MUTANTS[0]._replace(old="no such text")
    with pytest.raises(ValueError, match="0 times"):
        moved.applied(source(moved))


def test_samples_rotate_and_can_be_repeated() -> None:
    first = sample(MUTANTS, "2030-01-01", 12)
    assert sample(MUTANTS, "2030-01-01", 12) == first
    seen = {m.name for day in range(600) for m in sample(MUTANTS, str(day), 12)}
    assert seen == {m.name for m in MUTANTS if m.group not in BROKER}
    assert len(nodes(first)) <= sum(len(m.tests) for m in first)
