"""Streams of values in slots of event time: what each slot holds, and when slots close.

A record counts in the slot of its own time, or in the first open slot if that one is closed. The
first triggers of a window are the warm-up; their slots close together. Values are clipped to [0,
B]. In an epoch, only the first records of a unit's log count, up to the unit's bound.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from .between import Between
from .histogram import Judge, Release
from .numbers import held
from .purses import Costs
from .rows import named, plain, six, utc, widened
from .rules import Rules
from .stream import Clock, Objection, Placed

LEFT = {"min_users": 1, "selection": "threshold", "debias": False}
DIGITS = 2e-5  # of a deviation: the order of a sum may change its sixth digit


class SlotRules(Rules):
    """What follows from the configuration of a stream of values, for any mechanism."""

    laplace = True  # the law of the noise of sums

    def __init__(self, config: dict[str, Any], *more: Any) -> None:
        mechanism = config["mechanism"]
        whole = mechanism | {"parameters": LEFT | mechanism["parameters"]}
        super().__init__(config | {"mechanism": whole}, *more)

    def _bound(self) -> None:
        self.budget, self.adaptive, self.cap = self.parameters["bound"], False, None
        self.costs = [Costs(*[Fraction(0)] * 3)]  # these pipelines cap no unit over epochs

    def _noise(self) -> None:
        p, config = self.parameters, self.config
        (column,) = self.columns
        self.grid, self.top = column.grid, round(column.high / column.grid)
        self.warmup, self.per = p["warmup"], p["slots_per_trigger"]
        self.timed = "time" in (config["inputs"] or {})
        self.slot, self.zero = p["slot"], p["origin"]
        if (self.slot, self.zero) == (1, 0) and not self.timed:
            self.slot, self.zero = config["triggers"]["every"] // self.per, self.start(0)
        self.slots, self.early = self.horizon * self.per, self.warmup * self.per
        self.thetas = geometric(self.top, p["resolution"])
        self.each = Fraction(config["budget"]["epsilon"]) / self.budget  # ε of one record
        self.watch = self.each * Fraction(p["watch"]).limit_denominator(1000)
        self.stretch = p.get("relearn", 0)  # triggers; 0: a single threshold
        share = Fraction(p.get("relearn_share", 0.1)).limit_denominator(1000)
        self.anew = self.each * share if self.stretch else Fraction(0)

    def affordable(self) -> bool:
        """Whether the budget is the pipeline's own; a shared one is not judged."""
        return "shared" not in self.config["budget"]

    def slot_of(self, time: float) -> int:
        """The slot of a time, within its window."""
        steps = (time - self.zero) // self.slot
        if isinstance(time, float):
            steps = min(max(math.floor((time - self.zero) / self.slot), -(2**53)), 2**53)
        return int(steps) % self.slots

    def steps(self, value: float) -> int:
        """A clipped value in grid steps."""
        size = float(self.grid)
        return min(max(round(min(max(value, 0.0), self.top * size) / size), 0), self.top)

    def closing(self, slot: int) -> int:
        """The trigger that closes a slot."""
        return max(slot // self.per + 1, self.warmup)


class SlotJudge(Judge):
    """Judge of a pipeline of values."""

    rules: SlotRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if not self.rules.affordable():
            raise Objection("a shared budget of values cannot be judged")
        self.used: dict[Any, int] = defaultdict(int)  # records of a unit in an epoch
        self.taken: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.waiting: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by window
        self.renewed: dict[int, list[int]] = defaultdict(list)  # triggers with a new nonce

    def take(self, place: Any, one: Placed) -> None:
        """Count one record, unless it is a deletion or its unit has used up its bound."""
        if one.event.sign < 0 or self.used[place] >= self.rules.budget:
            return
        self.used[place] += 1
        value, *given = one.event.numbers
        time = given[0] if self.rules.timed else one.event.time
        self.taken[one.window, one.batch].append(
            (self.rules.slot_of(time), self.rules.steps(value))
        )

    def release(self, trigger: Clock) -> Release:
        """Close the trigger's slots and release them."""
        rules, window, t = self.rules, trigger["window"], trigger["index"]
        self.windows[window].released = t
        if t > 1 and self.nonces.nonce(window, 0, t) != self.nonces.nonce(window, 0, t - 1):
            self.renewed[window].append(t)
        every = self.waiting[window] + self.taken.pop((window, t), [])
        first = (t - 1) * rules.per if t > rules.warmup else 0
        now = [(max(slot, first), value) for slot, value in every if rules.closing(slot) <= t]
        self.waiting[window] = [one for one in every if rules.closing(one[0]) > t]
        rows: dict[int, dict[str, Any]] = {}
        public: dict[str, list[int]] = {}
        if t == rules.warmup:
            rows, public = self.begin(trigger, now)
        elif t > rules.warmup:
            rows, public = self.go_on(trigger, now)
        keys = {slot: slot.to_bytes(8, "big") for slot in rows}
        made = {keys[slot].hex().encode(): named(rules, trigger, keys[slot], {"slot": slot}, told)
                for slot, told in rows.items()}  # fmt: skip
        return Release(trigger, utc(rules.opens(window)), made, {}, None, public=public)

    def begin(
        self, trigger: Clock, now: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, dict[str, Any]], dict[str, list[int]]]:
        """Rows and public columns at the end of the warm-up."""
        raise NotImplementedError

    def go_on(
        self, trigger: Clock, now: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, dict[str, Any]], dict[str, list[int]]]:
        """Rows and public columns of a later trigger."""
        raise NotImplementedError

    def loudest(
        self, trigger: Clock, scores: Sequence[int], epsilon: Fraction, purpose: str = "threshold"
    ) -> int:
        """Index of the largest score after noise; the first one if several are equal."""
        t, size = trigger["index"], 1 / epsilon
        noisy = [score + self.noise.laplace(purpose, size, trigger, t, b"threshold", n)
                 for n, score in enumerate(scores)]  # fmt: skip
        return noisy.index(max(noisy))

    def watched(
        self, trigger: Clock, now: Sequence[tuple[int, int]], theta: int
    ) -> dict[str, list[int]]:
        """The noisy number of records above the threshold, if the settings ask for it."""
        if not self.rules.watch:
            return {}
        t, above = trigger["index"], sum(value > theta for _, value in now)
        key, size = t.to_bytes(8, "big"), 1 / self.rules.watch
        return {"clipped": [above + self.noise.laplace("clipped", size, trigger, t, key)]}

    def told(self, value: int, variance: float, steps: int) -> dict[str, Any]:
        """A released number; ``steps`` is the number of output steps in a grid step."""
        release, unit = self.rules.config["release"], self.rules.grid / steps
        exact = held(value) * unit
        spread = math.sqrt(variance) * float(unit)
        return number(exact, spread, release, self.floored, unit, self.rules.laplace)

    @property
    def floored(self) -> bool:
        """Whether the exact sums can never be negative."""
        return self.rules.config["sign"] is None


