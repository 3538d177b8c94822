"""Cases of the histogram for the contract suite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.calibration.bound import sensitivity2
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys

from ..case import Case

T = 8
EPSILON, DELTA = Fraction(4), Fraction(1, 10**5)
KEYS = Keys.of([b"%c" % (97 + i) * (1 + i % 3) for i in range(12)]).unique()[0]
LISTED = tuple(KEYS.tolist()[:7])
COLUMNS = (("fare", -20, 180), ("tip", 0, 5))


def trace(columns: int, units: int = 250) -> Callable[[np.random.Generator], Trace]:
    def make(rng: np.random.Generator) -> Trace:
        n = 1_500
        weight = 1.0 / np.arange(1, len(KEYS) + 1) ** 1.3
        value = np.stack(
            [rng.integers(low - 9, high + 9, n) for _, low, high in COLUMNS[:columns]], axis=1
        ) if columns else np.zeros((n, 0), np.int64)  # fmt: skip
        return Trace(
            np.sort(rng.integers(1, T + 1, n)).astype(np.intp),
            rng.integers(0, units, n),
            KEYS,
            rng.choice(len(KEYS), n, p=weight / weight.sum()).astype(np.intp),
            value,
            np.ones(n, np.int8),
        )

    return make


def exact(mechanism: Histogram) -> Callable[[Trace, Sequence[Releases]], None]:
    """Without noise each key is released from its exact first trigger, with its exact total."""

    def check(events: Trace, releases: Sequence[Releases]) -> None:
        totals = replay(mechanism, events, releases)
        public: set[bytes] = set(mechanism.public or ())
        for t, release in enumerate(releases, 1):
            if mechanism.public is None:
                public |= {
                    key for key, lanes in totals[t - 1].items()
                    if lanes[0] * 256 >= mechanism.threshold[t - 1]
                }  # fmt: skip
            assert release.key.tolist() == sorted(public)
            for key, value in zip(release.key, release.value.tolist(), strict=True):
                if mechanism.show == "values":
                    assert value == expected(mechanism, totals[t - 1].get(key))
        assert public, "the trace selects no key, so nothing was checked"

    return check


def expected(mechanism: Histogram, lanes: list[int] | None) -> list[int]:
    """Outputs of one key from its lanes: lane-0 count, total count, then centred columns."""
    count, *sums = (lanes or [0] * (2 + mechanism.traits.columns))[1:]
    moved = [s + c.middle * count for s, c in zip(sums, mechanism.summed, strict=True)]
    return ([count] if mechanism.count else []) + moved


def replay(
    mechanism: Histogram, events: Trace, releases: Sequence[Releases]
) -> list[dict[bytes, list[int]]]:
    """Bound and sum record by record, knowing when each key became public."""
    first: dict[bytes, int] = {}
    for t, release in enumerate(releases, 1):
        for key in release.key:
            first.setdefault(key, t)
    bound, left = mechanism.bound, defaultdict(lambda: mechanism.bound.left)
    used: dict[tuple[int, bytes, int], int] = defaultdict(int)
    totals: dict[bytes, list[int]] = {}
    out, row = [], 0
    for t in range(1, mechanism.horizon + 1):
        while row < len(events.unit) and events.trigger[row] == t:
            unit, key = int(events.unit[row]), events.keys[int(events.key[row])]
            known = mechanism.traits.feedback and first.get(key, T + 9) <= t - 1 - mechanism.delay
            lane = int(known and mechanism.traits.lanes > 1)
            m = used[unit, key, lane]
            price = bound.weights[lane] * (2 * m + 1) if bound.kind == "quadratic" else 1
            cap = bound.caps[lane] if bound.caps else bound.per_key
            listed = mechanism.public is None or key in mechanism.public
            hidden = not (known and mechanism.show == "keys")
            if price <= left[unit] and m < cap and listed and hidden:
                left[unit] -= price
                used[unit, key, lane] += 1
                at = totals.setdefault(key, [0] * (2 + mechanism.traits.columns))
                at[0] += lane == 0
                at[1] += 1
                for place, column in enumerate(mechanism.summed):
                    clipped = min(max(int(events.value[row, place]), column.low), column.high)
                    at[2 + place] += clipped - column.middle
            row += 1
        out.append({key: list(lanes) for key, lanes in totals.items()})
    return out


def distance(mechanism: Histogram) -> Callable[[Sequence[Part], Sequence[Part]], float]:
    """Σ over keys and lanes of weight·(Σ_t |change|)², which the contribution bound limits."""
    weights = np.array(mechanism.bound.weights) / mechanism.bound.weights[0]
    halves = [max(c.high - c.middle, c.middle - c.low) for c in mechanism.summed]
    scale = np.array([1, *halves], float)

    def between(first: Sequence[Part], second: Sequence[Part]) -> float:
        moved: dict[tuple[bytes, int], np.ndarray] = defaultdict(lambda: np.zeros(len(scale)))
        for one, other in zip(first, second, strict=True):
            step: dict[tuple[bytes, int], np.ndarray] = defaultdict(lambda: np.zeros(len(scale)))
            for part, sign in ((one, 1), (other, -1)):
                for key, lane, sums in zip(part.key, part.lane, part.sums, strict=True):
                    step[key, int(lane)] += sign * sums
            for at, sums in step.items():
                moved[at] += np.abs(sums) / scale
        squares = [weights[lane] * (sums**2).max() for (_, lane), sums in moved.items()]
        return float(sum(squares))

    return between


def exact_rounds(mechanism: Rounds) -> Callable[[Trace, Sequence[Releases]], None]:
    """Without noise, rounds of distinct units equal those counted record by record."""

    def check(events: Trace, releases: Sequence[Releases]) -> None:
        left: dict[int, int] = defaultdict(lambda: mechanism.bound.left)
        began: dict[bytes, list[int]] = defaultdict(lambda: [0])
        units: dict[tuple[bytes, int], set[int]] = defaultdict(set)
        buffer: dict[bytes, int] = defaultdict(int)
        total: dict[bytes, int] = defaultdict(int)
        row = 0
        for t, release in enumerate(releases, 1):
            while row < len(events.unit) and events.trigger[row] == t:
                unit, key = int(events.unit[row]), events.keys[int(events.key[row])]
                if left[unit]:
                    left[unit] -= 1
                    buffer[key] += 1
                    known = [at for at in began[key] if at <= t - 1 - mechanism.delay]
                    status = max(0, len(known) - 1)
                    if status == len(began[key]) - 1:
                        units[key, status].add(unit)
                row += 1
            shown = {}
            for key in list(buffer):
                start, now = began[key][-1], len(began[key]) - 1
                count = len(units[key, now])
                if (
                    count >= mechanism.min_units
                    and count * 256 >= mechanism.threshold[t - start - 1]
                ):
                    total[key] += buffer.pop(key)
                    began[key].append(t)
                    shown[key] = (total[key], now + 1)
            assert release.key.tolist() == sorted(shown)
            got = zip(release.value[:, 0].tolist(), release.status.tolist(), strict=True)
            assert list(got) == [shown[key] for key in sorted(shown)]
        assert max(map(len, began.values())) > 2, "no key had a second round"

    return check


def distance_rounds(mechanism: Rounds) -> Callable[[Sequence[Part], Sequence[Part]], float]:
    """Largest share that is used of two declared sensitivities: distinct units, and values."""
    records = mechanism.bound.left

    def between(first: Sequence[Part], second: Sequence[Part]) -> float:
        units, values = 0.0, 0.0
        for one, other in zip(first, second, strict=True):
            step: dict[tuple[bytes, int], int] = defaultdict(int)
            for part, sign in ((one, 1), (other, -1)):
                for key, lane, sums in zip(part.key, part.lane.tolist(), part.sums, strict=True):
                    step[key, lane] += sign * int(sums[0])
            assert all(abs(moved) <= 1 for (_, lane), moved in step.items() if lane)
            units += sum(abs(moved) for (_, lane), moved in step.items() if lane)
            values += sum(abs(moved) for (_, lane), moved in step.items() if not lane)
        return max(units / records, (values / records) ** 2)

    return between


def case_rounds(name: str, parameters: HistogramParameters, columns: int = 0) -> Case:
    grids = (Fraction(1),) * columns
    setting = Setting(EPSILON, DELTA, T, columns=COLUMNS[:columns], grids=grids)
    mechanism = build(parameters, setting)
    assert isinstance(mechanism, Rounds)
    return Case(
        f"histogram-{name}",
        mechanism,
        trace(columns, 1_000),
        exact_rounds(mechanism),
        distance_rounds(mechanism),
        1.0,
    )


def case(name: str, parameters: HistogramParameters, columns: int = 0, public: bool = False,
         count: bool = True) -> Case:  # fmt: skip
    setting = Setting(
        EPSILON, DELTA, T, columns=COLUMNS[:columns], grids=(Fraction(1),) * columns,
        keys=LISTED if public else None, count=count,
    )  # fmt: skip
    mechanism = build(parameters, setting)
    assert isinstance(mechanism, Histogram)
    return Case(
        f"histogram-{name}",
        mechanism,
        trace(columns),
        exact(mechanism),
        distance(mechanism),
        float(sensitivity2(mechanism.bound)),
        Keys.of(LISTED) if public else None,
    )


CASES = [
    case("adaptive", HistogramParameters()),
    case("sums", HistogramParameters(factorization="toeplitz"), columns=2),
    case("plain", HistogramParameters(adaptive_weight=0, budget=4, factorization="tree")),
    case("min-users", HistogramParameters(budget=6, min_users=3, factorization="honaker")),
    case("keys", HistogramParameters(aggregate="keys", budget=5)),
    case("debias", HistogramParameters(budget=3.5, debias=True, debias_cap=8)),
    case("records", HistogramParameters(bound="records", budget=3, factorization="blt")),
    case("per-key", HistogramParameters(bound="per-key", budget=4, per_key=2)),
    case_rounds("rounds", HistogramParameters(selection="rounds", budget=3)),
    case_rounds(
        "rounds-tree",
        HistogramParameters(selection="rounds", budget=4, factorization="tree", min_users=2),
        columns=2,
    ),
    case("public", HistogramParameters(), public=True),
    case("public-sums", HistogramParameters(), columns=1, public=True),
    case("public-sum-alone", HistogramParameters(), columns=2, public=True, count=False),
]
