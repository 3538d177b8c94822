"""Two-neighbour audits of the whole histogram: with and without one privacy unit.

Every key is one trial: noise is independent per key, so a window over many keys repeats an
experiment with one key as often. All noise is keyed, hence the results are fixed. The claim is
compared with a lower bound of ε at confidence 99.9 % (Clopper–Pearson), and each published flaw,
put back, must exceed the claim.

Covers: mechanisms/factorization/prefix_noise.py, mechanisms/histogram/rounds/mechanism.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import hushstream.mechanisms.histogram.rounds.mechanism as rounds_module
import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch, Closed, Part
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization.prefix_noise import STEPS
from hushstream.mechanisms.histogram.calibration.bound import sensitivity2
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.parts.thresholds import key_selection as selection
from hushstream.mechanisms.tables import RowTable, UnitTable
from scipy.stats import beta

TRIALS = 20_000
T = 4
EPSILON, DELTA = Fraction(1), Fraction(1, 25)
CODES = np.arange(TRIALS, dtype=np.uint64)
Arrivals = Callable[[int, np.ndarray], int]  # (trigger, statuses) to records per key


def at_least(hits: int) -> float:
    return float(beta.ppf(0.001, hits, TRIALS - hits + 1)) if hits else 0.0


def at_most(hits: int) -> float:
    return float(beta.ppf(0.999, hits + 1, TRIALS - hits)) if hits < TRIALS else 1.0


def epsilon_bound(one: np.ndarray, other: np.ndarray, delta: float = float(DELTA)) -> float:
    """A lower bound of ε from an event that happened in (TRIALS,) runs of two worlds."""
    gap = at_least(int(one.sum())) - delta
    return math.log(gap / at_most(int(other.sum()))) if gap > 0 else -math.inf


def made(parameters: HistogramParameters, public: bool = False) -> Histogram:
    keys = tuple(Keys.of_codes(CODES).tolist()) if public else None
    mechanism = build(parameters, Setting(EPSILON, DELTA, T, keys=keys))
    assert isinstance(mechanism, Histogram)
    return mechanism


class World:
    """One window over TRIALS keys; what others send is written into the parts directly."""

    def __init__(self, mechanism: Histogram, name: str, literal: bool = False) -> None:
        self.mechanism, self.literal = mechanism, literal
        self.noise = KeyedNoise(
            b"a" * 32,
            charge=bytes(32),
            mechanism="audit",
            config=b"",
            pipeline="p",
            window=name,
            nonces=STEADY,
        )
        self.rows = RowTable(mechanism.traits)
        if mechanism.public is not None:
            fresh = mechanism.traits.rows(Keys.of_codes(CODES))
            self.rows.store(fresh)
        self.first = np.zeros(TRIALS, np.int32)
        self.value = np.zeros((T + 1, TRIALS))

    def step(self, t: int, others: int, unit: int, lane: np.ndarray) -> None:
        """``unit`` accepted records of the audited unit and ``others`` of the crowd, per key."""
        rows = np.full(TRIALS, others + unit)
        live = np.flatnonzero(rows > 0)
        sums = rows[live, None].astype(np.int64)
        part = Part(Keys.of_codes(CODES[live]), lane[live], sums, np.zeros(0, np.int64))
        stored, out = self.mechanism.release(Closed(self.rows.load(part, t), part, t), self.noise)
        if self.literal:  # the published loop: only keys of the micro-batch are ever tested
            stored = stored._replace(due=np.minimum(stored.due, 0))
        self.rows.store(stored)
        codes = out.key.codes().astype(np.int64)
        self.first[codes] = out.status
        self.value[t, codes] = out.value[:, 0]


def play(world: World, others: list[int], unit: list[int]) -> World:
    for t in range(1, T + 1):
        two = world.mechanism.traits.feedback and world.mechanism.traits.lanes > 1
        lane = ((world.first > 0) & (world.first < t) & two).astype(np.uint8)
        world.step(t, others[t - 1], unit[t - 1], lane)
    return world


def accepted(mechanism: Histogram, wanted: list[int]) -> list[int]:
    """What the contribution bound lets one unit add to one hidden key, per trigger."""
    units, out = mechanism.traits.units(1), []
    for n in wanted:
        batch = Batch(
            Keys.of_codes(CODES[:1]), np.zeros(n, np.intp), np.zeros(n, np.intp),
            np.zeros((n, 0), np.int64), np.ones(n, np.int8), np.zeros(1, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        out.append(int(part.sums[:, 0].sum()))
    return out


def projection(mechanism: Histogram, world: World, when: int) -> np.ndarray:
    """(TRIALS,) the most telling statistic: Cx + z along the column that the unit moved."""
    factor = mechanism.quantities[0].lanes[0].factor
    C = factor.C.astype(float) * 2.0**-factor.bits
    private = C @ np.diff(world.value, axis=0)
    return C[:, when] @ private / np.linalg.norm(C[:, when])


def value_bound(mechanism: Histogram) -> float:
    """ε of released values: a unit that spends all it has on one public key at one trigger."""
    factor = mechanism.quantities[0].lanes[0].factor
    when = int((factor.C.astype(float) ** 2).sum(axis=0).argmax())
    wanted = [0] * T
    wanted[when] = 500
    spent = accepted(mechanism, wanted)
    assert spent[when] ** 2 == sensitivity2(mechanism.bound)  # nothing is left unspent
    present = projection(mechanism, play(World(mechanism, "in"), [0] * T, spent), when)
    absent = projection(mechanism, play(World(mechanism, "out"), [0] * T, [0] * T), when)
    calibration = projection(mechanism, play(World(mechanism, "cut"), [0] * T, spent), when)
    cuts = np.quantile(calibration, np.linspace(0.3, 0.98, 18))  # chosen on runs of their own
    best = max(cuts, key=lambda cut: epsilon_bound(calibration > cut, absent > cut))
    return epsilon_bound(present > best, absent > best)


def quieter(mechanism: Histogram, factor: Fraction) -> Histogram:
    """The same with the noise's standard deviation times ``factor``."""
    quantities = tuple(
        one._replace(lanes=tuple(replace(p, variance=p.variance * factor**2) for p in one.lanes))
        for one in mechanism.quantities
    )
    return replace(mechanism, quantities=quantities)


