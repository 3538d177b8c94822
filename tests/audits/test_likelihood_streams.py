"""Audits along the likelihood ratio for the mechanisms of spatial data and of values.

As in `test_likelihood`: real releases under keyed noise, all triggers and columns together, two
neighbours in both directions, and mistakes that must show. A whole window is one run where rows
depend on each other. So a large ε takes many of them: some hundred could exceed 2 at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hushstream.client.survey import RANGE
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.pak import settings as pak_settings
from hushstream.mechanisms.pak.counter import TreePrefix
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, InfiniteTree
from hushstream.mechanisms.phdstream.node_counters import BlockCounter, TreeCounter
from hushstream.mechanisms.privhp.noise import TreeNoise
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.tops import settings as tops_settings

from .cost_spatial import UNIT, events, probe_counts, probe_sums, seen_counts, seen_sums
from .cost_values import Value, choosing, look_of, stream
from .likelihood import keyed, proven, statistic, strongest
from .loss import Look, Probe
from .mutants import broken
from .recorder import View

NONE = Fraction(1, 10**9)  # δ of mechanisms whose noise is pure
long = partial(pytest.param, marks=pytest.mark.thorough)
LATER = "as later"  # a start of PHDStream at which its own counter counts


# PHDStream: every leaf is one run, since the counters of leaves do not meet


def phdstream(epsilon: str, horizon: int, depth: int, **given: Any) -> Any:
    entry = find("phdstream")
    parameters = entry.parameters(domain=Domain.unit(1, depth), floor=depth, **given)
    return entry.build(parameters, Setting(Fraction(epsilon), Fraction(1, 100), horizon))


def leaves_bound(epsilon: str, horizon: int, depth: int = 11, **given: Any) -> float:
    """ε proved by the outputs of a leaf at all triggers, where a unit spends all that it has."""
    small, large = (phdstream(epsilon, horizon, d, **given) for d in (0, depth))
    probe, many = probe_counts(small), small.bounds("u")["budget"]
    unit = [(1, UNIT + number, 0, 1) for number in range(many)]
    shift = probe.shift(events(small, unit))
    n = 1 << depth
    everywhere = [(1, UNIT + many * cell + i, cell, 1) for cell in range(n) for i in range(many)]
    seen = []
    for name, some in (("present", everywhere), ("absent", [])):
        view = seen_counts(large, events(large, some), keyed(name))
        seen.append(np.array(list(view.values())).reshape(horizon, n).T)
    present, absent = (statistic(probe.linear, shift, one) for one in seen)
    delta = 0.01 if large.cost().mu2 else 0.0
    assert strongest(n, delta) > Fraction(epsilon)
    return proven(present, absent, delta)


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("epsilon", "horizon", "given"),
    [
        ("1/2", 8, {}), ("1", 1, {}), ("1", 24, {}), ("4", 8, {}),
        ("1", 8, {"counter": "tree", "start": LATER}),
        ("4", 8, {"counter": "block", "start": LATER}),
        ("4", 8, {"counter": "matrix", "bound": 2}),
    ],
    ids=str,
)  # fmt: skip
def test_phdstream_keeps_its_promise(epsilon: str, horizon: int, given: dict[str, Any]) -> None:
    bound = leaves_bound(epsilon, horizon, **given)
    assert (0.4 if epsilon == "4" else -1) < bound <= Fraction(epsilon)


def test_mistakes_of_phdstream_break_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        broken(patch, TreeCounter, "levels", "self.horizon.bit_length()", "1")
        assert leaves_bound("1", 24, counter="tree", start=LATER) > 1
    broken(monkeypatch, BlockCounter, "scale", "2 / self.epsilon", "1 / (4 * self.epsilon)")
    assert leaves_bound("1", 8, counter="block", start=LATER) > 1


# PrivHP, PAK, ToPS: a run is a window


def runs(look: Look, trace: Any, n: int, name: str) -> np.ndarray:
    """(n, numbers) what is seen in as many windows."""
    views: list[View] = [look(trace, keyed(f"{name}{i}")) for i in range(n)]  # type: ignore[arg-type]
    assert all(view.keys() == views[0].keys() for view in views)
    return np.array([list(view.values()) for view in views])


def bound_of(
    probe: Probe, look: Look, crowd: Any, present: Any, n: int, delta: float = 0.0
) -> float:
    first = runs(look, present, n, "present") - probe.base
    second = runs(look, crowd, n, "absent") - probe.base
    shift = probe.shift(present)
    one, other = (statistic(probe.linear, shift, seen) for seen in (first, second))
    return proven(one, other, delta)


def sums_bound(epsilon: str, horizon: int, n: int = 200, **given: Any) -> float:
    """ε proved by all sums of all levels and triggers, before a tree is grown from them."""
    entry = find("privhp")
    parameters = entry.parameters(domain=Domain.unit(1, 2), k=2, width=4, **given)
    mechanism = entry.build(parameters, Setting(Fraction(epsilon), Fraction(0), horizon))
    many = mechanism.bounds("u")["budget"]
    present = events(mechanism, [(1, UNIT + number, 0, 1) for number in range(many)])

    def look(trace: Any, noise: Any) -> View:
        return seen_sums(mechanism, trace, noise)

    assert strongest(n) > Fraction(epsilon)
    return bound_of(probe_sums(mechanism), look, events(mechanism, []), present, n)


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    ("epsilon", "horizon", "given"),
    [
        ("1/2", 1, {}), ("1", 1, {}), ("2", 1, {}), long("1/2", 4, {}), ("1", 4, {}), ("2", 2, {}),
        ("2", 1, {"bound": 3}), long("4", 1, {"n": 1400}),
    ],
    ids=str,
)  # fmt: skip
def test_privhp_keeps_its_promise(epsilon: str, horizon: int, given: dict[str, Any]) -> None:
    assert sums_bound(epsilon, horizon, **given) <= Fraction(epsilon)


def test_a_mistake_of_privhp_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve records of a unit for the price of one."""
    broken(monkeypatch, TreeNoise, "calibrated", "* bound / share", "/ share")
    assert sums_bound("1", 1, bound=12) > 1


