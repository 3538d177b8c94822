"""The share of cut records that a debiased histogram states, and its cost."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.debias import Raw, put_raw, take_raw
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import KeyedNoise, zero
from hushstream.topics.cut_share import cut_share

from . import bench

T, CAP = 4, 6
FALSE_ALARM = 5.0  # standard deviations: below 10^-6
Z95 = 1.959963984540054
CODES = Keys.of_codes(np.arange(40, dtype=np.uint64))


def made(shards: int = 1, **given: Any) -> Histogram:
    settings = {"budget": 2, "adaptive_weight": 0, "debias": True, "debias_cap": CAP} | given
    setting = Setting(Fraction(4), Fraction(1, 10**6), T, shards=shards)
    mechanism = build(HistogramParameters(**settings), setting)
    assert isinstance(mechanism, Histogram)
    return mechanism


def keyed(number: int, nonce: bytes = bytes(16)) -> KeyedNoise:
    return KeyedNoise(
        b"d" * 32, charge=number.to_bytes(32), mechanism="m", config=b"", pipeline="p",
        window="w", nonces=((1, nonce),),
    )  # fmt: skip


def rows(seed: int) -> list[tuple[int, int, int]]:
    """(trigger, unit, key): some users send one record, some twenty."""
    draw = Random(seed)
    sent = [(draw.choice([1, 1, 2, 5, 20]), user) for user in range(3000)]
    events = [(draw.randint(1, T), user, draw.randrange(40)) for n, user in sent for _ in range(n)]
    return sorted(events, key=lambda one: one[0])


def judged(events: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Arrived and accepted records, one by one: Σ m² ≤ 2 over keys, and at most `CAP` counted."""
    seen: Counter[int] = Counter()
    left: dict[int, int] = {}
    used: Counter[tuple[int, int]] = Counter()
    arrived = accepted = 0
    for _, user, key in events:
        price = 2 * used[user, key] + 1
        fits = price <= left.get(user, 2)
        if fits:
            left[user] = left.get(user, 2) - price
            used[user, key] += 1
        if seen[user] < CAP:
            seen[user] += 1
            arrived += 1
            accepted += fits
    return arrived, accepted


def trace(events: list[tuple[int, int, int]]) -> Trace:
    trigger, unit, key = (np.array(column, np.intp) for column in zip(*events, strict=True))
    value, sign = np.zeros((len(events), 0), np.int64), np.ones(len(events), np.int8)
    return Trace(trigger, unit, CODES, key, value, sign)


@pytest.mark.parametrize("seed", range(3))
def test_without_noise_the_counters_are_exact(seed: int) -> None:
    events = rows(seed)
    told = [one.counted for one in run(Memory(made(), zero), trace(events))]
    exact = [judged([e for e in events if e[0] <= t]) for t in range(1, T + 1)]
    assert [(one.arrived, one.accepted) for one in told if one is not None] == exact


def test_the_interval_covers_the_exact_share_as_often_as_it_says() -> None:
    """Checked for one log under many noise keys."""
    mechanism, events = made(), rows(7)
    arrived, accepted = judged(events)
    truth, looks, covered, shares = 1 - accepted / arrived, 400, 0, []
    assert mechanism.debias is not None
    totals = np.array([arrived, 0, accepted, 0], np.int64)
    first = list(run(Memory(mechanism, keyed(0)), trace(events)))[-1].counted
    for number in range(looks):
        told = mechanism.debias.told(mechanism.debias.noisy(totals, T, keyed(number)), T)
        assert number or told == first
        spread = math.sqrt(told.arrived_variance), math.sqrt(told.accepted_variance)
        found = cut_share(told.arrived, spread[0], told.accepted, spread[1], Z95)
        covered += found.low <= truth <= found.high
        shares.append(found.share)
    reach = FALSE_ALARM * math.sqrt(looks * 0.95 * 0.05)
    assert abs(covered - 0.95 * looks) <= reach
    assert None not in shares and len(set(shares)) > looks / 2  # there is noise, but not too much


