"""Reference data in a topic: each key's newest record is a row, and errors name their record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.errors import ConfigError
from hushstream.formats.events.expressions.looked_up import Origin, PublicTable
from hushstream.topics.config.inputs.reference import ReferenceRecord, table_of

ORIGIN = Origin("products", "id", "about.category")


def stated(*bodies: Any, partition: int = 0) -> list[ReferenceRecord]:
    """Records of (key, body) pairs; a body is an object, raw bytes, or None."""
    return [
        ReferenceRecord(
            partition, n, str(key).encode(),
            one if one is None or isinstance(one, bytes) else json.dumps(one).encode(),
        )
        for n, (key, one) in enumerate(bodies)
    ]  # fmt: skip


def row(key: Any, category: Any) -> dict[str, Any]:
    return {"id": key, "about": {"category": category, "other": [1]}, "more": {}}


def test_the_newest_of_each_key_is_a_row_unless_it_was_deleted():
    log = stated(
        (1, row(1, "old")), (2, row("2", "b")), (3, row(3, "c")), (1, row(1, "a")), (3, None)
    )
    found = table_of(log, ORIGIN)
    assert found == PublicTable({"1": "a", "2": "b"})
    assert found.origin == ORIGIN and not found.unread


def test_an_older_record_that_is_wrong_does_not_matter_any_more():
    log = stated((1, b"{"), (2, [1]), (1, row(1, "a")), (2, row(2, "b")))
    assert table_of(log, ORIGIN).rows == {"1": "a", "2": "b"}


def test_values_keep_their_types_and_numbers_with_decimals_are_texts_as_written():
    log = [
        ReferenceRecord(0, n, b"%d" % n, b'{"id": %d, "about": {"category": %s}}' % (n, value))
        for n, value in enumerate([b"0.50", b"7", b"true", b'"x"', b"1E3", b"null", b'""', b"NaN"])
    ]
    rows = table_of(log, ORIGIN).rows
    assert rows == {"0": "0.50", "1": 7, "2": True, "3": "x", "4": "1E3", "7": "NaN"}
    assert [type(value) for value in rows.values()] == [str, int, bool, str, str, str]


def test_rows_without_a_field_are_none_and_the_same_row_twice_is_no_mistake():
    log = stated(
        (1, row(1, "a")), (2, {"about": {"category": "b"}}), (3, {"id": 3}), (4, row(1, "a"))
    )
    assert table_of(log, ORIGIN).rows == {"1": "a"}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (stated((1, row(1, "a")), (2, b"{")), "0, offset 1: the record is no JSON object"),
        (stated((1, [1])), "is no JSON object"),
        (stated((1, b"[" * 100_000)), "is no JSON object"),
        ([ReferenceRecord(3, 9, None, b"{}")], "partition 3, offset 9: the record has no key"),
        (stated((1, row(1, ["a"]))), "has a list or an object as about.category"),
        (stated((1, row(True, "a"))), "has a truth value as id"),
        (stated((1, row(1, 10**18))), "more than 18 digits as about.category"),
        (stated((1, row(1, "a")), (2, row("1", "b"))), "offset 1: the record has another about"),
        (stated((1, row(1, 1)), (2, row("1", True))), "another about.category than one with"),
        (stated((1, row(1, "\ud800"))), "has half of a character as about.category"),
        (stated((1, row("a\udfff", "a"))), "has half of a character as id"),
        (stated((1, row(1, "a"))) + stated((1, row(1, "b")), partition=1), "another about"),
        ([], "topic products has no rows with id and about.category"),
        (stated((1, None)), "has no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(log: list[ReferenceRecord], message: str):
    with pytest.raises(ConfigError) as caught:
        table_of(log, ORIGIN)
    assert message in str(caught.value)