def number(
    exact: Fraction, spread: float, release: dict[str, Any], floored: bool, step: Fraction,
    laplace: bool,
) -> dict[str, Any]:  # fmt: skip
    """A number with its error, which may differ in the sixth digit."""
    level = float(Fraction(release["confidence_level"]))
    reach = NormalDist().inv_cdf((1 + level) / 2)
    if laplace:  # |b| > x with the probability e^(-x√2 / deviation)
        reach = max(reach, -math.log(1 - level) / math.sqrt(2))
    rounded = six(spread)
    half = widened(Fraction(repr(six(reach * rounded))), step)
    slack = DIGITS * float(half)
    out: dict[str, Any] = {"value": plain(exact)}
    out["stddev"] = Between(rounded * (1 - DIGITS), rounded * (1 + DIGITS))
    for name, end in (("low", exact - half), ("high", exact + half)):
        low, high = float(end) - slack, float(end) + slack
        out[name] = Between(max(low, 0.0), max(high, 0.0)) if floored else Between(low, high)
    more = {} if release["display"] == "raw" else {"display_value": max(out["value"], 0)}
    return out | more


def geometric(top: int, resolution: int) -> list[int]:
    """Public thresholds up to B; each is larger than the last by 1/resolution, at least by 1."""
    found = [1]
    while found[-1] < top:
        found.append(min(top, found[-1] + max(1, math.ceil(Fraction(found[-1], resolution)))))
    return found


def above(now: Sequence[tuple[int, int]], thetas: Sequence[int]) -> list[int]:
    """The number of records above each threshold."""
    return [sum(value > theta for _, value in now) for theta in thetas]