def test_no_draw_is_made_for_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share is a function of counters that were paid for, so it changes no draw."""
    seen: list[Any] = []
    plain = KeyedNoise.gauss

    def watched(self: KeyedNoise, purpose: str, key: Keys, index: Any, *rest: Any) -> Any:
        seen.append((purpose, key.tolist(), index.tolist(), repr(rest)))
        return plain(self, purpose, key, index, *rest)

    monkeypatch.setattr(KeyedNoise, "gauss", watched)
    events, drawn, values = rows(1)[:2000], [], []
    for silent in (False, True):
        mechanism = made()
        if silent:
            monkeypatch.setattr(type(mechanism.debias), "told", lambda *_: None)
        found = list(run(Memory(mechanism, keyed(1)), trace(events)))
        assert all((one.counted is None) == silent for one in found)
        drawn.append(seen[:])
        values.append([one.value.tolist() for one in found])
        seen.clear()
    assert drawn[0] == drawn[1] and values[0] == values[1]
    assert any(purpose.startswith("debias/") for purpose, *_ in drawn[0])


def test_each_shard_has_a_noise_of_its_own_and_pays_for_it() -> None:
    """Shards draw under different nonces: n looks at one count, each with n times the variance."""
    one, four = made(), made(4)
    assert one.debias is not None and four.debias is not None
    totals = np.array([900, 0, 600, 0], np.int64)
    told = [four.debias.noisy(totals, T, keyed(0, bytes([n] * 16))).tolist() for n in range(4)]
    assert len({tuple(each) for each in told}) == 4
    for before, after in zip(one.debias.processes, four.debias.processes, strict=True):
        assert float(after.variance / before.variance) == pytest.approx(4, rel=0.01)
    assert one.digests() != four.digests()
    # Without debiasing, nothing depends on the number of shards.
    plain, many = made(debias=False, debias_cap=100), made(4, debias=False, debias_cap=100)
    assert plain == many and plain.digests() == many.digests()


def test_without_counters_nothing_is_said() -> None:
    mechanism = made(debias=False)
    (*_, last) = run(Memory(mechanism, keyed(0)), trace(rows(0)[:500]))
    assert last.counted is None and not mechanism.stated("user").counted
    told = made().stated("user")
    assert told.counted and "how many records arrived" in told.in_words
    assert replace(mechanism, debias=made().debias).stated("user") == told


def test_debiasing_finds_the_rate_at_which_records_are_cut_off() -> None:
    mechanism = bench.made(4, debias=True, budget=1, adaptive_weight=0, debias_cap=4)
    rows = [(t, 100_000 * k + i, k) for k in range(2) for t in (1, 2, 3, 4) for i in range(9_000)]
    rows.sort()
    released = list(run(Memory(mechanism, bench.keyed()), bench.trace(rows, CODES[:2])))
    # Every unit sends four records of one key, of which one is accepted.
    assert released[-1].value[:, 0] == pytest.approx([36_000, 36_000], rel=0.02)
    plain = bench.made(4, budget=1, adaptive_weight=0)
    assert list(run(Memory(plain, zero), bench.trace(rows, CODES[:2])))[-1].value.max() == 9_000


@pytest.mark.parametrize("step", [1, 3, 12])
def test_no_unit_moves_the_counters_of_debiasing_by_more_than_its_cap(step: int) -> None:
    """Their noise covers `debias_cap` arrived records per unit, however the slices cut them."""
    mechanism = bench.made(4, debias=True, debias_cap=5, budget=3, adaptive_weight=0)
    units, arrived = mechanism.traits.units(2), np.zeros(2, np.int64)
    for _ in range(0, 12, step):
        sent = np.repeat([0, 1], [step, step])
        batch = Batch(
            CODES[:1], np.zeros(2 * step, np.intp), sent, np.zeros((2 * step, 0), np.int64),
            np.ones(2 * step, np.int8), np.zeros(1, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        arrived += part.totals[:2]
    assert arrived.tolist() == [10, 0]


def test_raw_counters_are_taken_apart_and_put_back() -> None:
    mechanism = bench.made(4, debias=True)
    units = mechanism.traits.units(3)
    batch = Batch(
        CODES[:2], np.array([0, 1, 1]), np.array([0, 0, 2]), np.zeros((3, 0), np.int64),
        np.ones(3, np.int8), np.zeros(2, np.int32),
    )  # fmt: skip
    units, _ = mechanism.absorb(units, batch)
    raw = take_raw(units)
    assert raw.counted.tolist() == [2, 0, 1] and len(raw.units.pair) == 3
    for one, other in zip(put_raw(raw), units, strict=True):
        np.testing.assert_array_equal(one, other)
    empty = take_raw(put_raw(Raw(raw.units, np.zeros(3, np.int64))))
    assert empty.counted.sum() == 0
