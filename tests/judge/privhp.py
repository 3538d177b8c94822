"""PrivHP: noisy sums of every level of a binary tree, and the tree that grows from them.

Sums and noise are integers and match exactly. Joint decoding of children from a sketch solves a
least-squares problem in doubles and rounds the result. The judge takes the documented steps of
conjugate gradients in the same order, so its counts match as well. Squared errors match to six
digits.
"""

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

from .histogram import Release
from .hp_rules import PrivhpRules
from .numbers import STEPS, floored
from .space import SpaceJudge
from .stream import Clock

Table = list[list[int]]  # sums by level
ROUNDS, ENOUGH = 40, 1e-12
RECORDS = (2**64 - 2).to_bytes(8, "big")


class PrivhpJudge(SpaceJudge):
    """Judge of a PrivHP pipeline."""

    rules: PrivhpRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.exact: dict[int, Table] = {}  # by window
        self.drawn: dict[Any, int] = defaultdict(int)

    def release(self, trigger: Clock) -> Release:
        """Add the new records, and grow the tree from noisy sums."""
        rules, window, t = self.rules, trigger["window"], trigger["index"]
        events = self.begin(trigger)
        blank = [[0] * rules.cells(level) for level in rules.levels]
        table = self.exact.setdefault(window, blank)
        for counts, sign in ((events.inserts, 1), (events.deletes, -1)):
            for cell, number in counts.items():
                for level in rules.levels:
                    for place, way in rules.sums(cell >> rules.bits - level):
                        table[level][place] += sign * way * number
        noisy = [[exact + self.noisy_sum(trigger, level, n) for n, exact in enumerate(sums)]
                 for level, sums in enumerate(table)]  # fmt: skip
        made = {
            code: ([count], [rules.variance(code.bit_length() - 1, t)])
            for code, count in self.grown(noisy, t).items()
        }
        public: dict[str, list[int]] = {}
        if rules.total:
            records = self.all_records(trigger, events.all[0], RECORDS)
            made, public = self.corrected(made, 1, records, t)
        return self.told(trigger, made, ("count",), 1, public)

    def noisy_sum(self, trigger: Clock, level: int, slot: int) -> int:
        """Noise of one sum after a trigger."""
        rules, t, size = self.rules, trigger["index"], self.rules.sizes[level]
        if not rules.gauss:
            total = 0
            for i in range(t.bit_length()):
                if t >> i & 1:
                    name = bytes([level, i]) + ((t >> i) - 1).to_bytes(8, "big")
                    place = trigger["window"], name, slot
                    if place not in self.drawn:
                        first = t >> i << i
                        self.drawn[place] = self.noise.laplace(
                            "sums", size, trigger, first, name, slot)  # fmt: skip
                    total += self.drawn[place]
            return total
        row, common = rules.matrix.row(t)
        name, total = (level << 56 | slot).to_bytes(8, "big"), 0
        width = rules.matrix.width
        for n, b in enumerate(row):
            place = trigger["window"], name, n
            if place not in self.drawn:
                first = sum(w <= n for w in width)
                label = self.noise.label(f"sums/{level}", size, trigger, 0, first)
                self.drawn[place] = self.noise.draw(label, name, n, size)
            total += b * self.drawn[place]
        return (floored(total, common, rules.matrix.bits) + STEPS // 2) // STEPS

    def grown(self, table: Table, t: int) -> dict[int, int]:
        """Leaves and their counts; an empty node has no descendants."""
        rules, p = self.rules, self.rules.own
        joint = p["decode"] == "joint"
        if joint:
            table = self.pooled(table, t)
        level, found, spilled = {1: max(table[0][0], 0)}, {}, 0.0
        for depth in rules.levels:
            chosen = self.refined(level, depth, t)
            gone = [count for code, count in level.items() if code not in chosen]
            found.update({code: n for code, n in level.items() if code not in chosen})
            if not chosen:
                break
            spilled += math.fsum(float(n) ** 2 for n in gone)
            parents = {code: level[code] for code in chosen}
            if depth + 1 > rules.exact and joint:
                square = rules.variance(depth + 1, t) + spilled / rules.width
                looks = self.decoded(table[depth + 1], parents, square)
            else:
                looks = {one: self.estimate(table[depth + 1], one)
                         for code in chosen for one in (2 * code, 2 * code + 1)}  # fmt: skip
            level = {}
            for code, count in parents.items():
                left = consistent(count, looks[2 * code], looks[2 * code + 1])
                left = left if rules.possible(2 * code + 1) else count
                left = left if rules.possible(2 * code) else 0
                level |= {2 * code: left, 2 * code + 1: count - left}
        return merged(found)

    def refined(self, level: dict[int, int], depth: int, t: int) -> list[int]:
        """The nodes of a level that get children, in order."""
        rules, p = self.rules, self.rules.own
        if depth == rules.bits:
            return []
        if depth < rules.exact:
            return sorted(level)
        if p["prune"] == "threshold":
            square = math.ceil(Fraction(p["bar"]) ** 2 * Fraction(rules.variance(depth + 1, t)))
            bar = max(1, math.isqrt(square - 1) + 1)
            return sorted(code for code, count in level.items() if count >= bar)
        some = sorted((code for code, n in level.items() if n > 0), key=lambda c: (-level[c], c))
        return sorted(some[: rules.keep])

    def pooled(self, table: Table, t: int) -> Table:
        """Each counter averaged with the sum of its children, from the last exact level up."""
        rules, table = self.rules, [*table]
        below = rules.variance(rules.exact, t)
        for level in range(rules.exact - 1, -1, -1):
            own = rules.variance(level, t)
            share = own / (own + 2 * below)
            pairs = zip(table[level], table[level + 1][::2], table[level + 1][1::2], strict=True)
            table[level] = [one + round(share * (a + b - one)) for one, a, b in pairs]
            below = (1 - share) * own
        return table

    def estimate(self, sums: list[int], code: int) -> int:
        """The count of one node: the median of its rows, or the least of them."""
        looks = sorted(sign * sums[place] for place, sign in self.rules.sums(code))
        return looks[len(looks) // 2 if self.rules.own["sketch"] == "count" else 0]

    def decoded(self, sums: list[int], parents: dict[int, int], variance: float) -> dict[int, int]:
        """Decode both children of all parents jointly, by their differences d from P/2.

        The minimum of Σ(y - Σ s·x)²/v + Σ d²/(P²/12), by conjugate gradients with a diagonal
        preconditioner.
        """
        rules, codes = self.rules, sorted(parents)
        half = [parents[code] / 2.0 for code in codes]
        prior = [h**2 / 3 for h in half]
        # Left children of a row, then right ones, row by row: this order fixes the sums of doubles.
        where = [
            [(rules.places(2 * code + right)[row][0],
              float(rules.places(2 * code + right)[row][1] * (1 - 2 * right))) for code in codes]
            for row in range(rules.rows) for right in (0, 1)
        ]  # fmt: skip
        known = [0.0] * len(sums)
        for row in range(rules.rows):
            mine = [0.0] * len(sums)
            for code, h in zip(codes, half, strict=True):
                for child in (2 * code, 2 * code + 1):
                    place, sign = rules.places(child)[row]
                    mine[place] += sign * h
            known = [a + b for a, b in zip(known, mine, strict=True)]

        def spread(d: list[float]) -> list[float]:
            out = [0.0] * len(sums)
            for one in where:
                for (place, sign), x in zip(one, d, strict=True):
                    out[place] += sign * x
            return out

        def gather(y: list[float]) -> list[float]:
            out = []
            for n in range(len(codes)):
                total = 0.0
                for one in where:
                    total += one[n][1] * y[one[n][0]]
                out.append(total / variance)
            return out

        scale = [1 / (len(where) / variance + 1 / one) for one in prior]
        found = [0.0] * len(codes)
        rest = gather([y - k for y, k in zip(sums, known, strict=True)])
        step = [s * r for s, r in zip(scale, rest, strict=True)]
        size = start = inner(rest, step)
        for _ in range(ROUNDS):
            if size <= ENOUGH * start:
                break
            image = [g + s / p for g, s, p in zip(gather(spread(step)), step, prior, strict=True)]
            length = size / inner(step, image)
            found = [f + length * s for f, s in zip(found, step, strict=True)]
            rest = [r - length * i for r, i in zip(rest, image, strict=True)]
            scaled = [s * r for s, r in zip(scale, rest, strict=True)]
            before, size = size, inner(rest, scaled)
            step = [s + (size / before) * one for s, one in zip(scaled, step, strict=True)]
        made = {}
        for code, h, d in zip(codes, half, found, strict=True):
            left = min(max(round(h + d), 0), parents[code])
            made |= {2 * code: left, 2 * code + 1: parents[code] - left}
        return made


def inner(a: list[float], b: list[float]) -> float:
    """The sum of products, rounded once."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def consistent(parent: int, left: int, right: int) -> int:
    """The left child, after both children are lowered by half of their excess over the parent."""
    left, right = max(left, 0), max(right, 0)
    return min(max(left - round(Fraction(left + right - parent, 2)), 0), parent)


def merged(leaves: dict[int, int]) -> dict[int, int]:
    """Replace empty siblings by their parent until there are none."""
    found, before = dict(leaves), -1
    while len(found) != before:
        before = len(found)
        for code in sorted(found, reverse=True):
            if code > 1 and found.get(code) == found.get(code ^ 1) == 0:
                del found[code], found[code ^ 1]
                found[code >> 1] = 0
    return dict(sorted(found.items()))
