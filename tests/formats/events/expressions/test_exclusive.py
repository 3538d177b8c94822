"""Conditions that exclude each other: no record fulfils both."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.formats.events.expressions.conditions import (
    Between,
    Condition,
    Every,
    NumberIn,
    Present,
    Some,
    TextFits,
    TextIn,
    TruthIs,
)
from hushstream.formats.events.expressions.exclusive import exclusive, groups
from hushstream.formats.events.expressions.looked_up import PublicTable, row_fits

from ....judge import conditions as judge
from .test_conditions import condition, event, told


def below(n: Any, *, closed: bool = False) -> Between:
    return Between("n", None, Fraction(n), False, not closed)


def above(n: Any, *, closed: bool = False) -> Between:
    return Between("n", Fraction(n), None, not closed, False)


LOW = (("lower",),)
A, B = TextIn("kind", ("a",)), TextIn("kind", ("b", "c"))
OPEN, SHUT = TruthIs("open", True), TruthIs("open", False)
LIKE = TextFits("kind", (), "like", ("a%",))
ZONES = PublicTable({"1": "Queens", "2": "Queens", "3": "Bronx"})


def row(*texts: str, denied: bool = False) -> Condition:
    return row_fits("kind", ZONES, TextIn("", texts, denied))


NO_ROW = row_fits("kind", ZONES, Present("", False))
APART: list[tuple[Condition, Condition]] = [
    (A, B),
    (A, TextIn("kind", ("a", "b"), denied=True)),
    (OPEN, SHUT),
    (below(3), above(3, closed=True)),
    (below(3, closed=True), above(3)),
    (NumberIn("n", (Fraction(1),)), above(1)),
    (NumberIn("n", (Fraction(1),)), NumberIn("n", (Fraction(1), Fraction(2)), denied=True)),
    (Present("n", False), above(1)),
    (Present("n", False), Present("n")),
    (LIKE, TextFits("kind", (), "like", ("a%",), denied=True)),
    (LIKE, B),
    (TextFits("kind", LOW, "in", ("a",)), TextFits("kind", LOW, "in", ("b",))),
    (Every((A, OPEN)), Every((A, SHUT))),
    (Every((A, OPEN)), Some((SHUT, TextIn("kind", ("a",), denied=True)))),
    (TextIn("n", ("a",)), above(1)),
    (row("Queens"), row("Bronx")),
    (row("Queens"), row("Queens", denied=True)),
    (row("Queens"), NO_ROW),
    (row("Queens"), row_fits("kind", PublicTable({"3": "x"}), TextIn("", ("x",)))),
]
TOGETHER: list[tuple[Condition, Condition]] = [
    (A, A),
    (A, TextIn("page", ("b",))),
    (A, TextIn("kind", ("b",), denied=True)),
    (B, TextIn("kind", ("c", "d"))),
    (TextIn("kind", ("a",), denied=True), TextIn("kind", ("b",), denied=True)),
    (below(3, closed=True), above(3, closed=True)),
    (below(3, closed=True), Between("n", Fraction(3) + Fraction(1, 10**30))),
    (NumberIn("n", (Fraction(3) + Fraction(1, 10**30),)), below(3, closed=True)),
    (LIKE, TextIn("kind", ("b", "ab"))),
    (LIKE, TextFits("kind", (), "like", ("b%",), denied=True)),
    (TextFits("kind", LOW, "in", ("a",)), TextIn("kind", ("A",))),
    (Some((A, OPEN)), B),
    (Every((A, OPEN)), Some((SHUT, A))),
    (Present("n"), above(1)),
    (row("Queens"), row("Queens", "Bronx")),
    (row("Queens"), A),  # the field is text, whatever row it finds
    (row("Queens"), row_fits("page", ZONES, TextIn("", ("Bronx",)))),
    (row("Queens"), row_fits("kind", PublicTable({"1": "x"}), TextIn("", ("x",)))),
    (row("Queens"), row_fits("kind", PublicTable({"3": "x"}), Present("", False))),
    (NO_ROW, Present("kind", False)),
    (NO_ROW, row_fits("kind", PublicTable({"3": "x"}), Present("", False))),
]


@pytest.mark.parametrize("pair", APART, ids=repr)
def test_these_exclude_each_other(pair: tuple[Condition, Condition]) -> None:
    assert exclusive(*pair)
    assert exclusive(*pair[::-1])


@pytest.mark.parametrize("pair", TOGETHER, ids=repr)
def test_of_these_it_cannot_be_told(pair: tuple[Condition, Condition]) -> None:
    assert not exclusive(*pair)
    assert not exclusive(*pair[::-1])


def test_no_record_fulfils_two_conditions_that_are_said_to_exclude_each_other() -> None:
    random = Random(5)
    bodies = [json.loads(event(random)) for _ in range(400)]

    def asked(one: Condition) -> Any:
        return [_fulfils(body, told(one)) for body in bodies]

    said = 0
    for _ in range(1500):
        one, other = condition(random, 1), condition(random, 1)
        if exclusive(one, other):
            said += 1
            assert not np.logical_and(asked(one), asked(other)).any(), (one, other)
    assert said > 50


def _fulfils(body: Any, where: Any) -> bool:
    try:
        return judge.fulfils(body, where)
    except judge.Bad:
        return False


def test_groups_hold_what_excludes_all_others_of_the_group() -> None:
    assert groups([A, OPEN, B, SHUT, A]) == ((0, 2), (1, 3), (4,))
    assert groups([]) == ()
