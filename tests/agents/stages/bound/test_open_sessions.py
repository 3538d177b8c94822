"""Open sessions: runs of one unit's records of one key, in any order and any slices.

Covers: agents/stages/bound/session_scan.py
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hushstream.agents.stages.bound.open_sessions import MOST, ClosedSessions, close, settled, take
from hushstream.errors import EngineError
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

GAP = 10
FOR_EVER = -(1 << 60), 1 << 60
Record = tuple[int, bytes, int]  # unit, key, time
Session = tuple[int, int, bytes, int, int]  # unit, last, key, first, events
records_of = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b", b"long key" * 9]),
              st.integers(-60, 60)), max_size=30,
)  # fmt: skip


def joined(records: list[Record], cut: tuple[int, ...] = (), units: int = 3) -> tuple[Keys, int]:
    """Rows after some records, taken in slices that end at the positions in ``cut``."""
    rows, left = Keys.of([b""] * units), 0
    for low, high in pairwise([0, *sorted(cut), len(records)]):
        some = records[low:high]
        keys, key = Keys.of(key for _, key, _ in some).unique()
        unit = np.array([unit for unit, _, _ in some], np.intp)
        time = np.array([time for _, _, time in some], np.int64)
        rows, more = take(rows, unit, keys, key, time, GAP)
        left += more
    return rows, left


def listed(found: ClosedSessions) -> list[Session]:
    columns = (found.unit, found.last, found.key, found.first, found.events)
    rows: list[Any] = list(zip(*(one.tolist() for one in columns), strict=True))
    names = found.keys.tolist()
    return [(unit, last, names[key], first, events) for unit, last, key, first, events in rows]


def runs(records: list[Record]) -> list[Session]:
    """Maximal runs, by definition."""
    found: list[Session] = []
    for unit, key in sorted({(unit, key) for unit, key, _ in records}):
        times = sorted(t for u, k, t in records if (u, k) == (unit, key))
        ends = [n for n, (a, b) in enumerate(pairwise(times), 1) if b - a > GAP]
        for low, high in pairwise([0, *ends, len(times)]):
            found.append((unit, times[high - 1], key, times[low], high - low))
    return sorted(found)


@given(records_of, st.data())
def test_sessions_are_maximal_runs_in_any_order_and_in_any_slices(
    records: list[Record], data: st.DataObject
) -> None:
    cut = data.draw(st.lists(st.integers(0, len(records)), max_size=3))
    rows, left = joined(data.draw(st.permutations(records)), tuple(cut))
    found = close(rows, *FOR_EVER)
    assert listed(found) == runs(records) and left == 0
    assert found.rows.tolist() == [b""] * 3


@given(records_of, st.integers(-60, 60), st.integers(0, 60))
def test_only_sessions_that_end_between_the_edges_leave(
    records: list[Record], low: int, width: int
) -> None:
    rows, _ = joined(records)
    gone = close(rows, low, low + width)
    assert listed(gone) == [one for one in runs(records) if low <= one[1] < low + width]
    rest = close(gone.rows, *FOR_EVER)
    assert sorted(listed(gone) + listed(rest)) == runs(records)


@given(records_of)
def test_a_unit_changes_no_session_of_another(records: list[Record]) -> None:
    """The neighbouring relation for each unit: with all of its records, or with none."""
    every = listed(close(joined(records)[0], *FOR_EVER))
    for gone in range(3):
        others = [one for one in records if one[0] != gone]
        without = listed(close(joined(others)[0], *FOR_EVER))
        assert without == [one for one in every if one[0] != gone]


def test_a_unit_has_so_many_open_sessions_and_no_more() -> None:
    """The rule reads only the unit's own row, in the order of its log, for any slices."""
    many = [(0, b"%d" % n, 0) for n in range(MOST)]
    later = [(0, b"new", 0), (0, b"3", GAP), (1, b"new", 0), (0, b"new", 0)]
    for cut in ((), (MOST,), (MOST + 1,), (1, MOST + 2)):
        rows, left = joined(many + later, cut)
        found = listed(close(rows, *FOR_EVER))
        assert left == 2 and len(found) == MOST + 1
        assert (0, GAP, b"3", 0, 2) in found and (1, 0, b"new", 0, 1) in found


def test_a_session_that_joins_two_makes_room() -> None:
    rows, left = joined([(0, b"a", 0), (0, b"a", 2 * GAP), (0, b"a", GAP)])
    assert listed(close(rows, *FOR_EVER)) == [(0, 2 * GAP, b"a", 0, 3)] and left == 0


@given(records_of, records_of, st.data())
def test_records_beyond_a_cut_have_no_part_in_what_it_closes(
    before: list[Record], beyond: list[Record], data: st.DataObject
) -> None:
    """Their place in the log does not matter: they wait until the cut and join then."""
    marked = [(one, 0) for one in before] + [(one, 1) for one in beyond]
    mixed = data.draw(st.permutations(marked))
    keys, key = Keys.of(key for (_, key, _), _ in mixed).unique()
    unit = np.array([unit for (unit, _, _), _ in mixed], np.intp)
    time = np.array([time for (_, _, time), _ in mixed], np.int64)
    late = np.array([late for _, late in mixed], np.int64)
    rows, left = take(Keys.of([b""] * 3), unit, keys, key, time, GAP, late, 0)
    found = close(rows, -60, 0)
    closed = [one for one in runs(before) if one[1] < 0]
    assert listed(found) == closed and left == 0
    rows = settled(found.rows, GAP, 1)
    gone = [(unit, key, first, last) for unit, last, key, first, _ in closed]
    rest = [
        one for one in before if not any(u == one[0] and k == one[1] and a <= one[2] <= b
                                         for u, k, a, b in gone)
    ]  # fmt: skip
    assert listed(close(rows, *FOR_EVER)) == runs(rest + beyond)


def test_damaged_rows_are_refused() -> None:
    (row,) = joined([(0, b"key", 0)], units=1)[0].tolist()
    none = np.zeros(0, np.intp)
    for damaged in (row[:-1], row + b"x", b"\x00"):
        with pytest.raises(EngineError, match="damaged"):
            close(Keys.of([damaged]), *FOR_EVER)
    with pytest.raises(EngineError, match="too many sessions"):
        take(Keys.of([row * (MOST + 1)]), none, Keys.of([]), none, np.zeros(0, np.int64), GAP)
