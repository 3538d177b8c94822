"""Attributes as records state them, and keys that they complete."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.formats.events.attributes import MAX_ATTRIBUTES, AttributeDecoder, completed
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
    return found.units[0], found.rows[0], found.bad.get(0)


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
        (b"", "malformed"), (b"null", "wrong_type"), ({"id": "u", "plan": 1.5}, "wrong_type"),
        ({"id": "u" * 5000}, "huge_unit"), ({"id": "u", "plan": "a" * MAX_ATTRIBUTES}, "huge_key"),
        ({"id": "u", "home": "DE"}, "wrong_type"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read_states_nothing(value: Any, reason: str):
    unit, _, found = read(value)
    assert (unit, found) == (None, reason)


@given(st.lists(VALUES, max_size=3), st.lists(st.one_of(st.none(), VALUES), max_size=3), st.data())
def test_attributes_stand_at_their_places_whatever_else_is_in_a_key(
    others: list[Any], stated: list[Any], data: st.DataObject
):
    size = len(others) + len(stated)
    at = sorted(data.draw(st.permutations(range(size)))[: len(stated)])
    places = [(place, number, "none") for number, place in enumerate(at)]
    encoded = json.dumps(stated).encode()
    key = json.loads(completed(json.dumps(others).encode(), encoded, places))
    wanted = ["none" if one is None else one for one in stated]
    assert [key[place] for place in at] == wanted
    assert [one for place, one in enumerate(key) if place not in at] == others
    without = json.loads(completed(json.dumps(others).encode(), b"", places))
    assert [without[place] for place in at] == ["none"] * len(at)
