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
    """Names of the test functions in a file."""
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", _text(path), re.MULTILINE))


Shape = tuple[int, str]  # last line of a statement, and its compiled form


def _shapes(path: str, text: str, line: int = 0) -> Iterator[Shape]:
    """The compiled form of each statement that ends at a line or later.

    Docstrings and comments do not count. For languages other than Python, the whole text counts: a
    mutant that does not compile there only fails the build, which proves nothing, so check it when
    you write it.
    """
    if not path.endswith(".py"):
        yield line, text
        return
    for statement in ast.parse(text).body:
        if (end := statement.end_lineno or 0) < line:
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(None)
        yield end, ast.dump(statement)


@cache
def _plain(path: str) -> list[Shape]:
    """The compiled forms of an unchanged file."""
    return list(_shapes(path, _text(path)))


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def _changes(mutant: Mutant) -> bool:
    """Whether the compiler sees a difference; before the mistake's first line there is none."""
    text = _text(mutant.file)
    line = text[: text.find(mutant.old)].count("\n") + 1
    after = (shape for _, shape in _shapes(mutant.file, mutant.applied(text), line))
    before = (shape for end, shape in _plain(mutant.file) if end >= line or end == 0)
    return any(one != other for one, other in zip_longest(after, before))


def test_there_are_as_many_as_were_asked_for_under_names_of_their_own() -> None:
    assert len(MUTANTS) >= 80
    assert [name for name, n in Counter(m.name for m in MUTANTS).items() if n > 1] == []
    changes = Counter((m.file, m.applied(_text(m.file))) for m in MUTANTS)
    assert max(changes.values()) == 1


@pytest.mark.parametrize("group", sorted({m.group for m in MUTANTS}))
def test_mutants_apply_once_parse_and_change_the_program(group: str) -> None:
    assert [m.name for m in MUTANTS if m.group == group and not _changes(m)] == []


@pytest.mark.parametrize("mutant", [MUTANTS[0], MUTANTS[-1]], ids=lambda m: m.name)
def test_a_mutant_that_changes_nothing_is_noticed(mutant: Mutant) -> None:
    assert _changes(mutant)
    assert not _changes(mutant._replace(new=mutant.old))
    assert not _changes(mutant._replace(new=f"{mutant.old} "))


@pytest.mark.parametrize("group", sorted({m.group for m in MUTANTS}))
def test_mutants_say_what_they_break_and_name_tests_that_exist(group: str) -> None:
    for mutant in (m for m in MUTANTS if m.group == group):
        assert re.fullmatch(r"[a-zA-Z0-9-]+", mutant.name), mutant.name
        assert mutant.why.endswith("."), mutant.name
        assert mutant.tests, mutant.name
        for node in mutant.tests:
            path, _, name = node.partition("::")
            assert name.partition("[")[0] in _tests(path) | {""}, (mutant.name, node)


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
