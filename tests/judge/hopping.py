"""The histogram of windows that overlap: each release covers the last n hops of one stream.

A key lives from its first accepted record until 2K + 1 epochs after its last one; a public key
lives for ever. Each hop of a key's life draws noise once. When a life begins, the noise of earlier
hops is drawn as well.
"""

from collections import defaultdict
from fractions import Fraction
from typing import Any

from .histogram import Judge, Release
from .matrices import BITS
from .numbers import STEPS, floored, limited, parts, weights, wrapped
from .rows import utc
from .stream import Clock


class HoppingJudge(Judge):
    """Judge of a pipeline with window.hop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun = self.before = -(1 << 62)  # first and last hop of the chain of released hops
        self.forget()
        hops, size = self.rules.hops, self.rules.per_epoch
        self.earlier = -(-(hops - 1) // size)
        self.shares = [
            [(back, before, last, weights(self.rules.matrix, before, last))
             for back, before, last in parts(row, hops, size)]
            for row in range(1, size + 1)
        ]  # fmt: skip

    def forget(self) -> None:
        """Start without any state."""
        self.sums: dict[int, dict[bytes, list[int]]] = defaultdict(dict)  # by hop
        self.seen: dict[bytes, int] = {}  # epoch of the last record
        self.z: dict[bytes, dict[tuple[str, int], int]] = defaultdict(dict)

    def release(self, trigger: Clock) -> Release:
        """Add a hop, draw its noise, and make the row of every key whose window is shown."""
        rules, hop = self.rules, trigger["window"]
        epoch, self.windows[hop].released = hop // rules.per_epoch, 1
        if hop != self.before + 1:
            self.begun = hop
            self.forget()
        self.before = hop
        contents = self.content.pop((hop, 1), {})
        self.sums[hop] = {key: [limited(x) for x in lanes[0]] for key, lanes in contents.items()}
        for key in [k for k, last in self.seen.items() if epoch - last > 2 * self.earlier]:
            if rules.listed is None:
                del self.seen[key], self.z[key]
        for key in sorted({*contents, *(rules.listed or ())}):
            if key not in self.seen:
                self.live(trigger, key)
            self.seen[key] = epoch
        for key in self.seen:
            self.draw(trigger, key, hop, hop % rules.per_epoch)
        rows = {key: row for key in sorted(self.seen) if (row := self.shown(trigger, key))}
        bar = rules.thresholds[hop % rules.per_epoch] if rules.thresholds else None
        held = min(rules.hops, hop - self.begun + 1)
        return Release(trigger, utc(rules.opens(hop)), rows, contents, bar, hops=(held, rules.hops))

    def live(self, trigger: Clock, key: bytes) -> None:
        """Draw the noise of earlier hops that windows of the key's life still contain."""
        size, hop = self.rules.per_epoch, trigger["window"]
        for back in range(self.earlier + 1):
            first = (hop // size - back) * size
            if first + size > self.begun:  # some hops of this epoch were released
                for place in range(size):
                    if first + place <= hop:
                        self.draw(trigger, key, first + place, back * size + place)

    def draw(self, trigger: Clock, key: bytes, hop: int, index: int) -> None:
        """Draw the noise of a hop, once."""
        shard = self.nonces.shard(key)
        for name in self.rules.names[1 - self.rules.counted :]:
            if (name, hop) not in self.z[key]:
                variance = self.rules.variance[f"{name}/S"]
                label = self.noise.label(f"{name}/S", variance, trigger, shard, 1)
                self.z[key][name, hop] = self.noise.draw(label, key, index, variance)

    def shown(self, trigger: Clock, key: bytes) -> dict[str, Any] | None:
        """The record of a key; None if the key is hidden."""
        rules, hop = self.rules, trigger["window"]
        blank = [0] * len(rules.names)
        held = [self.sums[n].get(key, blank) for n in range(hop + 1 - rules.hops, hop + 1)
                if n >= self.begun]  # fmt: skip
        exact = [sum(column) for column in zip(*held, strict=True)]
        value: dict[str, int] = {}
        variance: dict[str, Any] = {}
        for place, name in list(enumerate(rules.names))[1 - rules.counted :]:
            steps, spread = self.window(key, name, hop)
            if name == "count" and rules.listed is None:
                bar = rules.thresholds[hop % rules.per_epoch]
                if exact[0] < 1 or exact[0] * STEPS + steps < bar:
                    return None
            value[name] = wrapped(exact[place] + (steps + STEPS // 2) // STEPS)
            variance[name] = spread * rules.variance[f"{name}/S"] / 4**BITS
        return self.body(trigger, key, value, variance)

    def window(self, key: bytes, name: str, hop: int) -> tuple[int, Fraction]:
        """Noise of a window, each prefix sum rounded down to 1/256, and its variance in σ²."""
        size, steps, squares = self.rules.per_epoch, 0, Fraction(0)
        for back, before, last, row in self.shares[hop % size]:
            first = (hop // size - back) * size
            if first + size <= self.begun:
                continue
            for end, sign in ((last, 1), (before, -1)):
                if end:
                    found, common = self.rules.matrix.row(end)
                    z = [self.z[key][name, first + place] for place in range(end)]
                    total = sum(b * one for b, one in zip(found, z, strict=True))
                    steps += sign * floored(total, common)
            squares += sum((b * b for b in row), Fraction(0))
        return steps, squares