def stream_bound(kind: str, epsilon: str, horizon: int, n: int = 160, **given: Any) -> float:
    """ε proved by all sums and prefix sums after the warm-up, at the largest threshold."""
    module = pak_settings if kind == "pak" else tops_settings
    delta = Fraction(1, 100) if given.get("counter") == "matrix" else NONE
    setting = Setting(
        Fraction(epsilon), delta, horizon, columns=(("v", 0, 1 << 10),), grids=(Fraction(1),)
    )
    mechanism = module.build(find(kind).parameters(resolution=1, expected=3, **given), setting)
    top = len(mechanism.slots.thresholds) - 1
    # A warm-up of large values: the threshold is the largest one, but for a chance below e^-20.
    crowd = [Value(1, 1 << 10)] * 100
    unit = [Value(mechanism.slots.warmup + 1, 1 << 10)] * mechanism.bounds("u")["budget"]
    probe = Probe(
        look_of(mechanism), stream(mechanism, crowd), choosing(top),
        lambda one: one.purpose != "threshold", rounding=4.0,
    )  # fmt: skip
    both = stream(mechanism, crowd), stream(mechanism, [*crowd, *unit])
    spent = float(delta) if delta != NONE else 0.0
    assert strongest(n, spent) > Fraction(epsilon)
    return bound_of(probe, look_of(mechanism), *both, n, spent)


