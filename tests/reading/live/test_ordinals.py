"""Keys with a natural order are shown in it; all others are shown by size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hushstream.reading.live.ordinals import ranks

BANDS = {"cases": [{"where": [{"field": "fare", "below": 10.0}], "then": "cheap"},
                   {"where": [{"field": "fare", "below": 20.0}], "then": "fair"}],
         "otherwise": "dear"}  # fmt: skip


def ordered(column: str, values: list[Any], derived: Any = None) -> list[Any] | None:
    """Values in the order of their ranks; None if they have none."""
    config = {"key": [column], "derive": {column: derived} if derived else {}}
    found = ranks(config, [json.dumps([value]) for value in values])
    if found is None:
        return None
    return [value for _, value in sorted(zip(found, values, strict=True))]


@pytest.mark.parametrize(
    ("column", "wanted", "derived"),
    [
        ("h", [2, 9, 10, 23], {"time": "hour"}),
        ("y", [2019, 2020, 2026], {"time": "year"}),
        ("d", ["2025-12-31", "2026-01-01"], {"time": "date"}),
        ("fare", ["-2.5", "0.0", "7.5", "10.0"], {"field": "fare", "bucket": 2.5}),
        ("miles", [-10, 0, 90, 100], {"field": "miles", "round": -1}),
        ("price", ["cheap", "fair", "dear"], BANDS),
        ("pickup_hour", [2, 9, 10, 23], None),
        ("hour", ["02", "9", "10"], None),
        ("when", ["monday", "Tuesday", "SUNDAY"], None),
        ("when", ["Jan", "Feb", "Apr", "Dec"], None),
        ("slot", ["7:30", "08:00", "19:00"], None),
        ("age", ["<18", "18-24", "25-34", "65+"], None),
        ("size", ["[0, 10)", "[10, 100)", "[100, 1000)"], None),
        ("q", ["2025-Q4", "2026-Q1"], None),
    ],
)
def test_an_ordinal_key_is_read_in_its_order(column: str, wanted: list[Any], derived: Any) -> None:
    assert ordered(column, wanted[::-1], derived) == wanted
    assert ordered(column, wanted[1:] + wanted[:1], derived) == wanted


@pytest.mark.parametrize(
    ("column", "values", "derived"),
    [
        ("zone", [132, 4, 79], None),  # numbers that are names
        ("zip", ["12345", "9021"], None),
        ("zip", ["94110-1203"], None),
        ("payment", ["card", "cash"], {"cases": [
            {"where": [{"field": "p", "equals": 1}], "then": "card"}], "otherwise": "cash"}),
        ("name", ["May", "Rachel"], None),
        ("hour", [1, None], None),
        ("hour", [True], None),
        ("host", ["yesterday", "monday"], None),
    ],
)  # fmt: skip
def test_other_keys_have_no_order(column: str, values: list[Any], derived: Any) -> None:
    assert ordered(column, values, derived) is None


def test_several_columns_are_ordered_if_each_of_them_is() -> None:
    config = {"key": ["day", "hour"], "derive": {"hour": {"time": "hour"}}}
    ids = ['["Tue", 1]', '["Mon", 11]', '["Mon", 9]']
    found = ranks(config, ids)
    assert found is not None
    assert [id for _, id in sorted(zip(found, ids, strict=True))] == ids[::-1]
    assert ranks({"key": ["zone", "hour"]}, ['["JFK", 1]', '["Bronx", 11]']) is None
    assert ranks({"key": []}, ["[]"]) is None
