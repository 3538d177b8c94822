"""Audits along the likelihood ratio of everything that is released, in both directions.

Each audit runs a mechanism with keyed noise on two neighbours, the dearest that its stated bound
allows, and proves a lower bound of ε. It may not exceed what was asked for; with a mistake put
back, it must.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.parts.thresholds import key_selection as selection

from .cost_histogram import (
    ALWAYS,
    STEPS,
    Record,
    Stated,
    by_key,
    crowd_of,
    extremes,
    look,
    names,
    probed,
)
from .likelihood import at_least, keyed, proven, statistic
from .mutants import broken
from .recorder import Recorder
from .test_cost import HISTOGRAMS, MISTAKES

DELTA = Fraction(1, 100)  # large enough that a few thousand runs meet it
COLUMNS = (("fare", -20, 180), ("tip", 0, 5))


def histogram(
    epsilon: Fraction, horizon: int, columns: int = 0, public: bool = False, **given: Any
) -> Histogram | Rounds:
    setting = Setting(
        epsilon, DELTA, horizon, columns=COLUMNS[:columns], grids=(Fraction(1),) * columns,
        keys=(b"k",) if public else None, count=bool(given.pop("count", True)),
    )  # fmt: skip
    return build(HistogramParameters(**given), setting)


def runs(
    mechanism: Histogram | Rounds, crowd: list[Record], unit: list[Record], n: int, name: str
) -> Any:
    """(n, numbers) releases of as many keys, each with the same records and noise of its own."""
    return by_key(look(mechanism, [[*crowd, *unit]] * n, keyed(name)), n)


def values_bound(mechanism: Histogram | Rounds, late: bool, n: int = 3000) -> float:
    """ε proved by all triggers and columns of one key in which a unit spends all it has."""
    stated = Stated(mechanism.bounds("u"))
    T, zero = mechanism.horizon, (0,) * mechanism.traits.columns
    if isinstance(mechanism, Rounds):
        shown: Histogram | Rounds = replace(mechanism, threshold=(ALWAYS,) * T, min_units=1)
        crowd = [Record(t, zero) for t in range(1, T + 1)]
        first = 1
    else:
        bar = (ALWAYS,) * T if mechanism.threshold else ()
        shown = replace(mechanism, threshold=bar, show="values")
        crowd, first = crowd_of(mechanism), mechanism.delay + 2 if late else 1
    last = T if late or isinstance(mechanism, Rounds) or mechanism.public is not None else 1
    single = [Record(t, v) for t in range(first, last + 1) for v in extremes(mechanism)]
    linear, shifts = probed(shown, crowd, single, "count|sum")
    found = (linear.gaussian(shifts) ** 2).sum(axis=1)
    place = int(np.argmax(found))
    many = math.isqrt(int(stated.budget / stated.price)) if late else stated.in_key
    base = by_key(look(shown, [crowd], Recorder()), 1)[0]
    present = runs(shown, crowd, [single[place]] * many, n, "present") - base
    absent = runs(shown, crowd, [], n, "absent") - base
    shift = many * shifts[place]
    return proven(statistic(linear, shift, present), statistic(linear, shift, absent), float(DELTA))


SETTINGS = [("1/2", 1), ("1", 1), ("4", 1), ("1/2", 8), ("1", 8), ("4", 8), ("4", 24)]


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("epsilon", "horizon", "late"),
    [(*one, False) for one in SETTINGS] + [(*one, True) for one in SETTINGS if one[1] > 1],
)
def test_a_default_histogram_keeps_its_promise(epsilon: str, horizon: int, late: bool) -> None:
    """A unit that spends all it has on one key, before or after the key is released."""
    bound = values_bound(histogram(Fraction(epsilon), horizon), late)
    assert (0.5 if epsilon == "4" else -1) < bound <= Fraction(epsilon)


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    "given", [{"public": True, "columns": 2}, {"columns": 1}, {"selection": "rounds"}], ids=str
)
def test_sums_and_rounds_keep_their_promise(given: dict[str, Any]) -> None:
    assert 0.4 < values_bound(histogram(Fraction(4), 8, **given), late=False) <= 4


FATAL = [
    ("V as noisy as S", True),
    ("V bare at one trigger", True),
    ("rounds release for C records, not C squared", False),
    ("sums as noisy as counts", False),
]


@pytest.mark.spread(2)
@pytest.mark.parametrize(("mistake", "late"), FATAL)
def test_a_mistake_breaks_the_promise(
    mistake: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, owner, function, old, new = MISTAKES[mistake]
    given = {"horizon": 5} | HISTOGRAMS[name] | ({"budget": 32} if name == "rounds" else {})
    broken(monkeypatch, owner, function, old, new)
    assert values_bound(histogram(Fraction(1), **given), late) > 1


# Keys


def appeared(mechanism: Histogram | Rounds, worlds: list[list[Record]], n: int, name: str) -> Any:
    """(n, keys) whether each key of a unit ever appeared, in n runs of the same worlds."""
    view = look(mechanism, worlds * n, keyed(name))
    shown = {key for _, key, column in view if column == "status"}
    hits = [key in shown for key in names(n * len(worlds)).tolist()]
    return np.array(hits).reshape(n, len(worlds))


LIBERAL = Fraction(1, 25)  # a δ that a thousand runs can see


def keys_of(horizon: int, **given: Any) -> Histogram:
    setting = Setting(Fraction(1), LIBERAL, horizon)
    mechanism = build(HistogramParameters(**given), setting)
    assert isinstance(mechanism, Histogram)
    return mechanism


def alone(mechanism: Histogram, when: int) -> float:
    """Lower bound of the probability that any key appears which one unit alone has touched."""
    most = mechanism.bounds("u")["most_records_per_key"]
    rest = int(mechanism.bounds("u")["budget"]) - most**2
    worlds = [[Record(when, ())] * most, *[[Record(when, ())]] * rest]
    hits = appeared(mechanism, worlds, 20_000 // len(worlds), "alone").any(axis=1)
    return low(hits)


def low(hits: Any) -> float:
    return at_least(int(hits.sum()), len(hits))


@pytest.mark.parametrize("horizon", [1, 8, 24])
@pytest.mark.parametrize("last", [False, True])
def test_keys_of_one_unit_alone_stay_hidden(horizon: int, last: bool) -> None:
    found = alone(keys_of(horizon), horizon if last else 1)
    assert found <= LIBERAL / 2, "half of δ pays for keys"


@pytest.mark.parametrize("horizon", [1, 8])
def test_a_gate_that_deletions_close_decides_nothing(horizon: int) -> None:
    """Others' records alone open the gate; the unit's deletions shut it: nothing shows then."""
    mechanism = keys_of(horizon, adaptive_weight=0)
    most = mechanism.bounds("u")["most_records_per_key"]
    crowd, unit = [Record(1, ())] * most, [Record(1, (), -1)] * most
    with_unit = appeared(mechanism, [[*crowd, *unit]], 20_000, "closed")
    without = appeared(mechanism, [crowd], 20_000, "open")
    assert not with_unit.any()
    assert 0 < low(without) <= LIBERAL / 2


def test_a_threshold_without_the_records_of_the_unit_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = "m + quantile(t, share * m * m / exposure.sensitivity2)"
    broken(monkeypatch, selection, "thresholds", old, "quantile(t, share)")
    assert alone(keys_of(1, budget=9, adaptive_weight=0), 1) > LIBERAL


def test_a_threshold_without_the_least_number_of_users_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nine users do not open the gate, the unit is the tenth."""
    broken(monkeypatch, selection, "thresholds", "(worst + min_units - 1)", "worst")
    mechanism = keys_of(1, min_users=10, budget=1)
    hits = appeared(mechanism, [[Record(1, ())] * 10], 4000, "tenth")[:, 0]
    assert not appeared(mechanism, [[Record(1, ())] * 9], 4000, "nine").any()
    assert low(hits) > LIBERAL


def rounds_bound(mechanism: Rounds, n: int = 200) -> float:
    """ε proved by how many keys appear, of as many as the unit counts in; others meet the bar."""
    C, crowd = mechanism.bounds("u")["budget"], [Record(1, ())] * 4
    near = replace(mechanism, threshold=(4 * STEPS,) * mechanism.horizon)
    present = appeared(near, [[*crowd, Record(1, ())]] * C, n, "present").sum(axis=1)
    absent = appeared(near, [crowd] * C, n, "absent").sum(axis=1)
    return proven(present, absent, float(DELTA))


@pytest.mark.thorough
def test_rounds_choose_keys_as_promised_and_a_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A unit with one record in each of 200 keys that are about to be released."""
    sound = histogram(Fraction(1), 1, selection="rounds", budget=200)
    assert isinstance(sound, Rounds)
    assert rounds_bound(sound) <= 1
    _, owner, function, old, new = MISTAKES["rounds select for one record"]
    broken(monkeypatch, owner, function, old, new)
    wrong = histogram(Fraction(1), 1, selection="rounds", budget=200)
    assert isinstance(wrong, Rounds)
    assert rounds_bound(wrong) > 1
