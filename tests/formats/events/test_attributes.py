"""Attributes as records state them, and keys that they complete."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hushstream.formats.events.attributes import (
    MAX_ATTRIBUTE,
    AttributeDecoder,
    completed,
    values_of,
)
from hushstream.formats.events.expressions.conditions import Between, Present, Some, TextIn
from hushstream.formats.events.expressions.derived import Attribute, AttributeCases
from hushstream.formats.events.fields import InputFields
from hushstream.formats.events.raw import RawRecord
from hypothesis import given
from hypothesis import strategies as st

FIELDS = InputFields(None, "record", "UTC", ("id",))
DECODER = AttributeDecoder(FIELDS, ["home.country", "plan"])
VALUES = st.one_of(st.text(min_size=1), st.integers(-(2**53), 2**53), st.booleans())


def read(value: Any, key: bytes | None = None) -> tuple[Any, bytes, str | None]:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    found = DECODER.decode([RawRecord(0, 0, key, data)])
    assert (0 in found.bad) == (found.units[0] is None)
    return found.units[0], found.rows[0], (found.bad | found.faults).get(0)


def test_the_newest_record_states_all_attributes_and_null_is_a_value():
    stated = {"id": "u1", "home": {"country": "DE"}, "plan": 7, "more": [1]}
    assert read(stated) == ("u1", b'["DE",7]', None)
    assert read({"id": 5, "plan": True}) == (5, b"[null,true]", None)
    assert read({"id": "u1", "home": None, "plan": ""}) == ("u1", b"[null,null]", None)


def test_a_record_without_a_value_takes_back_what_its_key_names():
    assert read(None, b"u1") == ("u1", b"", None)
    assert read(None)[2] == "missing_unit"
    assert read(None, b"\xff")[2] == "missing_unit"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"plan": "a"}, "missing_unit"), ({"id": True}, "wrong_type"), (b"{", "malformed"),
        (b"", "malformed"), (b"null", "wrong_type"), ({"id": "u" * 5000}, "huge_unit"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read_states_nothing(value: Any, reason: str):
    unit, _, found = read(value)
    assert (unit, found) == (None, reason)


@pytest.mark.parametrize(
    ("plan", "row", "reason"),
    [
        (1.5, b'["DE",1.5]', "wrong_type"), ([1], b'["DE",null]', "wrong_type"),
        ("a" * (MAX_ATTRIBUTE + 1), b'["DE",null]', "huge_key"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_of_one_attribute_leaves_the_others(plan: Any, row: bytes, reason: str):
    stated = {"id": "u", "home": {"country": "DE"}, "plan": plan}
    assert read(stated) == ("u", row, reason)
    alone = AttributeDecoder(FIELDS, ["home.country"])
    found = alone.decode([RawRecord(0, 0, None, json.dumps(stated).encode())])
    assert found.rows == [b'["DE"]'] and not found.bad and not found.faults
    assert read({"id": "u", "home": "DE", "plan": "x"}) == ("u", b'[null,"x"]', "wrong_type")


def test_an_attribute_that_conditions_alone_look_at_may_be_any_number():
    decoder = AttributeDecoder(FIELDS, ["plan", "score"], {"score"})
    value = json.dumps({"id": "u", "plan": 2, "score": 1.5}).encode()
    found = decoder.decode([RawRecord(0, 0, None, value)])
    assert (found.rows, found.bad, found.faults) == ([b"[2,1.5]"], {}, {})


def test_cases_look_at_the_attributes_of_each_unit():
    cases = AttributeCases(
        (
            TextIn("land", ("DE",)),
            Some((Between("score", low=Fraction(1, 2)), Present("b", False))),
        ),
        ('"home"', "7", "false"),
    )
    stated = [b'["DE",1,0.5]', b'["FR",1,0.5]', b'["FR",1,0.25]', b'[7,null,"x"]', b"", b"[1,1,1]"]
    columns = [cases, Attribute("land", "?")]
    found = values_of(stated, ["land", "b", "score"], columns)
    assert [kind for kind, _ in found] == ["home", 7, False, 7, 7, 7]
    assert [land for _, land in found] == ["DE", "FR", "FR", 7, "?", 1]
    assert values_of([b"[1.5]"], ["land"], columns[1:]) == [("?",)]


@given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3), st.data())
def test_columns_stand_at_their_places_whatever_else_is_in_a_key(
    others: list[Any], values: list[Any], data: st.DataObject
):
    size = len(others) + len(values)
    at = sorted(data.draw(st.permutations(range(size)))[: len(values)])
    key = json.loads(completed(json.dumps(others).encode(), values, at))
    assert [key[place] for place in at] == values
    assert [one for place, one in enumerate(key) if place not in at] == others
