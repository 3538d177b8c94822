"""Quantiles of a number per key: a tree over bands, its noise, and what is read from it.

Variances are derived in another way than in the product. Where the last digit of a double decides
the result (`Between`), every possible result is right.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from .between import Between
from .gaussian import DIGITS
from .histogram import Judge, Window
from .matrices import matrix
from .numbers import STEPS, held, variances
from .records import Event
from .rows import plain, six, widened
from .rules import Rules, written
from .stream import Clock

NEARER = 0.82  # ratio of the monotone estimate's error to the other one's: documented and measured
TINY = 1e-11  # part of the total that the order of sums may change
LEFT = {"min_users": 1, "selection": "threshold", "adaptive_weight": 0, "debias": False}


class QuantileRules(Rules):
    """The settings of a pipeline of quantiles, from its configuration."""

    def __init__(self, config: dict[str, Any], *more: Any) -> None:
        mechanism = config["mechanism"]
        whole = mechanism | {"parameters": LEFT | mechanism["parameters"]}
        self.bands: int = whole["parameters"]["bands"]
        self.edges, self.step = _edges(whole["parameters"])
        super().__init__(config | {"mechanism": whole}, *more)

    def _noise(self) -> None:
        p, unknown, budget = self.parameters, self.listed is None, self.config["budget"]
        self.matrix = matrix(p["factorization"], self.horizon)
        self.squares, self.names = {}, ["count", *map(str, range(self.bands))]
        share = written(p["count_share"] or (0.2 if unknown else 0.08))
        levels = round(math.log(self.bands, 4))
        unit = self._moved() * self.matrix.sensitivity2 * 4**self.matrix.bits
        parts = [(1 - share) / levels] * levels + [share]
        needs = [(unit, part) for part in parts]
        epsilon, delta = Fraction(budget["epsilon"]), Fraction(budget["delta"])
        selecting = delta * written(p["threshold_delta_share"]) if unknown else Fraction(0)
        touched = self.budget * self.horizon
        found = variances((epsilon, delta), tuple(needs), touched, selecting)
        self._purse(needs, found, touched, selecting)  # type: ignore[arg-type]
        self.levels = [*(f"bands/{level}" for level in range(levels)), "count"]
        self.variance = dict(zip(self.levels, found, strict=True))
        self.thresholds = []
        if unknown:
            self._select("count", selecting)

    def band(self, value: float) -> int:
        """The band of a value."""
        steps = round(min(max(value / float(self.step), self.edges[0] - 1), self.edges[-1] + 1))
        if steps == self.edges[-1]:  # the range includes both of its ends
            return self.bands - 2
        return sum(edge <= steps for edge in self.edges)


def _edges(p: dict[str, Any]) -> tuple[list[int], Fraction]:
    """Edges of the bands in steps, and the step: the largest power of ten with 100 in any band."""
    low, high, inner = written(p["low"]), written(p["high"]), p["bands"] - 2
    made = [low + (high - low) * n / inner for n in range(inner + 1)]
    if p["spacing"] == "log":
        with localcontext(DIGITS):
            rate = (Decimal(high.numerator) * low.denominator
                    / (Decimal(high.denominator) * low.numerator)).ln() / inner  # fmt: skip
            made = [low * Fraction((rate * n).exp()) for n in range(inner)] + [high]
    width, power = min(b - a for a, b in pairwise(made)), 60
    while Fraction(10) ** power * 100 > width:
        power -= 1
    step = Fraction(10) ** power
    return [round(one / step) for one in made], step


class Tree:
    """A key's tree at one trigger; ``own`` is the variance of a node's noise, by level."""

    def __init__(self, own: tuple[float, ...]) -> None:
        self.own = own
        self.upward = [own[0]]  # of a node, from everything at or below it
        for variance in own[1:]:
            self.upward.append(1 / (1 / variance + 1 / (4 * self.upward[-1])))
        self.total = self.upward[-1]
        self.band = self.total
        for variance in self.upward[-2::-1]:  # a quarter of its parent, and an independent part
            self.band = self.band / 16 + variance * 3 / 4

    @lru_cache(None)  # noqa: B019
    def pivots(self, q: float) -> list[float]:
        """Variance of F(e) - q·n at every edge e: from the total, and from each four children."""
        size, found = 4 ** (len(self.own) - 1), []
        for edge in range(1, size):
            weights = [float(band < edge) - q for band in range(size)]
            variance = 0.0
            for each in self.upward[:-1]:
                fours = [weights[n : n + 4] for n in range(0, len(weights), 4)]
                weights = [sum(four) / 4 for four in fours]
                variance += each * sum(sum((w - m) ** 2 for w in four)
                                       for four, m in zip(fours, weights, strict=True))  # fmt: skip
            found.append(variance + weights[0] ** 2 * self.total)
        return found

    def estimates(self, nodes: list[list[float]]) -> list[float]:
        """Least-squares estimates of the bands."""
        size = len(nodes[0])
        pulled = [0.0] * size
        for level, (noisy, variance) in enumerate(zip(nodes, self.own, strict=True)):
            pulled = [one + noisy[n >> 2 * level] / variance for n, one in enumerate(pulled)]
        out, whole, before = [0.0] * size, 0.0, 0.0
        for level, variance in enumerate(self.own):
            whole += 4**level / variance
            share, before = (1 / whole - before) / 4**level, 1 / whole
            out = [one + pulled[n >> 2 * level] * share for n, one in enumerate(out)]
            pulled = fours(pulled)
        return out

    def smooth(self, bands: list[float], total: float) -> list[float]:
        """Nonnegative bands that add up to the total: shrunk where they may be noise."""
        levels, whole, spread = [bands], 0.0, []
        while len(levels[-1]) > 4:
            levels.append(fours(levels[-1]))
        for level, variance in enumerate(self.own):
            whole += 4**level / variance
            spread.append(4**level / whole)
        given = [total]
        for level, variance in zip(levels[::-1], spread[-2::-1], strict=True):
            children: list[float] = []
            for n, one in enumerate(given):
                four = level[4 * n : 4 * n + 4]
                mean = fours(four)[0] / 4
                apart = [x - mean for x in four]
                energy = fours([x * x for x in apart])[0]
                kept = max(0.0, 1 - variance / max(energy, variance))
                children += nearest([x * kept for x in apart], one)
            given = children
        return given


def fours(values: list[float]) -> list[float]:
    """Sums of every four values, from left to right; a root is its own sum."""
    if len(values) < 4:
        return values
    return [values[n] + values[n + 1] + values[n + 2] + values[n + 3]
            for n in range(0, len(values), 4)]  # fmt: skip


def nearest(four: list[float], total: float) -> list[float]:
    """The nearest nonnegative numbers that add up to the total."""
    kept = [True] * 4
    for _ in range(4):
        whole = fours([x if k else 0.0 for x, k in zip(four, kept, strict=True)])[0]
        shift = (total - whole) / max(sum(kept), 1)
        moved = [x + shift if k else 0.0 for x, k in zip(four, kept, strict=True)]
        kept = [k and x > 0 for x, k in zip(moved, kept, strict=True)]
    return [max(x, 0.0) for x in moved]


def crossing(rise: list[float], edges: list[int]) -> int:
    """Where a nondecreasing function crosses 0, by straight lines between the edges."""
    after = sum(x < 0 for x in rise)
    if not after:
        return edges[0]
    if after == len(rise):
        return edges[-1]
    start, end = rise[after - 1 : after + 1]
    return edges[after - 1] + round(-start / (end - start) * (edges[after] - edges[after - 1]))


def level(values: list[float]) -> list[float]:
    """The nearest nondecreasing function: slopes of the convex hull below the running sums."""
    hull = [(0, 0.0)]
    for n, height in enumerate(running(values), 1):
        while len(hull) > 1:
            (a, low), (b, high) = hull[-2:]
            if (high - low) / (b - a) <= (height - high) / (n - b):
                break
            hull.pop()
        hull.append((n, height))
    return [(high - low) / (b - a) for (a, low), (b, high) in pairwise(hull) for _ in range(a, b)]


def interval(pivot: list[float], half: list[float], edges: list[int]) -> tuple[int, int]:
    """The smallest range of whole bands whose edges may be on either side of the quantile."""
    size = range(len(pivot))
    middle = level(pivot)
    reached = [n for n in size if middle[n] + NEARER * half[n] >= 0]
    below = [n for n in size if middle[n] - NEARER * half[n] <= 0]
    first = min(reached) if reached else len(pivot)
    last = max(below) + 1 if below else 0
    return edges[max(first - 1, 0)], edges[min(last, len(edges) - 1)]


class QuantileJudge(Judge):
    """Judge of a pipeline of quantiles."""

    rules: QuantileRules

    def add(self, content: dict[bytes, list[list[int]]], event: Event, lane: int) -> None:
        """Count an accepted record and its band."""
        sums = content.setdefault(event.key, [[0] * (1 + self.rules.bands)])[0]
        for place in (0, 1 + self.rules.band(event.value)):
            sums[place] += event.sign

    def at(
        self, window: Window, trigger: Clock, purpose: str, key: bytes, *more: Any, **named: Any
    ) -> tuple[int, Fraction]:
        """Noise of the count, by which keys are found."""
        return super().at(window, trigger, purpose.removesuffix("/S"), key, *more, **named)

    def row(self, window: Window, trigger: Clock, key: bytes) -> dict[str, Any]:
        """The record of one public key."""
        rules, t, shard = self.rules, trigger["index"], self.nonces.shard(key)
        counts = window.sums.get(key, [[0] * (1 + rules.bands)])[0][1:]
        nodes: list[list[float]] = []
        own: list[float] = []
        for purpose in rules.levels:
            noisy = []
            for n, exact in enumerate(counts):
                name = key if len(counts) == 1 else key + n.to_bytes(2, "big")
                z = window.drawn.setdefault((purpose, name, shard), [])
                noise, variance = self.noisy(z, trigger, purpose, name, shard, t)
                noisy.append((exact + noise // STEPS) + (noise % STEPS + 0.5) / STEPS)
            nodes.append(noisy)
            own.append(float(variance))
            counts = [sum(counts[n : n + 4]) for n in range(0, len(counts), 4)]
        body = self.body(trigger, key, {"count": 0}, {"count": 0})
        return body | {"values": self._told(self._tree(tuple(own)), nodes)}

    @staticmethod
    @lru_cache(None)
    def _tree(own: tuple[float, ...]) -> Tree:
        return Tree(own)

    def _told(self, tree: Tree, nodes: list[list[float]]) -> dict[str, Any]:
        """Quantiles with their intervals, and counts."""
        rules, release = self.rules, self.rules.config["release"]
        reach = NormalDist().inv_cdf((1 + float(Fraction(release["confidence_level"]))) / 2)
        bands = tree.estimates(nodes)
        below = running(bands)
        total, whole = below[-1], max(below[-1], 1.0)
        risen = running(tree.smooth(bands, whole))[:-1]
        out = {}

        def put(name: str, value: float, spread: float, ends: tuple[float, float]) -> None:
            out[name] = {"value": value, "stddev": six(spread),
                         "low": ends[0], "high": ends[1]}  # fmt: skip
            if release["display"] != "raw":
                either = value.ends if isinstance(value, Between) else (value, value)
                out[name]["display_value"] = Between(max(either[0], 0), max(either[1], 0))

        for share in sorted(rules.parameters["at"]):
            half = [reach * math.sqrt(one) for one in tree.pivots(share)]
            least, most = (
                crossing([x - share * whole + tiny * whole for x in risen], rules.edges)
                for tiny in (TINY, -TINY)
            )
            low, high = interval([x - share * total for x in below[:-1]], half, rules.edges)
            lows, highs = [(f(end, least), f(end, most)) for f, end in ((min, low), (max, high))]
            value, *ends = (
                Between(plain(a * rules.step), plain(b * rules.step))
                for a, b in ((least, most), lows, highs)
            )
            name, step = f"p{100 * share:g}".replace(".", "_"), float(rules.step)
            spreads = (highs[0] - lows[1], highs[1] - lows[0])  # where the value is an end
            put(name, value, 0, (ends[0], ends[1]))
            out[name]["stddev"] = Between(*(six(one / (2 * reach) * step) for one in spreads))
        known = {"count": (total, tree.total), "below": (bands[0], tree.band),
                 "above": (bands[-1], tree.band)}  # fmt: skip
        for name, (number, variance) in known.items():
            exact, rounded = Fraction(held(round(number))), six(math.sqrt(variance))
            half_width = widened(Fraction(repr(six(reach * rounded))), Fraction(1))
            either = float(exact - half_width), float(exact + half_width)
            if rules.config["sign"] is None:
                either = max(either[0], 0.0), max(either[1], 0.0)
            put(name, plain(exact), math.sqrt(variance), either)
        return out


def running(values: list[float]) -> list[float]:
    """Running sums from the left."""
    found, so_far = [], 0.0
    for one in values:
        so_far += one
        found.append(so_far)
    return found
