"""PrivHP for the contract suite: one pass, trees and matrices over triggers, both prunings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.accounting import tree_levels
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.mechanism import PrivHP
from hushstream.mechanisms.privhp.noise import TreeNoise
from hushstream.mechanisms.spatial.domain import Axis, Domain, bit_level

from ...oracles.privhp import accepted, node_counts
from ..case import Case
from .phdstream import HORIZON, debiased

WIDE = 4096


def injective(depth: int, width: int) -> int:
    """The first seed whose hash functions have no collision at any level."""
    levels = [np.arange(1 << d, 2 << d, dtype=np.uint64) for d in range(depth + 1)]

    def apart(seed: int) -> bool:
        sketch = Sketch(width=width, seed=seed)
        return all(len(np.unique(sketch.hash(codes, 0)[0])) == len(codes) for codes in levels)

    return next(seed for seed in range(1000) if apart(seed))


def made(domain: Domain, horizon: int, **given: object) -> PrivHP:
    entry = find("privhp")
    delta = Fraction(1, 10**6) if given.get("noise") == "gauss" else Fraction(0)
    setting = Setting(Fraction(3, 2), delta, horizon)
    built: PrivHP = entry.build(entry.parameters(domain=domain, **given), setting)
    return built


def case(name: str, mechanism: PrivHP, exact_leaves: bool = False) -> Case:
    """A case; set ``exact_leaves`` if no nodes collide, so that leaves are exact without noise."""
    domain, horizon, bound = mechanism.domain, mechanism.horizon, mechanism.counter.bound

    def trace(rng: np.random.Generator) -> Trace:
        n = 400
        centre = np.where(rng.random((n, 1)) < 0.5, 0.2, 0.7)
        codes = domain.place(np.clip(centre + rng.normal(0, 0.1, (n, domain.dimensions)), 0, 1))
        codes = codes[domain.touches(codes)]
        n = len(codes)
        unit, sign = rng.integers(0, 150, n), np.ones(n, np.int8)
        for row in np.flatnonzero(rng.random(n) < 0.3):
            mine = np.flatnonzero(unit[:row] == unit[row])
            if len(mine):
                codes[row], sign[row] = codes[rng.choice(mine)], -1
        distinct, key = np.unique(codes, return_inverse=True)
        trigger = np.sort(rng.integers(1, horizon + 1, n))
        value = np.empty((n, 0), np.int64)
        return Trace(trigger, unit, Keys.of_codes(distinct), key, value, sign)

    def exact(events: Trace, releases: Sequence[Releases]) -> None:
        kept = accepted(events, bound, mechanism.deletions)
        assert len(kept) > 50
        for t, release in enumerate(releases, 1):
            check(release, node_counts(kept, t))

    def check(release: Releases, truth: Counter[int]) -> None:
        codes, counts = release.key.codes(), release.value[:, 0]
        size = Fraction(0)
        for level in bit_level(codes).tolist():
            size += Fraction(1, 1 << level)
        assert size == 1, "leaves do not partition the domain"
        assert int(counts.min()) >= 0
        top = mechanism.shape.exact
        above = np.maximum(bit_level(codes) - top, 0).astype(np.uint64)
        sums: Counter[int] = Counter()
        for code, count in zip((codes >> above).tolist(), counts.tolist(), strict=True):
            sums[code] += count
        assert sums == Counter({c: truth[c] for c in range(1 << top, 2 << top)})
        if exact_leaves:
            found = dict(zip(codes.tolist(), counts.tolist(), strict=True))
            assert found == {code: truth[code] for code in found}
            assert max(bit_level(codes[counts > 0])) == mechanism.shape.depth

    counter = mechanism.counter
    if isinstance(counter, TreeNoise):
        height = tree_levels(horizon)
        weight = [height / float(scale) for scale in counter.scales]
        limit = float(mechanism.cost().epsilon)
    else:
        weight = [1.0] * mechanism.shape.levels
        limit = float(bound**2 * sum(map(mechanism.shape.touched, range(mechanism.shape.levels))))

    def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
        """Loss of Laplace noise in the changed sums; squared L2 for Gaussian noise."""
        moved = np.zeros(mechanism.shape.sums)
        for one, other in zip(first, second, strict=True):
            change = np.zeros(mechanism.shape.sums)
            change[mechanism.shape.places(one.key)] += one.sums[:, 0]
            change[mechanism.shape.places(other.key)] -= other.sums[:, 0]
            moved += np.abs(change)
        power = 1 if isinstance(counter, TreeNoise) else 2
        each = [
            (mechanism.shape.part(moved, level) ** power).sum() * weight[level]
            for level in range(mechanism.shape.levels)
        ]
        return float(sum(each))

    return Case(name, mechanism, trace, exact, distance, limit)


_LINE, _PLANE = Domain.unit(1, depth=6), Domain.unit(2, depth=6)
_PART = Domain(_PLANE.axes, 6, cells=(4, 14))
_TRIANGLE = Domain(
    (Axis("lon", -10, 10), Axis("lat", 40, 50)), 6, polygon=((-10, 40), (10, 40), (10, 50))
)
_SEED = injective(6, WIDE)
_APART = {"width": WIDE, "seed": _SEED, "decode": "single"}

CASES = (
    case("privhp-pass", made(_LINE, 1, k=64, exact=3, **_APART), exact_leaves=True),
    case(
        "privhp-tree",
        made(_PLANE, 7, k=64, exact=2, bound=3, deletions=True, **_APART),
        exact_leaves=True,
    ),
    case("privhp-joint", made(_PLANE, 8, k=4, width=16, bound=3, deletions=True)),
    case("privhp-median", made(_LINE, 4, k=4, width=9, rows=3, decode="single", bound=2)),
    case("privhp-min", made(_LINE, 4, k=4, width=9, rows=2, sketch="min", prune="threshold")),
    case("privhp-matrix", made(_PLANE, 6, k=8, noise="gauss", bound=2)),
    debiased("privhp-debiased", made(_PLANE, HORIZON, k=8, debias=True, debias_cap=6), 6),
    case("privhp-cells", made(_PART, 5, k=8, bound=2)),
    case("privhp-polygon", made(_TRIANGLE, 5, k=8, bound=2)),
)
