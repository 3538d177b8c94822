"""PHDStream for the contract suite: both selections, three counters, waiting events, regions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters as Parameters
from hushstream.mechanisms.phdstream.settings import build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain

from ...oracles.phdstream import accepted, definition, live_counts, scheduled
from ..case import Case

HORIZON = 10
EPSILON = Fraction(3, 2)


def made(domain: Domain, horizon: int = HORIZON, **parameters: object) -> PHDStream:
    setting = Setting(EPSILON, Fraction(1, 10**6), horizon)
    return build(Parameters(domain=domain, **parameters), setting)  # type: ignore[arg-type]


def trace_in(domain: Domain, events: int = 400, units: int = 60):
    """Random visits around two places; a fifth of the events try to delete an earlier visit."""

    def trace(rng: np.random.Generator) -> Trace:
        centre = np.where(rng.random((events, 1)) < 0.5, 0.2, 0.7)
        points = np.clip(centre + rng.normal(0, 0.08, (events, domain.dimensions)), 0, 1)
        codes = domain.place(points)
        unit = rng.integers(0, units, events)
        sign = np.ones(events, np.int8)
        for row in np.flatnonzero(rng.random(events) < 0.2):
            mine = np.flatnonzero(unit[:row] == unit[row])
            if len(mine):
                codes[row], sign[row] = codes[rng.choice(mine)], -1
        if domain.cells:
            codes = np.where(domain.covered(codes), codes, domain.place(points[:1] * 0 + 0.1))
        distinct, key = np.unique(codes, return_inverse=True)
        trigger = np.sort(rng.integers(1, HORIZON + 1, events))
        value = np.empty((events, 0), np.int64)
        return Trace(trigger, unit, Keys.of_codes(distinct), key, value, sign)

    return trace


def case(name: str, mechanism: PHDStream) -> Case:
    """A case whose run without noise must equal the definition of lazy extension."""

    def exact(trace: Trace, releases: Sequence[Releases]) -> None:
        events = scheduled(mechanism, accepted(mechanism, trace))
        trees = [release.key.codes().tolist() for release in releases]
        assert [bool(tree) for tree in trees] == [
            t >= mechanism.first for t in range(1, mechanism.horizon + 1)
        ]
        for t, release in enumerate(releases, 1):
            total = live_counts(events, t) * GRID if t >= mechanism.first else 0
            assert release.value[:, 0].sum() == total
            assert release.value[:, 1].sum() == total
            assert (release.value[:, 0] >= 0).all()
        if not mechanism.smoothing and not mechanism.forget:
            for release, truth in zip(releases, definition(mechanism, events, trees), strict=True):
                assert (release.value[:, 1] / GRID).tolist() == truth

    def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
        again = 2 if mechanism.lifetime else 1
        moved: dict[tuple[int, bytes, int], int] = {}
        for factor, parts in ((1, first), (-1, second)):
            for t, part in enumerate(parts):
                for key, lane, sums in zip(part.key, part.lane.tolist(), part.sums, strict=True):
                    place = (t, key, lane)
                    moved[place] = moved.get(place, 0) + factor * int(sums[0])
        return float(again * sum(abs(change) for change in moved.values()))

    return Case(name, mechanism, trace_in(mechanism.domain), exact, distance, mechanism.bound)


def debiased(name: str, mechanism: Any, cap: int) -> Case:
    """A case whose total counts all insertions, up to a cap for each unit."""

    def exact(trace: Trace, releases: Sequence[Releases]) -> None:
        for t, release in enumerate(releases, 1):
            sent = np.bincount(trace.unit[(trace.trigger <= t) & (trace.sign > 0)])
            assert release.public["records"].tolist() == [np.minimum(sent, cap).sum()]
            counted = np.minimum(sent, mechanism.bounds("u")["budget"]).sum()
            assert release.public["counted"].tolist() == [counted]

    def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
        pairs = zip(first, second, strict=True)
        return float(sum(abs(int(a.totals[0] - b.totals[0])) for a, b in pairs))

    return Case(name, mechanism, trace_in(mechanism.domain), exact, distance, cap)


_PLANE = Domain.unit(2, depth=6)
_SQUARE = Domain.unit(2, depth=3, split="all")
_PART = Domain((_PLANE.axes), 6, cells=(4, 14))

CASES = (
    case("phdstream-released", made(_SQUARE, bound=3)),
    case("phdstream-private", made(_PLANE, selection="private", bound=2, deletions=True)),
    case(
        "phdstream-block",
        made(_SQUARE, counter="block", block=3, bound=4, deletions=True, smoothing=0, forget=False),
    ),
    case(
        "phdstream-tree",
        made(_PLANE, selection="private", counter="tree", bound=3, first=3, smoothing=0),
    ),
    case(
        "phdstream-lifetime",
        made(_SQUARE, selection="private", bound=4, lifetime=4, first=2, smoothing=0, forget=False),
    ),
    case("phdstream-matrix", made(_SQUARE, counter="matrix", bound=2, deletions=True)),
    debiased("phdstream-debiased", made(_SQUARE, bound=2, debias=True, debias_cap=5), 5),
    case("phdstream-region", made(_PART, bound=2, deletions=True, counter="block", floor=1)),
)
