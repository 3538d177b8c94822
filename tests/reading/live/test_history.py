"""Releases as columns: a window's known content at each trigger, in any order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hushstream.reading.live.history import History, Sheet, key_id, merged, millis, sheet_of
from hushstream.topics.assembly import Released, newest

from ...topics.test_assembly import complete, records

CASES = ["histogram-sums", "phdstream", "privhp", "pak", "tops", "topl"]


def released(case: str) -> list[Released]:
    return complete(records(case)[0], case)


def content(sheet: Sheet) -> dict[str, Any]:
    """Every value of every row."""
    return {
        text: {
            name: [None if x != x else x for x in sheet.column(name)[place].tolist()]
            for name in sheet.names
        }
        for place, text in enumerate(sheet.ids)
    }


def expected(releases: Sequence[Released]) -> dict[int, dict[str, Any]]:
    """The newest row of each key by window, from the independent `newest`."""
    found: dict[int, dict[str, Any]] = {}
    for release, row in newest(releases):
        values = {}
        for name in release.manifest.value_names:
            one = row.values.get(name)
            values[name] = [None] * 4 if one is None else [one.value, one.stddev, one.low, one.high]
        found.setdefault(millis(release.window.start), {})[key_id(row)] = values
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_the_state_of_a_window_is_the_newest_row_of_each_key(case: str, seed: int) -> None:
    history, given = History(), released(case)
    for release in random.Random(seed).sample(given, len(given)):
        assert history.add(release)
        assert not history.add(release)
    assert history.version == len(given)
    wanted = expected(given)
    windows = history.windows()
    assert [w["start"] for w in windows] == sorted(wanted, reverse=True)
    for window in windows:
        state = history.state(window["start"])
        assert state is not None and content(state) == wanted[window["start"]]
        assert window["final"] and window["trigger"] == window["triggers"] == 4
        assert list(state.ids) == sorted(state.ids)
        for trigger in (1, 2, 3):
            past = history.state(window["start"], trigger)
            early = [r for r in given if r.trigger <= trigger]
            assert past is not None and content(past) == expected(early).get(window["start"], {})
            assert past.trigger == trigger


def test_cells_have_their_ends_in_the_order_of_the_axes() -> None:
    for release in released("phdstream"):
        sheet = sheet_of(release)
        rows = {key_id(row): row for row in release.rows}
        for place, text in enumerate(sheet.ids):
            box = rows[text].box
            assert sheet.boxes[place].tolist() == [list(box["x"]), list(box["y"])]


def test_a_row_is_found_by_its_id() -> None:
    sheet = sheet_of(released("histogram-plain")[0])
    assert [sheet.place(text) for text in sheet.ids] == list(range(len(sheet)))
    assert sheet.place("[]") is None and sheet.place('["zzzz"]') is None


def test_the_oldest_is_forgotten_first_and_the_newest_never() -> None:
    given = released("histogram-sums")
    whole = sum(len(r.rows) * 3 for r in given)
    history = History(most=whole // 3)
    for release in given:
        history.add(release)
    last = max(given, key=lambda r: (r.window.start, r.trigger))
    kept = [(s.start, s.trigger) for s in history.sheets()]
    assert 0 < len(kept) < len(given)
    assert kept[-1] == (millis(last.window.start), last.trigger)
    state = history.state()
    assert state is not None
    assert content(state) == expected(given)[millis(last.window.start)]
    tiny = History(most=1)
    for release in given:
        tiny.add(release)
    assert len(list(tiny.sheets())) == 1 and tiny.newest is not None


def test_nothing_is_known_of_nothing() -> None:
    history = History()
    assert history.state() is None and history.last is None and history.windows() == []
    history.add(released("topl")[0])
    assert history.state(5) is None


def test_merging_does_not_depend_on_the_order() -> None:
    first, second = (sheet_of(r) for r in released("tops")[1:3])
    assert content(merged(first, second)) == content(merged(second, first))
    assert merged(second, first).trigger == max(first.trigger, second.trigger)


def test_times_are_milliseconds() -> None:
    assert millis(datetime(2019, 3, 1, tzinfo=UTC)) == 1_551_398_400_000
