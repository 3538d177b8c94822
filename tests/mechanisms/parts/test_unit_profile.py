"""The profile of units: each unit's bucket, the sensitivity, and a single release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import I64, Batch, Units, empty_units
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import KeyedNoise, zero
from hushstream.mechanisms.parts.unit_profile import STEPS, UnitProfile
from hypothesis import given
from hypothesis import strategies as st

from ...audits.recorder import Recorder

MOST = 8
PROFILE = UnitProfile(MOST)
USERS, KEYS = 4, 3
VARIANCE = Fraction(STEPS**2 * 9)
LAST = 5
FALSE_ALARM = 5.0  # standard deviations: below 10^-6


class Event(NamedTuple):
    unit: int
    key: int
    window: int = 0
    sign: int = 1


events = st.builds(
    Event, st.integers(0, USERS - 1), st.integers(0, KEYS - 1), st.integers(0, 1),
    st.sampled_from([1, 1, 1, -1]),
)  # fmt: skip
streams = st.lists(events, max_size=60)


def batch(some: Sequence[Event], window: int) -> Batch:
    n = len(some)
    return Batch(
        Keys.of_codes(np.arange(KEYS, dtype=np.uint64)),
        np.array([one.key for one in some], np.intp), np.array([one.unit for one in some], np.intp),
        np.zeros((n, 0), np.int64), np.array([one.sign for one in some], np.int8),
        np.zeros(KEYS, np.int32), window,
    )  # fmt: skip


def run(
    slices: Sequence[Sequence[Event]], profile: UnitProfile = PROFILE
) -> tuple[Units, list[I64]]:
    """The final units, and the change by each slice; slices are cut where windows change."""
    units, sent = empty_units(USERS, 1, profile.most), []
    for some in slices:
        for window in (0, 1):
            mine = [one for one in some if one.window == window]
            units, change = profile.absorb(units, batch(mine, window))
            sent.append(change)
    return units, sent


def totals(stream: Sequence[Event], profile: UnitProfile = PROFILE) -> I64:
    ordered = sorted(stream, key=lambda one: one.window)
    return np.sum(run([ordered], profile)[1], axis=0)


def by_hand(stream: Sequence[Event]) -> Counter[tuple[int, int]]:
    """Number of units by (row, column), from the definition in the module's docstring."""
    sent: dict[int, Counter[tuple[int, int]]] = {}
    for one in sorted(stream, key=lambda one: one.window):
        mine = sent.setdefault(one.unit, Counter())
        if one.sign > 0 and sum(mine.values()) < MOST:
            mine[one.window, one.key] += 1
    found: Counter[tuple[int, int]] = Counter()
    for mine in sent.values():
        if n := sum(mine.values()):
            found[ceil(log2(n)), ceil(log2(sum(m * m for m in mine.values()) / n))] += 1
    return found


