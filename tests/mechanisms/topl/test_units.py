"""The bound of a unit: a slot counts once, in whatever slices its reports come."""

from __future__ import annotations

import numpy as np
from hushstream.client.survey import RANGE
from hushstream.mechanisms.topl.mechanism import ToPL
from hypothesis import given, settings
from hypothesis import strategies as st

from .bench import SURVEY, batch_of, columns


def test_a_retry_counts_once_and_excess_not_at_all() -> None:
    mechanism = ToPL(SURVEY)
    rows = [
        (7, RANGE, 0, 3),
        (7, RANGE, 0, 3),
        (7, RANGE, 0, 4),
        (8, RANGE, 0, 5),
        (9, RANGE, 0, 6),
    ]
    given_ = columns(rows)
    units, part = mechanism.absorb(
        mechanism.traits.units(1), batch_of(mechanism, given_, np.zeros(5, np.intp))
    )
    assert part.key.codes().tolist() == [3, 5] and part.sums[:, 0].tolist() == [1, 1]
    assert units.left.tolist() == [0] and units.pair.tolist() == [7, 8]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=40),
    st.integers(1, 7),
)
def test_cutting_a_batch_anywhere_changes_nothing(
    events: list[tuple[int, int, int]], size: int
) -> None:
    mechanism = ToPL(SURVEY)
    given_ = columns([(slot, RANGE, 0, code) for _, slot, code in events])
    unit = np.array([one for one, _, _ in events], np.intp)
    whole, part = mechanism.absorb(mechanism.traits.units(4), batch_of(mechanism, given_, unit))
    units, total = mechanism.traits.units(4), np.zeros(64, np.int64)
    for begin in range(0, len(events), size):
        cut = {name: column[begin : begin + size] for name, column in given_.items()}
        units, one = mechanism.absorb(units, batch_of(mechanism, cut, unit[begin : begin + size]))
        np.add.at(total, one.key.codes().astype(np.intp), one.sums[:, 0])
    for left, right in zip(whole, units, strict=True):
        np.testing.assert_array_equal(left, right)
    expected = np.zeros(64, np.int64)
    np.add.at(expected, part.key.codes().astype(np.intp), part.sums[:, 0])
    np.testing.assert_array_equal(total, expected)
    seen: dict[int, set[int]] = {}
    for one_unit, slot, _ in events:
        mine = seen.setdefault(one_unit, set())
        if len(mine) < 2:
            mine.add(slot)
    assert total.sum() == sum(map(len, seen.values()))