@pytest.mark.parametrize("factorization,least", [("terminal", 0.75), ("honaker", 0.5)])
def test_values_stay_below_the_claim_and_close_to_it(factorization: str, least: float) -> None:
    mechanism = made(HistogramParameters(budget=100, factorization=factorization), public=True)
    bound = value_bound(mechanism)
    assert least * float(EPSILON) < bound < float(EPSILON)


def test_two_thirds_of_the_noise_is_caught() -> None:
    mechanism = made(HistogramParameters(budget=100), public=True)
    assert value_bound(quieter(mechanism, Fraction(2, 3))) > 1.3 * float(EPSILON)


@pytest.mark.parametrize("spread", [[9, 0, 0, 0], [0, 0, 0, 9], [3, 2, 2, 2]])
def test_a_key_of_one_unit_alone_appears_no_more_often_than_delta(spread: list[int]) -> None:
    mechanism = made(HistogramParameters(budget=9, adaptive_weight=0))
    spent = accepted(mechanism, spread)
    assert sum(spent) == 3
    world = play(World(mechanism, f"alone{spread}"), [0] * T, spent)
    appeared = int((world.first > 0).sum())
    assert at_least(appeared) <= float(DELTA) / 2
    assert spread[0] == 0 or at_most(appeared) > 0.25 * float(DELTA) / 2  # it is not wasteful


def test_a_threshold_without_the_union_over_triggers_is_caught() -> None:
    mechanism = made(HistogramParameters(budget=1))
    process = mechanism.quantities[0].lanes[0]
    marginal = selection.thresholds(
        [DELTA / 2] * T, selection.Exposure(Fraction(1), 1), process.quantile, steps=STEPS
    )
    broken = replace(mechanism, threshold=tuple(marginal.tolist()))
    world = play(World(broken, "marginal"), [0] * T, [1, 0, 0, 0])
    assert at_least(int((world.first > 0).sum())) > 1.3 * float(DELTA) / 2


def arrival_bound(literal: bool) -> float:
    """ε of "the key appears at trigger 3", where only the unit sends a record then."""
    mechanism = made(HistogramParameters(budget=1))
    crowd = mechanism.threshold[2] // STEPS - 1
    present = play(World(mechanism, "in", literal), [crowd, 0, 0, 0], [0, 0, 1, 0])
    absent = play(World(mechanism, "out", literal), [crowd, 0, 0, 0], [0, 0, 0, 0])
    return epsilon_bound(present.first == 3, absent.first == 3)


def test_testing_only_keys_of_the_micro_batch_leaks_arrivals() -> None:
    assert arrival_bound(literal=False) < float(EPSILON)
    assert arrival_bound(literal=True) > 2 * float(EPSILON)


@pytest.mark.parametrize("when", [0, 1])
def test_an_adaptive_unit_gains_nothing_from_what_was_released(when: int) -> None:
    """It waits for its key to become public and then spends all that its bound leaves."""
    mechanism = made(HistogramParameters(budget=25, adaptive_weight=0.5, delay=0))
    crowd = [3 * mechanism.threshold[0] // STEPS, 0, 0, 0]
    hidden = accepted(mechanism, [2, 0, 0, 0])[0] if when else 0
    late = math.isqrt((25 - hidden**2) * 4)  # w²·m² ≤ what is left
    spent = [hidden, late, 0, 0]
    present = play(World(mechanism, "in"), crowd, spent)
    absent = play(World(mechanism, "out"), crowd, [0] * T)
    assert (present.first == 1).mean() > 0.99
    gap = present.value[T] - absent.value[T].mean()
    cut = float(np.quantile(gap, 0.6))
    bound = epsilon_bound(gap > cut, absent.value[T] - absent.value[T].mean() > cut)
    assert 0.1 < bound < float(EPSILON)


def moved_units(monkeypatch: pytest.MonkeyPatch | None) -> int:
    """By how much one unit that is active at every trigger moves N of one round."""
    setting = Setting(EPSILON, DELTA, T)
    mechanism = build(HistogramParameters(selection="rounds", budget=T), setting)
    assert isinstance(mechanism, Rounds)
    if monkeypatch is not None:
        whole = rounds_module._newly_counted
        monkeypatch.setattr(
            rounds_module, "_newly_counted",
            lambda slot, status, last: whole(slot, status, np.zeros_like(last)),
        )  # fmt: skip
    table, moved = UnitTable(mechanism.traits, 1), 0
    for _ in range(T):
        batch = Batch(
            Keys.of_codes(CODES[:1]), np.zeros(3, np.intp), np.zeros(3, np.intp),
            np.zeros((3, 0), np.int64), np.ones(3, np.int8), np.zeros(1, np.int32),
        )  # fmt: skip
        ids = np.zeros(1, np.int64)
        units, part = mechanism.absorb(table.load(ids), batch)
        table.store(ids, units)
        moved += int(part.sums[part.lane > 0, 0].sum())
    return moved


def test_a_unit_counts_once_per_round_and_counting_per_trigger_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert moved_units(None) == 1
    assert moved_units(monkeypatch) > 1
