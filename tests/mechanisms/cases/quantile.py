"""Cases of quantiles for the contract suite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.calibration.bound import sensitivity2
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.quantile.mechanism import Quantiles
from hushstream.mechanisms.quantile.settings import QuantileParameters, build

from ..case import Case

T = 6
EPSILON, DELTA = Fraction(4), Fraction(1, 10**5)
KEYS = Keys.of([b"%c" % (97 + i) * (1 + i % 3) for i in range(9)]).unique()[0]
LISTED = tuple(KEYS.tolist()[:6])
LOW, HIGH = -10.0, 90.0


def trace(deletions: float = 0.0) -> Callable[[np.random.Generator], Trace]:
    """Records of many units, values in and beyond the range, some of them deletions."""

    def make(rng: np.random.Generator) -> Trace:
        n = 1_200
        weight = 1.0 / np.arange(1, len(KEYS) + 1) ** 1.2
        value = rng.normal(40, 30, n)
        return Trace(
            np.sort(rng.integers(1, T + 1, n)).astype(np.intp),
            rng.integers(0, 250, n),
            KEYS,
            rng.choice(len(KEYS), n, p=weight / weight.sum()).astype(np.intp),
            MADE.bands.steps(value)[:, None],
            np.where(rng.random(n) < deletions, -1, 1).astype(np.int8),
        )

    return make


def counted(mechanism: Quantiles, events: Trace, t: int) -> dict[bytes, list[int]]:
    """Accepted records per key and band up to trigger t, counted one by one in plain integers."""
    left: dict[int, int] = defaultdict(lambda: mechanism.bound.left)
    used: dict[tuple[int, int], int] = defaultdict(int)
    out: dict[bytes, list[int]] = defaultdict(lambda: [0] * mechanism.bands.number)
    for row in np.flatnonzero(events.trigger <= t).tolist():
        key, unit = int(events.key[row]), int(events.unit[row])
        name = events.keys[key]
        if mechanism.public is not None and name not in mechanism.public:
            continue
        price = 1
        if mechanism.bound.kind == "quadratic":
            price = mechanism.bound.weights[0] * (2 * used[unit, key] + 1)
        elif used[unit, key] >= mechanism.bound.per_key:
            continue
        if price <= left[unit]:
            left[unit] -= price
            used[unit, key] += 1
            out[name][place(mechanism, int(events.value[row, 0]))] += int(events.sign[row])
    return out


def place(mechanism: Quantiles, steps: int) -> int:
    """The band of a value, by a linear search of the edges."""
    edges = mechanism.bands.edges
    if steps == edges[-1]:
        return len(edges) - 1
    return sum(1 for edge in edges if edge <= steps)


def exact(mechanism: Quantiles) -> Callable[[Trace, Sequence[Releases]], None]:
    """Without noise counts are exact; quantiles are those of the bands after smoothing."""

    def check(events: Trace, releases: Sequence[Releases]) -> None:
        public: set[bytes] = set(mechanism.public or ())
        for t, release in enumerate(releases, 1):
            bands = counted(mechanism, events, t)
            if mechanism.public is None:
                bar = mechanism.threshold[t - 1]
                public |= {key for key, one in bands.items() if sum(one) * 256 >= bar}
            assert release.key.tolist() == sorted(public)
            for key, value in zip(release.key, release.value.tolist(), strict=True):
                one = bands.get(key, [0] * mechanism.bands.number)
                wide = len(mechanism.at)
                assert value[wide : wide + 3] == [sum(one), one[0], one[-1]]
                if sum(one) > 0:
                    for q, found in zip(mechanism.at, value, strict=False):
                        inside(mechanism, t, one, q, found)
        assert public, "the trace selects no key, so nothing was checked"

    return check


def inside(mechanism: Quantiles, t: int, bands: list[int], q: Fraction, found: int) -> None:
    """The value lies where the smoothed distribution passes q."""
    edges, variances = mechanism.bands.edges, mechanism.tree(t).variances
    below, near = (
        list(accumulate(smoothed(bands, variances))),
        0.05,
    )  # half steps of the noise's grid
    wanted = float(q) * sum(bands)
    at = [place(mechanism, found - 1), place(mechanism, found + 1)]
    if at[0] > 0:
        assert below[at[0] - 1] <= wanted + near
    if at[1] < len(edges):
        assert below[at[1]] >= wanted - near


def smoothed(bands: Sequence[float], variances: Sequence[float]) -> list[float]:
    """Exact bands after the shrinkage that noisy bands of these variances get, node by node."""
    levels = [list(map(float, bands))]
    while len(levels[-1]) > 1:
        levels.append([sum(levels[-1][i : i + 4]) for i in range(0, len(levels[-1]), 4)])
    given, weight = levels[-1], [4**i / one for i, one in enumerate(variances)]
    for level in range(len(levels) - 2, -1, -1):
        noise, out = 4**level / sum(weight[: level + 1]), []
        for node, whole in enumerate(given):
            four = levels[level][4 * node : 4 * node + 4]
            apart = [one - sum(four) / 4 for one in four]
            energy = sum(one * one for one in apart)
            kept = max(0.0, 1 - noise / energy) if energy else 0.0
            out += shared([kept * one for one in apart], whole)
        given = out
    return given


def shared(four: Sequence[float], whole: float) -> list[float]:
    """The nearest four non-negative numbers with this sum: shifted, and those below 0 cut to 0."""
    order = sorted(four, reverse=True)
    shifts = [(whole - sum(order[:k])) / k for k in range(1, 5)]
    shift = min(shift for k, shift in enumerate(shifts) if order[k] + shift >= 0)
    return [max(one + shift, 0.0) for one in four]


def distance(mechanism: Quantiles) -> Callable[[Sequence[Part], Sequence[Part]], float]:
    """Largest squared shift of all nodes of one level, over the levels."""

    def measure(first: Sequence[Part], second: Sequence[Part]) -> float:
        moved: dict[bytes, list[float]] = defaultdict(lambda: [0.0] * mechanism.bands.number)
        for parts, sign in ((first, 1), (second, -1)):
            for part in parts:
                for key, lane, sums in zip(part.key, part.lane, part.sums, strict=True):
                    moved[key][lane] += sign * int(sums[0])
        most = 0.0
        for size in (4**level for level in range(len(mechanism.processes))):
            level = 0.0
            for bands in moved.values():
                nodes = [sum(bands[i : i + size]) for i in range(0, len(bands), size)]
                level += sum(one * one for one in nodes)
            most = max(most, level)
        return most

    return measure


def _case(name: str, parameters: QuantileParameters, listed: bool, deletions: float = 0) -> Case:
    keys = LISTED if listed else None
    made = build(parameters, Setting(EPSILON, DELTA, T, keys=keys))
    bound = float(sensitivity2(made.bound))
    public = Keys.of(LISTED) if listed else None
    return Case(name, made, trace(deletions), exact(made), distance(made), bound, public)


FIVE = (0.1, 0.25, 0.5, 0.9)
MADE = build(QuantileParameters(LOW, HIGH, FIVE, 64), Setting(EPSILON, DELTA, T))
CASES = [
    _case("quantile-unknown", QuantileParameters(LOW, HIGH, FIVE, 64), False),
    _case("quantile-listed", QuantileParameters(LOW, HIGH, FIVE, 64), True),
    _case("quantile-deleted", QuantileParameters(LOW, HIGH, (0.5,), 16, budget=30), False, 0.1),
    _case("quantile-records", QuantileParameters(LOW, HIGH, FIVE, 64, bound="per-key", budget=6,
                                                 per_key=2), False),
]  # fmt: skip