@given(streams)
def test_every_unit_lies_where_the_definition_says(stream: list[Event]) -> None:
    table = totals(stream)
    assert {(r, c): table[r * (r + 1) // 2 + c] for r in range(4) for c in range(r + 1)} == {
        (r, c): by_hand(stream)[r, c] for r in range(4) for c in range(r + 1)
    }
    assert len(table) == PROFILE.buckets == 10


@given(streams, st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_gives_the_same_units_and_totals(stream: list[Event], cuts: list[int]) -> None:
    ordered = sorted(stream, key=lambda one: one.window)
    edges = [0, *sorted(cuts), len(ordered)]
    pieces = [ordered[a:b] for a, b in pairwise(edges)]
    whole, parted = run([ordered]), run(pieces)
    assert np.array_equal(np.sum(whole[1], axis=0), np.sum(parted[1], axis=0))
    for one, other in zip(whole[0], parted[0], strict=True):
        assert np.array_equal(one, other)


# Guarantee: all records of one unit together change one bucket by one.


def loss(profile: UnitProfile, stream: Sequence[Event], unit: int) -> Fraction:
    """Σ (shift / deviation)² over all released numbers when one unit is removed."""
    without = [one for one in stream if one.unit != unit]
    shown = [
        profile.release(totals(some, profile), LAST, LAST, VARIANCE, zero)
        for some in (stream, without)
    ]
    shift = shown[0] - shown[1]
    return Fraction(int((shift * shift).sum())) / VARIANCE


@given(streams, st.integers(0, USERS - 1))
def test_one_unit_moves_one_bucket_by_one(stream: list[Event], unit: int) -> None:
    without = [one for one in stream if one.unit != unit]
    moved = totals(stream) - totals(without)
    sent = any(one.unit == unit and one.sign > 0 for one in stream)
    assert (np.abs(moved).sum(), moved.sum()) == (int(sent), int(sent))
    assert loss(PROFILE, stream, unit) <= PROFILE.cost(VARIANCE).mu2


BUSY = [Event(0, 0)] * 3 + [Event(0, 1)] * 2 + [Event(1, 2)]


class OfRecords(UnitProfile):
    """A faulty profile that counts records instead of units."""

    def _counts(self, bucket: I64) -> I64:
        many = 1 << np.repeat(np.arange(self.rows), np.arange(1, self.rows + 1))
        return super()._counts(bucket) * many


class Staying(UnitProfile):
    """A faulty profile that leaves a unit in every bucket that it passes through."""

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, I64]:
        after, _ = super().absorb(units, batch)
        return after, self._counts(self.of(after))


@pytest.mark.parametrize("wrong", [OfRecords(MOST), Staying(MOST)])
def test_the_audit_finds_a_wrong_sensitivity(wrong: UnitProfile) -> None:
    slices: list[list[Event]] = [[one] for one in BUSY]
    claim, others = wrong.cost(VARIANCE).mu2, [one for one in slices if one[0].unit]
    shifts = [np.sum(run(some, wrong)[1], axis=0) for some in (slices, others)]
    moved = (shifts[0] - shifts[1]) * STEPS
    assert Fraction(int((moved * moved).sum())) / VARIANCE > claim


def test_two_releases_would_cost_more_than_one() -> None:
    """A unit is in one bucket after each of two slices, so two releases cost more than one."""
    first, both = totals(BUSY[:2]), totals(BUSY)
    without = totals([one for one in BUSY if one.unit])
    gaps = [(first - 0) * STEPS, (both - without) * STEPS]
    measured = sum(Fraction(int((gap * gap).sum())) / VARIANCE for gap in gaps)
    assert measured > PROFILE.cost(VARIANCE).mu2


# The release


@pytest.mark.parametrize("t", [1, LAST - 1, LAST + 1])
def test_no_other_trigger_releases_it(t: int) -> None:
    with pytest.raises(ContractError, match="trigger 5 alone"):
        PROFILE.release(totals(BUSY), t, LAST, VARIANCE, zero)


def test_totals_that_are_no_numbers_of_units_are_refused() -> None:
    table = totals(BUSY)
    for wrong in (table - 1, table[1:]):
        with pytest.raises(ContractError, match="no numbers of units"):
            PROFILE.release(wrong, LAST, LAST, VARIANCE, zero)


def test_every_cell_has_one_draw_of_the_last_trigger() -> None:
    recorder = Recorder()
    PROFILE.release(totals(BUSY), LAST, LAST, VARIANCE, recorder)
    asked = list(recorder.asked)
    assert len(asked) == len(set(asked)) == PROFILE.buckets
    assert {one.purpose for one in asked} == {"profile"}


def keyed(charge: int, nonces: tuple[tuple[int, bytes], ...]) -> KeyedNoise:
    return KeyedNoise(
        b"p" * 32, charge=charge.to_bytes(32), mechanism="histogram", config=b"", pipeline="p",
        window="w", nonces=nonces,
    )  # fmt: skip


def test_a_repeated_release_is_the_same_and_another_content_has_another_noise() -> None:
    table, begin = totals(BUSY), ((1, bytes(16)),)
    again = [
        PROFILE.release(table, LAST, LAST, VARIANCE, keyed(1, begin)).tolist() for _ in range(2)
    ]
    assert again[0] == again[1]
    renewed = keyed(1, (*begin, (LAST, b"n" * 16)))
    other = PROFILE.release(table, LAST, LAST, VARIANCE, renewed).tolist()
    assert sum(a == b for a, b in zip(again[0], other, strict=True)) <= 2


def test_the_noise_has_the_variance_that_is_paid_for() -> None:
    begin = ((1, bytes(16)),)
    nothing = np.zeros(PROFILE.buckets, np.int64)
    drawn = np.concatenate([
        PROFILE.release(nothing, LAST, LAST, VARIANCE, keyed(charge, begin))
        for charge in range(300)
    ])  # fmt: skip
    ratio = float((drawn.astype(float) ** 2).mean()) / float(VARIANCE)
    assert abs(ratio - 1) < FALSE_ALARM * (2 / len(drawn)) ** 0.5
    assert PROFILE.cost(VARIANCE).mu2 == Fraction(1, 9)
    assert PROFILE.need(Fraction(1, 20)).cost(VARIANCE, 1) == PROFILE.cost(VARIANCE)


# The grid


def test_a_pattern_lies_in_its_cell() -> None:
    patterns = UnitProfile().patterns()
    profile = UnitProfile()
    squares = patterns.own**2 + patterns.records - patterns.own
    whole = np.floor(patterns.records).astype(np.int64)
    assert ((patterns.own >= 1) & (patterns.own <= patterns.records)).all()
    scaled = np.floor(squares * whole / patterns.records).astype(np.int64)
    rows = profile.place(whole, np.clip(scaled, whole, whole**2))
    row = np.repeat(np.arange(profile.rows), np.arange(1, profile.rows + 1))
    assert np.array_equal(np.searchsorted(1 << np.arange(profile.rows), whole), row)
    assert (np.abs(rows - np.arange(profile.buckets)) <= 1).all()


@pytest.mark.parametrize("most", [0, 1, 3, 100, 1 << 13])
def test_a_grid_that_is_no_power_of_two_is_refused(most: int) -> None:
    with pytest.raises(ParameterError, match="most"):
        replace(PROFILE, most=most)
