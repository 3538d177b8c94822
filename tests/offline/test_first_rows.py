"""Rows that cannot become events are reported with row, field and the setting to change."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.offline.first_rows import unfit

from ..support import deployment

SECOND = 1_551_398_401


def rows(time: Any, number: int = 4, **fields: Any) -> list[dict[str, Any]]:
    return [{"user": f"u{n}", "page": "a", "t": time, **fields} for n in range(number)]


def said(how: str, given: list[dict[str, Any]]) -> str | None:
    (source,) = deployment(swap={'"epoch_us"': f'"{how}"'}).inputs
    return unfit(source, given)


@pytest.mark.parametrize(
    ("how", "time", "words"),
    [
        ("epoch_s", SECOND * 1000, "look like milliseconds: set time.format = 'epoch_ms'"),
        ("epoch_ms", SECOND, "into the year 1970: its numbers look like seconds, so set"),
        ("epoch_us", SECOND * 1000, "into the year 1970: its numbers look like milliseconds"),
        ("epoch_us", "2019-03-01T00:00:01", "holds ISO times, set time.format = 'iso'"),
        ("iso", SECOND, "look like seconds: set time.format = 'epoch_s'"),
    ],
)
def test_another_way_of_writing_time_is_named(how: str, time: Any, words: str) -> None:
    assert words in (said(how, rows(time)) or "")


@pytest.mark.parametrize(
    ("how", "time"),
    [("epoch_s", SECOND), ("epoch_ms", SECOND * 1000), ("epoch_us", 7), ("iso", "2019-03-01")],
)
def test_what_can_be_meant_is_let_through(how: str, time: Any) -> None:
    assert said(how, rows(time)) is None


def test_half_of_the_rows_is_enough_and_a_value_is_not_quoted() -> None:
    good, bad = rows(SECOND), rows("secret")
    assert said("epoch_s", good + bad) is None
    words = said("epoch_s", good[:3] + bad) or ""
    assert words.startswith("row 4 is the first that cannot") and "secret" not in words
