"""Values in slots: clipping, bounds, late and early records, re-delivery."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import Batch, Closed, Part, Rows, empty_units, merge
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.slots import ROW, Slots, split, with_state
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles.keys import is_canonical
from ...oracles.slots import join

SLOTS = Slots((1, 2, 4, 8, 16), horizon=6, warmup=2, per_trigger=3, origin=100, length=10, bound=3)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**6), 10**6)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30), st.sampled_from([1, 3]))
def test_every_record_lands_on_the_public_grid(records: list[tuple[float, float]], k: int) -> None:
    slots = replace(SLOTS, grid=Fraction(k, 2))
    time, value = (np.array(column, float) for column in zip(*records, strict=True))
    coded = slots.encode({"time": time, "value": value})
    slot, bucket = split(coded.keys)
    whole = coded.value[:, 0]
    assert (coded.keep == (np.isfinite(time) & np.isfinite(value))).all()
    assert ((whole >= 0) & (whole <= 16)).all()
    assert ((slot >= 0) & (slot < slots.slots)).all()
    thresholds = np.array([-1, *slots.thresholds])
    assert (whole <= thresholds[1:][bucket[coded.key]]).all()
    assert (whole > thresholds[:-1][bucket[coded.key]]).all()
    near = np.clip(value, 0, 16 * k / 2) / (k / 2)
    assert (np.abs(near - whole)[coded.keep] <= 0.5).all()


def test_slots_follow_the_time_alone() -> None:
    time = np.array([100, 109, 110, 279, 280, 99, 460])
    slot, _ = split(SLOTS.encode({"time": time, "value": np.ones(7, np.int64)}).keys)
    assert slot.tolist() == [0, 1, 17]
    for one, expected in zip(time.tolist(), [0, 0, 1, 17, 0, 17, 0], strict=True):
        for column in (np.array([one]), np.array([float(one)])):
            coded = SLOTS.encode({"time": column, "value": np.array([5])})
            assert split(coded.keys)[0].tolist() == [expected]


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_absorbing_bounds_units_in_any_cut(seed: int, cut: int) -> None:
    generator = np.random.default_rng(seed)
    n = 40
    coded = SLOTS.encode(
        {"time": generator.integers(0, 999, n), "value": generator.integers(-5, 30, n)}
    )
    unit, sign = generator.integers(0, 8, n), np.where(generator.random(n) < 0.2, -1, 1)

    def absorb(rows: slice) -> Batch:
        status = np.zeros(len(coded.keys), np.int32)
        return Batch(
            coded.keys, coded.key[rows], unit[rows], coded.value[rows],
            sign[rows].astype(np.int8), status,
        )  # fmt: skip

    units, whole = SLOTS.absorb(empty_units(8, 1, SLOTS.bound), absorb(slice(0, n)))
    two, first = SLOTS.absorb(empty_units(8, 1, SLOTS.bound), absorb(slice(0, cut)))
    two, second = SLOTS.absorb(two, absorb(slice(cut, n)))
    both, all_ = merge([first, second]), merge([whole])
    assert both.key == all_.key and both.sums.tolist() == all_.sums.tolist()
    assert two.left.tolist() == units.left.tolist()
    inserted = np.bincount(unit[sign > 0], minlength=8)
    assert (units.left == 3 - np.minimum(inserted, 3)).all()
    assert all_.sums[:, 0].sum() == np.minimum(inserted, 3).sum()


def test_a_hostile_value_cannot_pass_its_bucket() -> None:
    keys = join(np.array([4, 5]), np.array([0, 3]))
    batch = Batch(
        keys, np.array([0, 1, 1]), np.array([0, 1, 2]), np.array([[-(10**6)], [10**9], [0]]),
        np.ones(3, np.int8), np.zeros(2, np.int32),
    )  # fmt: skip
    _, part = SLOTS.absorb(empty_units(3, 1, SLOTS.bound), batch)
    assert part.sums.tolist() == [[1, 0], [2, 8 + 5]]
    foreign = batch._replace(keys=join(np.array([4, 18]), np.array([0, 3])))
    with pytest.raises(ContractError, match="slot and bucket"):
        SLOTS.absorb(empty_units(3, 1, SLOTS.bound), foreign)


def part_of(rows: dict[tuple[int, int], tuple[int, int]]) -> Part:
    slot, bucket = (np.array(column) for column in zip(*sorted(rows), strict=True))
    sums = np.array([rows[key] for key in sorted(rows)])
    return Part(join(slot, bucket), np.zeros(len(sums), np.uint8), sums, np.zeros(0, np.int64))


def fresh(keys: Keys) -> Rows:
    return Rows(keys, np.zeros(len(keys), ROW), np.zeros(len(keys), np.int32))


def test_late_records_count_in_the_open_slot_and_early_ones_wait() -> None:
    part = part_of({(2, 0): (1, 1), (9, 1): (2, 4), (10, 3): (1, 7), (15, 0): (1, 1)})
    rows = fresh(part.key)
    after, entries, state = SLOTS.close(Closed(rows, part, 4))  # closes the slots 9..11
    assert SLOTS.range_of(4) == (9, 12) and len(state) == 0
    assert SLOTS.per_slot(entries, 16, 4).tolist() == [1 + 4, 7, 0]
    assert SLOTS.per_slot(entries, 2, 4).tolist() == [1 + 4, 2, 0]
    assert after.due.tolist() == [0, 0, 0, 6]
    assert after.state["count"].tolist() == [0, 0, 0, 1]
    assert rows.state["count"].sum() == 0  # the argument is unchanged
    with pytest.raises(ContractError, match="public grid"):
        SLOTS.per_slot(entries, 3, 4)


def test_the_warmup_closes_at_once() -> None:
    assert [SLOTS.range_of(t) for t in (1, 2, 3)] == [(0, 0), (0, 6), (6, 9)]
    assert SLOTS.closing(np.array([0, 5, 6, 17])).tolist() == [2, 2, 3, 6]
    part = part_of({(0, 1): (1, 2), (5, 4): (1, 16), (6, 0): (1, 1)})
    rows, entries, _ = SLOTS.close(Closed(fresh(part.key), part, 1))
    assert len(entries.slot) == 0 and rows.due.tolist() == [2, 2, 3]
    _, entries, _ = SLOTS.close(Closed(rows, part, 2))
    assert SLOTS.histogram(entries).tolist() == [0, 2, 0, 0, 2]


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=9))
def test_state_survives_storage(values: list[int]) -> None:
    rows = with_state(fresh(Keys.of([])), np.array(values))
    assert is_canonical(rows.key) and set(rows.due.tolist()) == {-1}
    empty = Part(
        Keys.of([]), np.zeros(0, np.uint8), np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
    )
    back, _, state = SLOTS.close(Closed(rows, empty, 3))
    assert state[: len(values)].tolist() == values and len(back.key) == 0


def test_wrong_parameters_are_named() -> None:
    for change, name in (
        ({"thresholds": (2, 2)}, "thresholds"),
        ({"thresholds": (-1, 2)}, "thresholds"),
        ({"thresholds": (1 << 31,)}, "thresholds"),
        ({"horizon": 2}, "horizon"),
        ({"warmup": 0}, "warmup"),
        ({"length": 0}, "slot"),
        ({"bound": 0}, "bound"),
        ({"grid": Fraction(0)}, "grid"),
        ({"horizon": 1 << 41}, "horizon"),
    ):
        with pytest.raises(ParameterError, match=name):
            replace(SLOTS, **change)  # type: ignore[arg-type]
