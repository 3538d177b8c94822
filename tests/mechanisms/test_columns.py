"""Columns: partial sums merge like sums in a dictionary."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import (
    Closed,
    Part,
    Rows,
    compact,
    empty_part,
    empty_units,
    merge,
    no_releases,
)
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

LANES = st.integers(0, 255) | st.integers(0, 1) | st.just(0)
ROW = st.tuples(st.binary(max_size=3), LANES, st.integers(-9, 9), st.integers(-9, 9))
FEW_LANES = st.tuples(
    st.binary(max_size=2), st.integers(0, 3), st.integers(-9, 9), st.integers(-9, 9)
)
ROWS = st.lists(ROW, max_size=12) | st.lists(FEW_LANES, max_size=12)


def part(rows: list[tuple[bytes, int, int, int]]) -> Part:
    """A part with rows of (key, lane, two sums); its total is the number of rows."""
    sums = np.array([row[2:] for row in rows], np.int64).reshape(-1, 2)
    lane = np.array([row[1] for row in rows], np.uint8)
    return Part(Keys.of([row[0] for row in rows]), lane, sums, np.array([len(rows)]))


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_merging_adds_up_by_key_and_lane(tables: list[list[tuple[bytes, int, int, int]]]) -> None:
    merged = merge([part(rows) for rows in tables])
    first, second = Counter[tuple[bytes, int]](), Counter[tuple[bytes, int]]()
    for key, lane, a, b in (row for rows in tables for row in rows):
        first[key, lane] += a
        second[key, lane] += b
    listed = list(zip(merged.key.tolist(), merged.lane.tolist(), strict=True))
    assert listed == sorted(first)
    assert merged.sums.tolist() == [[first[one], second[one]] for one in listed]
    assert merged.lane.dtype == np.uint8
    assert merged.totals.tolist() == [sum(map(len, tables))]


def test_parts_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ContractError, match="at least one"):
        merge([])
    for other in (empty_part(2, 1), empty_part(1, 2)):
        with pytest.raises(ContractError, match="different mechanisms"):
            merge([empty_part(1, 1), other])


@given(st.lists(st.integers(0, 19)))
def test_compact_is_unique(index: list[int]) -> None:
    used, place = compact(np.array(index, np.intp), 20)
    expected, inverse = np.unique(np.array(index, np.intp), return_inverse=True)
    assert used.tolist() == expected.tolist() and place.tolist() == inverse.tolist()


def test_empty_tables_have_their_widths() -> None:
    units = empty_units(3, 2, 7)
    assert units.left.tolist() == [7, 7, 7] and units.start.tolist() == [0, 0, 0, 0]
    assert units.used.shape == (0, 2)
    assert empty_part(2, 3).sums.shape == (0, 3) and empty_part(2, 3).totals.shape == (3,)
    assert no_releases(2).value.shape == no_releases(2).variance.shape == (0, 2)


def test_the_nonce_in_force_is_that_of_the_last_renewal() -> None:
    rows = Rows(Keys.of([]), np.empty(0), np.empty(0, np.int32))
    assert Closed(rows, empty_part(0), 5).renewed == 1
    assert Closed(rows, empty_part(0), 5, (2, 4)).renewed == 4
