"""Sums near 2^63: never wrapped, the same in any order, moved by a record at most by its value."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.columns import Part, merge
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.sums import HELD, LARGEST, combined, held, plus, times, total, totals
from hypothesis import given
from hypothesis import strategies as st

NEAR = st.sampled_from([1 << 62, LARGEST, LARGEST - 1, 1 << 61, (1 << 31) - 1, 1 << 32, 1, 0])
WHOLE = st.builds(lambda one, more: min(max(one + more, 0), LARGEST), NEAR, st.integers(-3, 3))
SIGNED = st.builds(lambda one, sign: sign * one, WHOLE, st.sampled_from([-1, 1]))
TABLE = st.lists(st.tuples(st.integers(0, 2), SIGNED, SIGNED), max_size=30)


def cut(exact: int) -> int:
    return max(-LARGEST, min(LARGEST, exact))


@given(TABLE, st.randoms(use_true_random=False))
def test_a_total_is_the_exact_one_cut_once_in_any_order(table, random) -> None:
    random.shuffle(table)
    expected = [[cut(sum(r[c] for r in table if r[0] == n)) for c in (1, 2)] for n in range(3)]
    row = np.array([one[0] for one in table], np.intp)
    values = np.array([one[1:] for one in table], np.int64).reshape(-1, 2)
    assert totals(row, values, 3).tolist() == expected
    assert totals(row, values[:, 0], 3).tolist() == [one for one, _ in expected]


@given(st.lists(SIGNED, min_size=1, max_size=30), st.data())
def test_a_record_moves_a_total_no_further_than_itself(values, data) -> None:
    gone = data.draw(st.integers(0, len(values) - 1))

    def summed(some: list[int]) -> int:
        return int(totals(np.zeros(len(some), np.intp), np.array(some, np.int64), 1)[0])

    rest = values[:gone] + values[gone + 1 :]
    assert abs(summed(values) - summed(rest)) <= abs(values[gone])


@given(st.lists(WHOLE, max_size=20), st.integers(0, 20))
def test_sums_that_only_grow_are_alike_in_any_cut(values, place) -> None:
    def summed(some: list[int]) -> int:
        so_far = np.zeros(1, np.int64)
        for one in some:
            so_far = plus(so_far, np.array([one]))
        return int(so_far[0])

    expected = min(sum(values), LARGEST)
    parts = [np.array(some, np.int64) for some in (values[:place], values[place:])]
    assert summed(values) == summed(values[::-1]) == total(np.array(values, np.int64)) == expected
    assert summed([total(one) for one in parts]) == expected


@given(st.lists(st.tuples(SIGNED, SIGNED), min_size=1, max_size=9), st.integers(0, 1 << 33))
def test_pairs_are_added_and_multiplied_as_whole_numbers_are(pairs, factor) -> None:
    one, two = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert plus(one, two).tolist() == [cut(a + b) for a, b in pairs]
    assert times(np.abs(one), factor).tolist() == [min(abs(a) * factor, LARGEST) for a, _ in pairs]
    exact = [a + factor * b for a, b in pairs]
    assert combined(one, factor, two).tolist() == [max(-HELD, min(HELD, x)) for x in exact]
    assert held(one).tolist() == [max(-HELD, min(HELD, a)) for a, _ in pairs]


PARTS = st.lists(st.dictionaries(st.binary(max_size=1), SIGNED, min_size=1, max_size=4),
                 min_size=1, max_size=8)  # fmt: skip


@given(PARTS, st.randoms(use_true_random=False))
def test_parts_are_merged_in_any_order(tables, random) -> None:
    def part(rows: dict[bytes, int]) -> Part:
        sums = np.array([[1, rows[key]] for key in sorted(rows)], np.int64)
        lane = np.zeros(len(rows), np.uint8)
        return Part(Keys.of(sorted(rows)), lane, sums, np.zeros(0, np.int64))

    expected: dict[bytes, list[int]] = {}
    for rows in tables:
        for key, value in rows.items():
            so_far = expected.setdefault(key, [0, 0])
            so_far[:] = so_far[0] + 1, so_far[1] + value
    random.shuffle(tables)
    merged = merge([part(rows) for rows in tables])
    found = dict(zip(merged.key.tolist(), merged.sums.tolist(), strict=True))
    assert found == {key: [count, cut(exact)] for key, (count, exact) in expected.items()}


def test_a_minimum_of_int64_is_no_exception() -> None:
    """The magnitude of the least int64 is no int64; the value is cut like any other."""
    least = np.array([-LARGEST, -1])
    assert totals(np.zeros(2, np.intp), least, 1).tolist() == [-LARGEST]
    assert plus(least[:1], least[1:]).tolist() == [-LARGEST]
