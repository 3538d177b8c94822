from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch, Units, empty_units
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.points import insertions, signed
from hypothesis import given, settings
from hypothesis import strategies as st

EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, 1, -1])), max_size=40
)
KEYS = Keys.of_codes(np.arange(4, dtype=np.uint64))


def batch(events: list[tuple[int, int, int]], window: int = 0) -> Batch:
    unit, key, sign = (np.array([e[i] for e in events], np.intp) for i in range(3))
    none = np.empty((len(events), 0), np.int64)
    return Batch(KEYS, key, unit, none, sign.astype(np.int8), np.zeros(4, np.int32), window)


def definition(events: list[tuple[int, int, int]], bound: int, deletions: bool) -> list[bool]:
    left, live, out = Counter(dict.fromkeys(range(4), bound)), Counter(), []
    for unit, key, sign in events:
        good = left[unit] > 0 and (sign > 0 or (deletions and live[unit, key] > 0))
        left[unit] -= good
        live[unit, key] += good * sign
        out.append(good)
    return out


@settings(max_examples=150, deadline=None, derandomize=True)
@given(events=EVENTS, bound=st.integers(1, 6), cut=st.integers(0, 40), deletions=st.booleans())
def test_any_cut_follows_the_definition(
    events: list[tuple[int, int, int]], bound: int, cut: int, deletions: bool
) -> None:
    accept = signed if deletions else insertions
    units, accepted = empty_units(4, 1, bound), []
    for part in (events[:cut], events[cut:]):
        before = [array.copy() for array in units]
        after, mine = accept(units, batch(part))
        for old, new in zip(before, units, strict=True):
            np.testing.assert_array_equal(old, new)
        units, accepted = after, accepted + mine.tolist()
    assert accepted == definition(events, bound, deletions)
    spent = Counter(e[0] for e, good in zip(events, accepted, strict=True) if good)
    assert units.left.tolist() == [bound - spent[unit] for unit in range(4)]
    check_pairs(units, events, accepted, deletions)


def check_pairs(
    units: Units, events: list[tuple[int, int, int]], accepted: list[bool], deletions: bool
) -> None:
    live: Counter[tuple[int, int]] = Counter()
    for (unit, key, sign), good in zip(events, accepted, strict=True):
        live[unit, key] += good * sign
    expected = sorted((unit, n) for (unit, _), n in live.items() if n) if deletions else []
    owner = np.repeat(np.arange(4), np.diff(units.start)).tolist()
    assert sorted(zip(owner, units.used[:, 0].tolist(), strict=True)) == expected


def test_a_deletion_needs_a_live_insertion_of_the_same_unit_cell_and_window() -> None:
    units, accepted = signed(empty_units(2, 1, 9), batch([(0, 1, 1), (1, 1, -1), (0, 2, -1)]))
    assert accepted.tolist() == [True, False, False]
    units, accepted = signed(units, batch([(0, 1, -1)], window=1))
    assert accepted.tolist() == [False]
    units, accepted = signed(units, batch([(0, 1, -1), (0, 1, -1)]))
    assert accepted.tolist() == [True, False]
    assert units.left.tolist() == [7, 9]


@pytest.mark.parametrize("accept", [signed, insertions])
def test_nothing_is_nothing(accept: object) -> None:
    units, accepted = accept(empty_units(0, 1, 3), batch([]))  # type: ignore[operator]
    assert len(accepted) == len(units.left) == 0
