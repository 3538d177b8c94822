"""Activity of units: how many units send how many records, and spread over how many keys.

Each unit is in one bucket. With n the number of a unit's records and m the number of its records
with one key, the bucket is given by two powers of two: the least that is at least n, and the least
that is at least Σm² ÷ n. A unit adds 1 to its bucket, so one unit moves one number by 1; the noise
is on a grid of 1/64.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from .histogram import Judge, Release
from .matrices import matrix
from .numbers import variances
from .rows import named, plain, six, utc
from .rules import Rules
from .stream import Clock, Placed

GRID = 64  # steps of the noise in one unit
NAME = b"profile"  # stands for a key in the labels of the noise
ALONE = {
    "bound": "records", "per_key": None, "adaptive_weight": None, "min_users": 1, "debias": False,
    "selection": "threshold",
}  # fmt: skip


class ActivityRules(Rules):
    """The settings of a pipeline that releases the activity of units."""

    def __init__(self, config: dict[str, Any], *more: Any) -> None:
        given = config["mechanism"]["parameters"]
        whole = config["mechanism"] | {"parameters": ALONE | {"budget": given["most"]}}
        super().__init__(config | {"mechanism": whole}, *more)

    def _bound(self) -> None:
        super()._bound()
        self.adaptive = False  # buckets are public

    def _noise(self) -> None:
        self.matrix, self.names, self.thresholds = matrix("final", 1), ["units"], []
        needs: list[tuple[Fraction, ...]] = [(Fraction(GRID**2), Fraction(1))]
        epsilon, delta = (Fraction(self.config["budget"][n]) for n in ("epsilon", "delta"))
        found = variances((epsilon, delta), tuple(needs), 1, Fraction(0))
        self._purse(needs, found, 1, Fraction(0))
        self.variance = {"profile": found[0]}

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Upper ends of all buckets in order; n records have Σm² of at most n²."""
        ends = [1 << n for n in range(self.budget.bit_length())]
        return ((records, repeats) for records in ends for repeats in ends if repeats <= records)


class ActivityJudge(Judge):
    """Judge of a pipeline of activity."""

    rules: ActivityRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: dict[int, dict[Any, Counter[bytes]]] = defaultdict(lambda: defaultdict(Counter))

    def take(self, place: Any, one: Placed) -> None:
        """Count one record, unless it is a deletion or its unit has used up its bound."""
        mine = self.sent[one.window][place[1]]
        if one.event.sign > 0 and mine.total() < self.rules.budget:
            mine[one.event.key] += 1

    def release(self, trigger: Clock) -> Release:
        """The number of units in every bucket, at the window's end."""
        rules, window = self.rules, trigger["window"]
        self.windows[window].released = trigger["index"]
        units = Counter(map(bucket, self.sent.pop(window, {}).values()))
        variance, shard = rules.variance["profile"], self.nonces.shard(NAME)
        label = self.noise.label("profile", variance, trigger, shard, trigger["index"])
        rows, contents = {}, {}
        for place, ends in enumerate(rules.buckets()):
            key = place.to_bytes(8, "big")
            noise = self.noise.draw(label, NAME, place, variance)
            told = {"units": self.told(Fraction(units[ends] * GRID + noise, GRID))}
            columns = dict(zip(("records", "repeats"), ends, strict=True))
            rows[key.hex().encode()] = named(rules, trigger, key, columns, told)
            contents[key] = [[units[ends]]]
        return Release(trigger, utc(rules.opens(window)), rows, contents, None)

    def told(self, value: Fraction) -> dict[str, Any]:
        """A noisy number of units; the exact number is never negative."""
        release = self.rules.config["release"]
        reach = NormalDist().inv_cdf((1 + float(Fraction(release["confidence_level"]))) / 2)
        spread = six(math.sqrt(self.rules.variance["profile"]) / GRID)
        half = Fraction(repr(six(reach * spread)))
        low, high = (max(float(end), 0.0) for end in (value - half, value + half))
        out = {"value": plain(value), "stddev": spread, "low": low, "high": high}
        more = {} if release["display"] == "raw" else {"display_value": max(out["value"], 0)}
        return out | more


def bucket(sent: Counter[bytes]) -> tuple[int, int]:
    """The bucket of a unit that sent so many records of each key; (0, 0) if it sent none."""
    records, squares = sent.total(), sum(m * m for m in sent.values())
    if not records:
        return 0, 0
    most = next(1 << n for n in range(64) if 1 << n >= records)
    return most, next(1 << n for n in range(64) if records << n >= squares)
