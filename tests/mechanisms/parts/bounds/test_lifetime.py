"""Purses: no stream overspends one, and the records of other units never touch it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch, Units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.lifetime import Cap
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = Keys.of([b"a", b"b", b"c"])


class Event(NamedTuple):
    """A record: its epoch, unit and key."""

    epoch: int
    unit: int
    key: int


@lru_cache
def histogram(**parameters: object) -> Histogram:
    setting = Setting(Fraction(1), Fraction(1, 10**6), 2)
    made = build(HistogramParameters(**({"adaptive_weight": 0} | parameters)), setting)  # type: ignore[arg-type]
    assert isinstance(made, Histogram)
    return made


class Shard:
    """Purses and units of each epoch, as a bound shard keeps them."""

    def __init__(self, mechanism: Histogram, cap: Cap, units: int) -> None:
        self.mechanism, self.cap, self.units = mechanism, cap, units
        self.purse: dict[int, np.ndarray] = {}
        self.epochs: dict[int, Units] = {}
        self.counted: Counter[int] = Counter()  # arrivals, by epoch

    def absorb(self, events: list[Event], known: tuple[int, ...] = ()) -> Counter[tuple[int, int]]:
        """Absorb one slice of one epoch; return the accepted records by epoch and key."""
        (epoch,) = {one.epoch for one in events}
        period = self.cap.period(epoch)
        purse = self.purse.get(period, np.full(self.units, self.cap.most, np.int64))
        units = self.epochs.get(epoch, self.mechanism.traits.units(self.units))
        n = len(events)
        batch = Batch(
            KEYS,
            np.array([one.key for one in events], np.intp),
            np.array([one.unit for one in events], np.intp),
            np.empty((n, 0), np.int64),
            np.ones(n, np.int8),
            np.array([int(key in known) for key in range(3)], np.int32),
        )
        done = self.cap.absorb(self.mechanism, purse, units, batch)
        self.purse[period], self.epochs[epoch] = done.purse, done.units
        if len(done.part.totals):
            self.counted[epoch] += int(done.part.totals[:2].sum())
        found: Counter[tuple[int, int]] = Counter()
        for key, sums in zip(done.part.key.tolist(), done.part.sums, strict=True):
            found[epoch, KEYS.tolist().index(key)] += int(sums[0])
        return found

    def run(self, events: list[Event], cuts: set[int] = frozenset()) -> Counter[tuple[int, int]]:  # type: ignore[assignment]
        """Absorb a log in slices that end where epochs change and at ``cuts``."""
        found: Counter[tuple[int, int]] = Counter()
        begun = 0
        for place in range(1, len(events) + 1):
            here = place == len(events) or place in cuts
            if here or events[place].epoch != events[begun].epoch:
                found += self.absorb(events[begun:place])
                begun = place
        return found


def spent(accepted: Counter[tuple[int, int]]) -> dict[int, int]:
    """Σ m² for each epoch."""
    found: dict[int, int] = {}
    for (epoch, _), m in accepted.items():
        found[epoch] = found.get(epoch, 0) + m * m
    return found


@pytest.mark.spread(3)
@pytest.mark.parametrize("most", range(1, 9))
def test_no_stream_of_four_records_spends_more_in_two_epochs_and_two_keys(most: int) -> None:
    """Every stream, cut in several ways, against a reference that states the rule literally."""
    mechanism = histogram(budget=5)
    seen = set()
    for places in product(product(range(2), range(2)), repeat=4):
        events = [Event(epoch, 0, key) for epoch, key in places]
        purse, left, used = most, [5, 5], Counter[tuple[int, int]]()
        for one in events:
            price = 2 * used[one.epoch, one.key] + 1
            if price <= min(left[one.epoch], purse):
                used[one.epoch, one.key] += 1
                left[one.epoch] -= price
                purse -= price
        for cuts in (set(), {1, 2, 3}, {2}):
            shard = Shard(mechanism, Cap(most), 1)
            accepted = shard.run(events, cuts)
            assert +accepted == +used
            by_epoch = spent(accepted)
            assert sum(by_epoch.values()) == most - int(shard.purse[0][0]) <= most
            assert max(by_epoch.values(), default=0) <= 5
            assert all(int(shard.epochs[e].left[0]) == 5 - s for e, s in by_epoch.items())
        seen.add(sum(spent(used).values()))
    assert max(seen) == {7: 6}.get(most, most)  # prices of 1 and 3 cannot add up to 7


events_of = st.lists(
    st.builds(Event, st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), max_size=60
)


@settings(deadline=None)
@given(events_of, st.integers(1, 30), st.sets(st.integers(1, 59)), st.sampled_from([None, 2, 3]))
def test_a_period_never_costs_more_than_its_purse(
    events: list[Event], most: int, cuts: set[int], period: int | None
) -> None:
    cap = Cap(most, epochs=period)
    for unit in range(4):
        mine = [one._replace(unit=0) for one in events if one.unit == unit]
        accepted = Shard(histogram(budget=7), cap, 1).run(mine)
        periods = Counter[int]()
        for epoch, cost in spent(accepted).items():
            periods[cap.period(epoch)] += cost
            assert cost <= 7
        assert max(periods.values(), default=0) <= most
    together = Shard(histogram(budget=7), cap, 4)
    apart = Counter[tuple[int, int]]()
    for unit in range(4):  # neither other units' records nor cuts change anything
        apart += Shard(histogram(budget=7), cap, 4).run([one for one in events if one.unit == unit])
    assert together.run(events, cuts) == apart


@settings(deadline=None)
@given(events_of, st.integers(1, 40), st.integers(1, 6), st.sets(st.integers(1, 59)))
def test_an_epoch_in_which_an_arrival_is_counted_is_paid_for(
    events: list[Event], most: int, opening: int, cuts: set[int]
) -> None:
    mechanism = histogram(budget=7, debias=True, debias_cap=4)
    events = [one._replace(unit=0) for one in events]
    shard = Shard(mechanism, Cap(most, opening), 1)
    accepted = shard.run(events, cuts)
    costs = spent(accepted)
    whole = sum(costs.values()) + opening * len([e for e, n in shard.counted.items() if n])
    assert whole == most - int(shard.purse.get(0, np.array([most]))[0]) <= most
    for epoch in costs:
        assert shard.counted[epoch] > 0
    other = Shard(mechanism, Cap(most, opening), 1)
    assert other.run(events) == accepted and other.counted == shard.counted


def shift2(one: Counter[tuple[int, int]], other: Counter[tuple[int, int]]) -> int:
    return sum((one[place] - other[place]) ** 2 for place in one | other)


def test_an_epoch_that_a_unit_leaves_out_costs_more_than_its_own_bound_under_a_cap() -> None:
    events = [Event(epoch, 0, key) for epoch in (0, 1) for key in (0, 0, 1)]
    mechanism, later = histogram(budget=5), [one for one in events if one.epoch]
    for most, cost in ((5, 10), (10, 5)):  # used up by the first epoch, and by both
        both = Shard(mechanism, Cap(most), 1).run(events)
        assert shift2(both, Shard(mechanism, Cap(most), 1).run(later)) == cost


@settings(deadline=None)
@given(events_of, st.integers(1, 30), st.integers(0, 5))
def test_an_epoch_that_a_unit_leaves_out_costs_at_most_the_cap_twice(
    events: list[Event], most: int, left_out: int
) -> None:
    mechanism, events = histogram(budget=7), [one._replace(unit=0) for one in events]
    rest = [one for one in events if one.epoch != left_out]
    accepted, other = (Shard(mechanism, Cap(most), 1).run(each) for each in (events, rest))
    assert shift2(accepted, other) <= 2 * most


def test_with_a_purse_that_is_never_used_up_nothing_changes() -> None:
    rng = np.random.default_rng(3)
    mechanism = histogram(budget=9, adaptive_weight=0.5)
    shard = Shard(mechanism, Cap(1 << 30), 5)
    units = mechanism.traits.units(5)
    for _ in range(20):
        events = [Event(0, int(u), int(k)) for u, k in rng.integers(0, (5, 3), (9, 2))]
        accepted = shard.absorb(events, (1,))
        batch = Batch(
            KEYS,
            np.array([one.key for one in events], np.intp),
            np.array([one.unit for one in events], np.intp),
            np.empty((9, 0), np.int64),
            np.ones(9, np.int8),
            np.array([0, 1, 0], np.int32),
        )
        units, part = mechanism.absorb(units, batch)
        assert sum(accepted.values()) == int(part.sums[:, 0].sum())
        for mine, wanted in zip(shard.epochs[0], units, strict=True):
            np.testing.assert_array_equal(mine, wanted)


def test_a_period_begins_anew_and_only_then() -> None:
    shard = Shard(histogram(budget=2), Cap(3, epochs=2), 1)
    counts = [
        sum(shard.run([Event(epoch, 0, 0), Event(epoch, 0, 1)]).values()) for epoch in range(6)
    ]
    assert counts == [2, 1, 2, 1, 2, 1]
