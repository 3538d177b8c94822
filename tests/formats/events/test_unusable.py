"""Reasons, fields and types of records that cannot be used are named, and values never are."""

from __future__ import annotations

from collections import Counter

import pytest
from hushstream.formats.events.reasons import Reason
from hushstream.formats.events.unusable import Unusable, in_words, type_words, unusable

KINDS = {"fare": {"number"}, "user.id": {"str", "int"}, "paid": {"bool"}}


def test_a_wrong_type_names_field_and_both_types() -> None:
    rows = [{"fare": "secret"}, {"user": {"id": 1.5}}, {"user": "secret"}, {"paid": [7]}, {}]
    bad = {
        0: Reason.at("wrong_type", "fare"),
        1: Reason.at("wrong_type", "user.id"),
        2: Reason.at("wrong_type", "user"),
        3: Reason.at("wrong_type", "paid"),
        4: Reason.at("missing_time", "t"),
    }
    text = in_words(unusable(bad, rows, KINDS), 9)
    assert text.split(", ") == [
        "1 wrong type (field fare holds text and must hold a number)",
        "1 wrong type (field user.id holds a number with a fraction and must hold text or a whole "
        "number)",
        "1 wrong type (field user holds text and must hold an object)",
        "1 wrong type (field paid holds a list and must hold true or false)",
        "1 missing time (field t)",
    ]
    assert "secret" not in text and "7" not in text


def test_alike_records_count_together_and_the_most_frequent_come_first() -> None:
    bad = dict.fromkeys(range(1_200), Reason.at("wrong_type", "fare")) | {1_200: "malformed"}
    rows = [{"fare": f"{i} dollars"} for i in range(1_200)] + [{}]
    found = unusable(bad, rows, KINDS)
    assert found == Counter({
        Unusable("wrong_type", "fare", "a number", "text"): 1_200, Unusable("malformed"): 1,
    })  # fmt: skip
    assert in_words(found, 1).startswith("1,200 wrong type (field fare holds text")
    assert in_words(found).endswith(", 1 malformed")


def test_a_field_that_is_not_known_is_not_named() -> None:
    found = unusable({0: Reason.at("wrong_type", "")}, [{"secret": 1}], KINDS)
    assert in_words(found) == "1 wrong type"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"), (True, "true or false"), (3, "a whole number"),
        (1 << 63, "a whole number beyond 64 bits"), (0.5, "a number with a fraction"),
        ({}, "an object"), ([], "a list"), ("a", "text"), (b"a", "text"),
    ],
)  # fmt: skip
def test_types_have_words(value: object, words: str) -> None:
    assert type_words(value) == words