@pytest.mark.spread(9)
@pytest.mark.parametrize(
    ("kind", "epsilon", "horizon", "given"),
    [
        ("pak", "1/2", 4, {}), ("pak", "1", 4, {}), long("pak", "3/2", 8, {"counter": "tree"}),
        long("pak", "3/2", 4, {"counter": "matrix"}), long("pak", "1", 8, {"counter": "hierarchy"}),
        ("pak", "1", 4, {"counter": "tree", "bound": 3}),
        ("tops", "1/2", 4, {}), ("tops", "1", 4, {}), long("tops", "3/2", 8, {"fanout": 2}),
        ("tops", "3/2", 4, {"fanout": 2, "stream": "infinite", "bound": 2}),
        long("tops", "1", 8, {"smoother": "mean"}), long("tops", "1", 24, {"n": 100}),
        long("pak", "4", 4, {"n": 1400}), long("tops", "4", 4, {"n": 1400}),
    ],
    ids=str,
)  # fmt: skip
def test_streams_of_values_keep_their_promise(
    kind: str, epsilon: str, horizon: int, given: dict[str, Any]
) -> None:
    assert stream_bound(kind, epsilon, horizon, **given) <= Fraction(epsilon)


BREAKS: list[tuple[str, dict[str, Any], Any, str, str]] = [
    ("pak", {"counter": "tree", "threshold": "noisy-max"}, TreePrefix, "theta * tree", "tree"),
    ("tops", {"fanout": 2, "height": 2, "skip": 0}, Chunks, "theta * self", "self"),
    (
        "tops",
        {"stream": "infinite", "fanout": 2, "skip": 0},
        InfiniteTree,
        "theta * level",
        "level",
    ),
]


@pytest.mark.spread(3)
@pytest.mark.parametrize("place", range(len(BREAKS)))
def test_a_mistake_breaks_the_promise(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that does not grow with the threshold."""
    kind, given, owner, old, new = BREAKS[place]
    broken(monkeypatch, owner, "scale", old, new)
    assert stream_bound(kind, "1", 4, **given) > 1


# ToPL: exact tables of whole reports


def law(survey: Any, group: int, value: Fraction, theta: int) -> list[Fraction]:
    """Exact probabilities of all reports about a value, rounding to a level included."""
    if group == RANGE:
        bucket = min(
            int(min(max(value, Fraction(0)), survey.bound) * survey.buckets / survey.bound),
            survey.buckets - 1,
        )
        channel, mixed = survey.square_wave, [(bucket, Fraction(1))]
    else:
        top = survey.bound * theta / survey.buckets
        exact = min(max(value, Fraction(0)), top) * survey.levels / top
        whole, rest = divmod(exact, 1)
        channel, mixed = (
            survey.hybrid,
            [(int(whole), 1 - rest)] + [(int(whole) + 1, rest)] * (rest > 0),
        )
    out = [Fraction(0)] * channel.outputs
    for level, share in mixed:
        for place, weight in enumerate(channel.weights(level)):
            out[place] += share * Fraction(weight, channel.total)
    assert sum(out) == 1
    return out


def widest(survey: Any, values: Sequence[Fraction]) -> float:
    """Largest ln ratio of the probabilities of one report, over values, outputs and groups."""
    worst = Fraction(1)
    for group, theta in ((RANGE, 0), (3 - RANGE, 1), (3 - RANGE, survey.buckets)):
        laws = [law(survey, group, value, theta) for value in values]
        possible = [column for column in zip(*laws, strict=True) if any(column)]
        worst = max(worst, *(max(column) / min(column) for column in possible))
    return math.log(worst.numerator) - math.log(worst.denominator)


@pytest.mark.parametrize("epsilon", ["1/2", "1", "4"])
@pytest.mark.parametrize("reports", [1, 3])
def test_all_reports_of_a_unit_cost_what_is_declared(epsilon: str, reports: int) -> None:
    """The dearest report, as many times as reports of one unit are accepted."""
    entry = find("topl")
    setting = Setting(
        Fraction(epsilon), Fraction(0), 4, columns=(("v", 0, 100),), grids=(Fraction(1),)
    )
    mechanism = entry.build(entry.parameters(reports=reports, buckets=16, levels=16), setting)
    survey = mechanism.survey
    values = [Fraction(x) for x in (-9, 0, 3, 50, 99, 100, 10**6)]
    spent = widest(survey, values) * mechanism.bounds("u")["budget"]
    assert 0.99 * Fraction(epsilon) < spent <= mechanism.cost().epsilon <= Fraction(epsilon)
