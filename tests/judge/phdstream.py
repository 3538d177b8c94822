"""PHDStream: a tree that grows anew at every trigger, by private scores or released counts.

Counts, trees and leaves match exactly. They are integers, except for shares of what ancestors
counted: doubles, rounded down, computed in the documented order. Squared errors are sums of doubles
and match to six digits.
"""

import math
import struct
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

from .histogram import Release
from .numbers import STEPS, floored
from .phd_rules import GRID, SCORE, PhdRules, Splits
from .phd_shares import Live, Node, crowded, divided, unlike
from .space import Counted, Events, SpaceJudge
from .stream import Clock
from .wide import laplace_variance


def single(x: float) -> float:
    """A double, rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


class PhdJudge(SpaceJudge):
    """Judge of a PHDStream pipeline."""

    rules: PhdRules

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.trees: dict[int, dict[int, Node]] = defaultdict(dict)  # by window
        self.events: dict[int, list[tuple[int, Events]]] = defaultdict(list)  # by window: trigger

    def release(self, trigger: Clock) -> Release:
        """Grow the tree, count at its leaves, and release the leaves."""
        rules, window, t = self.rules, trigger["window"], trigger["index"]
        self.events[window].append((t, self.begin(trigger)))
        if t < rules.first:
            return self.told(trigger, {}, (), GRID, {"leaves": [0]})
        inserts, deletes = self.now(window, t)
        tree = self.grown(trigger, inserts)
        for code in [code for code, live in tree.items() if not live.children]:
            change = within(inserts, code, rules.bits) - within(deletes, code, rules.bits)
            self.counted(trigger, code, tree[code].node, change)
        if rules.forget:
            self.trees[window] = {code: live.node for code, live in tree.items()}
        made = self.leaves(tree)
        public = {"leaves": [len(made)]}
        if rules.total:
            new = [e.all[0] for at, e in self.events[window] if at == t or t == rules.first]
            records = self.all_records(trigger, sum(new), bytes(8))
            made, more = self.corrected(made, GRID, records, t - rules.first + 1)
            public |= more
        return self.told(trigger, made, ("count", "unbiased"), GRID, public)

    def now(self, window: int, t: int) -> tuple[Counter[int], Counter[int]]:
        """The insertions and deletions that count at a trigger."""
        rules = self.rules
        inserts, deletes = Counter[int](), Counter[int]()
        for at, events in self.events[window]:
            if max(at, rules.first) == t:
                inserts.update(events.inserts)
                deletes.update(events.deletes)
            over = at + rules.lifetime
            if rules.lifetime and over <= rules.horizon and max(over, rules.first) == t:
                deletes.update(events.inserts)
        return inserts, deletes

    def grown(self, trigger: Clock, inserts: Counter[int]) -> dict[int, Live]:
        """The live tree, grown level by level."""
        rules, known, t = self.rules, self.trees[trigger["window"]], trigger["index"]
        carried = max((node.carried for node in known.values()), default=0.0)
        opening = rules.opening if t == rules.first else None
        root = known.setdefault(1, Node())
        tree = {1: Live(root, 0, max((root.out + root.below) * GRID, 0))}
        level = [1]
        for depth in range(rules.depth + 1):
            below: list[int] = []
            for code in level:
                live = tree[code]
                private = opening or rules.private
                if private is not None:
                    score = live.estimate // (GRID // SCORE)
                    score += SCORE * within(inserts, code, rules.bits)
                    splits = self.split(private, trigger, code, depth, score)
                else:
                    splits = self.exceeds(live.estimate, depth, t, carried)
                if splits:
                    below += self.offspring(tree, known, code)
            level = below
            if not level:
                break
        return tree

    def split(self, by: Splits, trigger: Clock, code: int, depth: int, score: int) -> bool:
        """Whether a noisy score splits a node."""
        if depth < by.floor or depth >= self.rules.depth:
            return depth < by.floor
        margin = max(score - depth * by.delta - SCORE * by.theta, -by.delta)
        t, key = trigger["index"], code.to_bytes(8, "big")
        return margin + self.noise.laplace("split", by.scale, trigger, t, key, t) > 0

    def exceeds(self, estimate: int, depth: int, t: int, carried: float) -> bool:
        """Whether a released count is the required number of deviations above θ."""
        rules, p = self.rules, self.rules.own
        if depth < p["floor"] or depth >= rules.depth:
            return bool(depth < p["floor"])
        active = t - 1 - rules.first + (rules.opening is None)
        square = rules.variance(max(active, int(rules.opening is None)))
        by_trigger = rules.kind in ("simple", "block")
        opened = laplace_variance(1 / rules.opened) if rules.opening else 0.0
        square += opened if by_trigger else carried
        bar = p["theta"] + math.ceil(float(Fraction(p["resolution"])) * math.sqrt(square))
        return estimate > bar * GRID

    def offspring(self, tree: dict[int, Live], known: dict[int, Node], code: int) -> list[int]:
        """The children of a node, each with its share of what was counted above it."""
        rules, parent = self.rules, tree[code]
        codes = [code << rules.step | n for n in range(1 << rules.step)]
        codes = [one for one in codes if rules.possible(one)] or codes
        nodes = [known.setdefault(one, Node()) for one in codes]
        own = [node.out + node.below for node in nodes]
        inherited = parent.above + parent.node.out * GRID
        weight = [max(n, 0) + rules.smoothing if rules.smoothing else 1 for n in own]
        upto = [sum(weight[: n + 1]) for n in range(len(weight))]
        parts = [math.floor(inherited * (n / upto[-1])) for n in upto[:-1]] + [inherited]
        above = [b - a for a, b in zip([0, *parts], parts, strict=False)]
        shares = nearest(parent.estimate, [a + n * GRID for a, n in zip(above, own, strict=True)])
        for one, node, a, estimate in zip(codes, nodes, above, shares, strict=True):
            tree[one] = Live(node, a, estimate)
        parent.children = codes
        return codes

    def counted(self, trigger: Clock, code: int, node: Node, change: int) -> None:
        """Count the change at a leaf."""
        rules, t, key = self.rules, trigger["index"], code.to_bytes(8, "big")
        if rules.opening and t == rules.first:
            node.out += change + self.noise.laplace(
                "simple", 1 / rules.opened, trigger, t, key, t)  # fmt: skip
            node.carried = single(node.carried + single(laplace_variance(1 / rules.opened)))
        elif rules.kind == "simple":
            node.steps += 1
            node.out += change + self.noise.laplace("simple", rules.scale(), trigger, t, key, t)
        elif rules.kind == "block":
            node.steps += 1
            drawn = self.noise.laplace("block", rules.scale(), trigger, t, key, t)
            base, ends = node.out - node.second, node.steps % rules.own["block"] == 0
            node.first, node.second = node.first + change, node.second + change + drawn
            node.out = base + (node.first + drawn if ends else node.second)
            if ends:
                node.first, node.second = 0, 0
        else:
            self.chained(trigger, key, node, change)
        if rules.forget:
            node.out, node.below = node.out + node.below, 0
            node.carried, node.spread = single(node.carried + single(node.spread)), 0.0

    def chained(self, trigger: Clock, key: bytes, node: Node, change: int) -> None:
        """Add one activation to the chain; start a new chain if the nonce has changed."""
        rules, t = self.rules, trigger["index"]
        if not node.steps or node.start < self.renewed[trigger["window"]]:
            node.carried = single(node.carried + single(rules.variance(node.steps)))
            node.first, node.second, node.steps, node.start = 0, node.out, 0, t
        place, done = divmod(node.steps, rules.steps)
        node.steps, node.first = node.steps + 1, node.first + change
        start = node.start.to_bytes(8, "big")
        if rules.kind == "matrix":
            label = self.noise.label("matrix", rules.square, trigger, 0, node.start)
            row, common = rules.matrix.row(node.steps)
            z = [self.noise.draw(label, key + start, n, rules.square) for n in range(len(row))]
            total = sum(b * one for b, one in zip(row, z, strict=True))
            drawn = (floored(total, common, rules.matrix.bits) + STEPS // 2) // STEPS
        else:
            drawn = 0
            for bit in range(rules.steps.bit_length()):
                if (done + 1) >> bit & 1:
                    words = place, bit, ((done + 1) >> bit) - 1
                    name = key + start + b"".join(n.to_bytes(8, "big") for n in words)
                    scale = rules.scale()
                    drawn += self.noise.laplace("tree", scale, trigger, node.start, name)
        node.out = node.second + node.first + drawn
        if rules.kind == "tree" and done + 1 == rules.steps:
            node.first, node.second = 0, node.out

    def leaves(self, tree: dict[int, Live]) -> Counted:
        """Both counts of every leaf and their squared errors, in 1/GRID records."""
        for code in sorted(tree, reverse=True):  # children before their parents
            live = tree[code]
            live.variance = self.rules.variance(live.node.steps) + live.node.carried
            if live.children:
                mine = [tree[one] for one in live.children]
                live.node.below = sum(one.node.out + one.node.below for one in mine)
                live.node.spread = sum(one.variance + one.node.spread for one in mine)
            live.age = live.node.steps + max((tree[one].age for one in live.children), default=0)
        # Leaves have counted since the tree grew, so their shares of what is above change too.
        found: Counted = {}
        fresh, parts = self.described(tree), crowded(tree, 1 << self.rules.step)
        for code in sorted(tree):
            live = tree[code]
            above, estimate = fresh[code]
            inherited = above + live.node.out * GRID
            whole, mine = max(inherited, 0) / GRID, [tree[one] for one in live.children]
            doubt = unlike(whole, mine, tree[1])
            for one in live.children:
                w = max(min(fresh[one][0] / inherited, 1), 0) if inherited else 1 / len(mine)
                divided(tree[one], live, w, whole, doubt, len(mine), parts[code.bit_length()])
            if not live.children:
                raw = (live.node.out + live.node.below) * GRID + above
                square = (live.error + live.variance + live.node.spread) * GRID**2
                found[code] = [estimate, raw], [square + max(raw - estimate, 0) ** 2, square]
        return found

    def described(self, tree: dict[int, Live]) -> dict[int, tuple[int, int]]:
        """`above` and the estimate of each node, after the leaves have counted."""
        again = {1: Live(tree[1].node, 0, max((tree[1].node.out + tree[1].node.below) * GRID, 0))}
        known = {code: live.node for code, live in tree.items()}
        for code in sorted(tree):
            if tree[code].children:
                self.offspring(again, known, code)
        return {code: (live.above, live.estimate) for code, live in again.items()}


def within(events: Counter[int], code: int, bits: int) -> int:
    """The number of events in a node."""
    drop = bits + 1 - code.bit_length()
    return sum(n for cell, n in events.items() if cell >> drop == code)


def nearest(total: int, raw: list[int]) -> list[int]:
    """The nearest nonnegative integers that add up to ``total``; the largest takes the rest."""
    shift, excess = -(2**52), -total
    for k, value in enumerate(sorted(raw, reverse=True), 1):
        excess += value
        shift = max(shift, (excess + k - 1) // k)
    out = [max(x - shift, 0) for x in raw]
    out[raw.index(max(raw))] += total - sum(out)
    return out
