"""Cases of quantiles for the contract suite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import sensitivity2
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
    """Bands of accepted records up to trigger t, one record after the other, in plain integers."""
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
    """The band of a value, by looking at one edge after the other."""
    edges = mechanism.bands.edges
    if steps == edges[-1]:
        return len(edges) - 1
    return sum(1 for edge in edges if edge <= steps)


def exact(mechanism: Quantiles) -> Callable[[Trace, Sequence[Releases]], None]:
    """Zero noise: exact counts, and quantiles in the band that holds them."""

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
                if sum(one) and min(one) >= 0:
                    for q, found in zip(mechanism.at, value, strict=False):
                        inside(mechanism, one, q, found)
        assert public, "a trace that selects nothing shows nothing"

    return check


def inside(mechanism: Quantiles, bands: list[int], q: Fraction, found: int) -> None:
    """The value lies in the band of the quantile, whose ends belong to it."""
    edges, below = mechanism.bands.edges, 0
    ends = [edges[0], *edges, edges[-1]]
    for number, count in enumerate(bands):
        below += count
        if below >= q * sum(bands) and count:
            # Half a step of rounded noise may move a value that lies at an edge.
            assert ends[number] - 2 <= found <= max(ends[number + 1], ends[number]) + 200
            return


def distance(mechanism: Quantiles) -> Callable[[Sequence[Part], Sequence[Part]], float]:
    """Σ over levels of the squared shifts of all nodes, each counted once, over the levels' cost.

    Triggers are added up by absolute value, as a unit may spread its records over them.
    """

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
