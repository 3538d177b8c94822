"""Contribution bounds against a record-by-record reference and their guarantees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Batch, Units, empty_units
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.bounding import MOST, MOST_PAIRS, Bound, pair_hash
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = Keys.of([b"k%d" % i for i in range(5)])

BOUNDS = [
    Bound("quadratic", 1, (1, 1)),
    Bound("quadratic", 12, (1, 1)),
    Bound("quadratic", 350, (100, 9)),
    Bound("quadratic", 350, (100, 9), caps=(1, 4)),
    Bound("records", 5, (1, 1)),
    Bound("records", 6, (1, 1), 2),
]
bounds = pytest.mark.parametrize("bound", BOUNDS, ids=str)


def batch(unit: list[int], key: list[int], window: int = 0) -> Batch:
    n = len(unit)
    return Batch(
        KEYS,
        np.array(key, np.intp),
        np.array(unit, np.intp),
        np.zeros((n, 0), np.int64),
        np.ones(n, np.int8),
        np.zeros(len(KEYS), np.int32),
        window,
    )


def reference(bound: Bound, unit: list[int], key: list[int], lane: list[int]) -> list[bool]:
    """The definition, applied record by record."""
    left = dict.fromkeys(unit, bound.left)
    used: dict[tuple[int, int, int], int] = {}
    out = []
    for u, k in zip(unit, key, strict=True):
        at = (u, k, lane[k])
        m = used.get(at, 0)
        every = sum(used.get((u, k, one), 0) for one in range(2))
        price = bound.weights[lane[k]] * (2 * m + 1) if bound.kind == "quadratic" else 1
        capped = m < bound.caps[lane[k]] if bound.caps else True
        fine = price <= left[u] and capped and (bound.kind == "quadratic" or every < bound.per_key)
        if fine:
            left[u] -= price
            used[at] = m + 1
        out.append(fine)
    return out


events = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=120)
lanes = st.lists(st.integers(0, 1), min_size=5, max_size=5)


@bounds
@settings(max_examples=40, deadline=None, derandomize=True)
@given(trace=events, lane=lanes)
def test_equals_the_record_by_record_reference(
    bound: Bound, trace: list[tuple[int, int]], lane: list[int]
) -> None:
    unit, key = (list(column) for column in zip(*trace, strict=True))
    got = bound.apply(empty_units(4, 2, bound.left), batch(unit, key), np.array(lane, np.intp))
    assert got.accepted.tolist() == reference(bound, unit, key, lane)


@bounds
@settings(max_examples=40, deadline=None, derandomize=True)
@given(trace=events, lane=lanes, cuts=st.lists(st.integers(0, 120), max_size=5))
def test_any_cut_gives_the_same_state_and_decisions(
    bound: Bound, trace: list[tuple[int, int]], lane: list[int], cuts: list[int]
) -> None:
    unit, key = (list(column) for column in zip(*trace, strict=True))
    lanes_ = np.array(lane, np.intp)
    whole = bound.apply(empty_units(4, 2, bound.left), batch(unit, key), lanes_)
    units, accepted = empty_units(4, 2, bound.left), []
    marks = sorted({0, len(unit), *(min(c, len(unit)) for c in cuts)})
    for a, b in itertools.pairwise(marks):
        step = bound.apply(units, batch(unit[a:b], key[a:b]), lanes_)
        units = step.units
        accepted += step.accepted.tolist()
    assert accepted == whole.accepted.tolist()
    for one, other in zip(units, whole.units, strict=True):
        np.testing.assert_array_equal(one, other)


@bounds
@settings(max_examples=40, deadline=None, derandomize=True)
@given(trace=events, lanes_over_time=st.lists(lanes, min_size=3, max_size=3))
def test_the_declared_sensitivity_is_never_exceeded(
    bound: Bound, trace: list[tuple[int, int]], lanes_over_time: list[list[int]]
) -> None:
    """Statuses may change from slice to slice in any way."""
    units = empty_units(4, 2, bound.left)
    for window, lane in enumerate(lanes_over_time):
        unit, key = (list(column) for column in zip(*trace, strict=True))
        units = bound.apply(units, batch(unit, key, window), np.array(lane, np.intp)).units
    squares = units.used.astype(np.int64) ** 2 * np.array(bound.weights)
    owner = np.repeat(np.arange(4), np.diff(units.start))
    per_unit = np.bincount(owner, squares.sum(axis=1), 4)
    assert per_unit.max() <= bound.sensitivity2()
    assert (units.left >= 0).all()
    if bound.kind == "quadratic":
        np.testing.assert_array_equal(per_unit, bound.left - units.left)


def test_a_greedy_unit_reaches_the_declared_sensitivity() -> None:
    same = batch([0] * 50, [0] * 50)
    for bound, m in [(BOUNDS[1], 3), (BOUNDS[4], 5), (BOUNDS[5], 2)]:
        units = bound.apply(empty_units(1, 2, bound.left), same, np.zeros(5, np.intp)).units
        assert units.used[:, 0].tolist() == [m] and bound.most_per_key() == m
    assert BOUNDS[5].sensitivity2() == 3 * 4
    assert BOUNDS[4].sensitivity2() == 25


@pytest.mark.parametrize("step", [1, 3, 20])
@pytest.mark.parametrize("lane,cap", [(0, 1), (1, 4)])
def test_a_cap_ends_what_a_unit_adds_to_a_key_however_much_it_has_left(
    lane: int, cap: int, step: int
) -> None:
    bound = Bound("quadratic", 100_000, (100, 9), caps=(1, 4))
    units, accepted = empty_units(1, 2, bound.left), 0
    for _ in range(0, 20, step):
        done = bound.apply(units, batch([0] * step, [2] * step), np.full(5, lane, np.intp))
        units, accepted = done.units, accepted + int(done.accepted.sum())
    assert accepted == units.used[0, lane] == cap


@pytest.mark.parametrize("step", [1, 3, 20])
def test_records_per_key_end_at_their_number_over_all_lanes(step: int) -> None:
    bound = Bound("records", 50, (1, 1), 4)
    units = empty_units(1, 2, bound.left)
    for place in range(0, 20, step):
        lane = np.full(5, place // step % 2, np.intp)
        units = bound.apply(units, batch([0] * step, [2] * step), lane).units
    assert units.used.sum() == 4


def test_the_rest_of_a_units_records_counts_towards_its_sensitivity() -> None:
    bound = Bound("records", 8, (1, 1), 3)
    key = [0] * 5 + [1] * 5 + [2] * 5
    used = bound.apply(empty_units(1, 2, 8), batch([0] * 15, key), np.zeros(5, np.intp)).units.used
    assert sorted(used[:, 0].tolist()) == [2, 3, 3]
    assert bound.sensitivity2() == (used.astype(np.int64) ** 2).sum() == 22


def test_a_later_cheaper_record_is_still_accepted() -> None:
    """Refusing a record of one key does not affect other keys."""
    bound = Bound("quadratic", 5, (1,))
    got = bound.apply(empty_units(1, 1, 5), batch([0] * 4, [0, 0, 0, 1]), np.zeros(5, np.intp))
    assert got.accepted.tolist() == [True, True, False, True]


def test_a_hash_collision_only_overcharges() -> None:
    bound = Bound("quadratic", 12, (1,))
    hashed = pair_hash(KEYS, 0)
    collided = Units(
        np.array([8], np.int64), np.array([0, 1]), hashed[:1].copy(), np.array([[2]], np.uint16)
    )
    got = bound.apply(collided, batch([0, 0], [0, 1]), np.zeros(5, np.intp))
    assert got.accepted.tolist() == [True, True]
    assert got.units.left.tolist() == [8 - 5 - 1]


def test_one_unit_with_most_of_the_traffic_is_decided_quickly() -> None:
    n = 200_000
    rng = np.random.default_rng(7)
    keys = Keys.of_codes(np.arange(2_000, dtype=np.uint64))
    crowd = Batch(
        keys,
        rng.integers(0, 2_000, n),
        np.zeros(n, np.intp),
        np.zeros((n, 0), np.int64),
        np.ones(n, np.int8),
        np.zeros(2_000, np.int32),
    )
    bound = Bound("quadratic", 350, (100, 9))
    got = bound.apply(empty_units(1, 2, 350), crowd, np.ones(2_000, np.intp))
    assert got.accepted.sum() == 350 // 9
    assert len(got.units.pair) == 350 // 9  # refused pairs leave no state


def test_arguments_are_not_changed() -> None:
    units = empty_units(2, 1, 9)
    first = BOUNDS[1].apply(units, batch([0, 1, 1], [0, 0, 1]), np.zeros(5, np.intp))
    kept = [column.copy() for column in first.units]
    BOUNDS[1].apply(first.units, batch([0, 1], [0, 0]), np.zeros(5, np.intp))
    for one, other in zip(first.units, kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bound("quadratic", 0),
        lambda: Bound("none", 1),  # type: ignore[arg-type]
        lambda: Bound("quadratic", 2**41),
        lambda: Bound("quadratic", 5, (0,)),
        lambda: Bound("records", 5, (1,), MOST + 1),
        lambda: Bound("quadratic", MOST**2 + 1),
        lambda: Bound("records", MOST_PAIRS + 1).storable(),
        lambda: Bound("records", MOST_PAIRS // 2 + 1).storable(distinct=True),
        lambda: Bound("quadratic", 9 * (MOST_PAIRS + 1), (100, 9)).storable(),
        lambda: Bound("quadratic", 5, (1,), caps=(0,)),
        lambda: Bound("records", 5, (1,), np.iinfo(np.uint16).max + 1),  # `Units.used` is 16 bits
    ],
)
def test_bad_bounds_are_refused(make: object) -> None:
    with pytest.raises(ParameterError):
        make()  # type: ignore[operator]


def fnv(data: bytes) -> int:
    """FNV-1a of 64 bits, its halves folded together."""
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state >> 32 ^ state % 2**32


@given(st.lists(st.binary(max_size=9)), st.integers(0, 2**32 - 1))
def test_pairs_are_hashed_with_the_published_function(keys: list[bytes], window: int) -> None:
    expected = [fnv(window.to_bytes(4, "big") + key) for key in keys]
    assert pair_hash(Keys.of(keys), window).tolist() == expected
