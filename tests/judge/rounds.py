"""The histogram that finds keys in rounds: distinct units, a buffer, a release at each crossing.

A key gathers units and a buffer. At the first trigger at which the noisy number of units reaches
the threshold for the round's age, the buffer joins the released total and the next round begins.
Selection draws noise for a key and round. Values draw noise for a key and chain, one step for each
release. A chain ends when the nonce has changed since the chain began; its noisy total is then the
base of the next chain.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .histogram import Judge, Release, Unit, Window
from .numbers import STEPS, limited, wrapped
from .rows import utc
from .stream import Clock, Objection, Placed


@dataclass
class Key:
    """One key of a window."""

    buffer: list[int]
    total: list[int]
    base: list[int]  # noisy total of earlier chains
    spread: list[Fraction]  # variance of `base`
    units: int = 0
    round: int = 0
    start: int = 0  # trigger after which the round counts
    chain: int = 0  # trigger at which the chain began
    leaf: int = 0  # releases in the chain
    history: list[tuple[int, int]] = field(default_factory=list)  # (trigger, round after it)


class RoundsJudge(Judge):
    """Judge of a pipeline with `selection = "rounds"`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.keys: dict[tuple[int, bytes], Key] = defaultdict(self.fresh)
        self.arrived: dict[tuple[int, int], Counter[tuple[bytes, int]]] = defaultdict(Counter)
        self.counted: dict[Any, int] = defaultdict(int)  # 1 + last round that counted a unit

    def fresh(self) -> Key:
        """A key without data."""
        size = 1 + len(self.rules.columns)
        return Key([0] * size, [0] * size, [0] * size, [Fraction(0)] * size)

    def take(self, place: Any, one: Placed) -> None:
        """Count one record; count its unit once per round."""
        rules, window, key = self.rules, self.windows[one.window], one.event.key
        seen = one.batch - 1 - rules.delay
        if window.released < seen:
            raise Objection("a record was bounded before what it depends on was released")
        unit = self.units.setdefault(place, Unit(rules.budget))
        if min(unit.left, self.purses.room(place)) < 1:
            return
        unit.left -= 1
        self.purses.pay(place, 1)
        self.add(self.content[one.window, one.batch], one.event, 0)
        known = self.keys[one.window, key].history if (one.window, key) in self.keys else []
        current = max((nth for trigger, nth in known if trigger <= seen), default=0)
        if one.event.sign > 0 and current + 1 > self.counted[place, one.window, key]:
            self.counted[place, one.window, key] = current + 1
            self.arrived[one.window, one.batch][key, current] += 1

    def release(self, trigger: Clock) -> Release:
        """Add the closed micro-batch, and release every key whose round ends here."""
        number, t = trigger["window"], trigger["index"]
        contents = self.content.pop((number, t), {})
        for name, (sums,) in contents.items():
            key = self.keys[number, name]
            key.buffer = [a + limited(b) for a, b in zip(key.buffer, sums, strict=True)]
        for (name, nth), units in self.arrived.pop((number, t), {}).items():
            # A record that saw an older round is summed, but its unit no longer counts.
            self.keys[number, name].units += units * (self.keys[number, name].round == nth)
        window, rows = self.windows[number], {}
        for name in sorted(name for at, name in self.keys if at == number):
            key = self.keys[number, name]
            if key.units >= self.rules.least and self.ends(window, trigger, name, key):
                rows[name] = self.published(window, trigger, name, key)
        window.released = t
        start = utc(self.rules.start(number))
        if trigger["final"]:
            for place in [place for place in self.keys if place[0] == number]:
                del self.keys[place]
        return Release(trigger, start, rows, contents, self.rules.thresholds[-1])

    def ends(self, window: Window, trigger: Clock, name: bytes, key: Key) -> bool:
        """Whether the noisy number of units reaches the threshold for the round's age."""
        age, label = trigger["index"] - key.start, name + key.round.to_bytes(4, "big")
        shard = self.nonces.shard(name)
        z = window.drawn.setdefault(("select", label, shard), [])
        noise, _ = self.noisy(
            z, trigger, "select", label, shard, age, when=lambda step: key.start + step
        )
        return key.units * STEPS + noise >= self.rules.thresholds[age - 1]

    def published(self, window: Window, trigger: Clock, name: bytes, key: Key) -> dict[str, Any]:
        """End the round and release the key's total."""
        t, shard = trigger["index"], self.nonces.shard(name)
        nonces = [self.nonces.nonce(trigger["window"], shard, n) for n in range(1, t + 1)]
        renewed = max((n for n in range(2, t + 1) if nonces[n - 1] != nonces[n - 2]), default=1)
        if key.leaf and key.chain < renewed:
            key.base, key.spread = self.chained(window, trigger, name, key)
            key.total, key.leaf = [0] * len(key.total), 0
        if not key.leaf:
            key.chain = t
        key.leaf += 1
        key.total = [a + b for a, b in zip(key.total, key.buffer, strict=True)]
        key.buffer, key.units, key.start = [0] * len(key.buffer), 0, t
        key.round += 1
        key.history.append((t, key.round))
        value, variance = self.chained(window, trigger, name, key)
        names = ["count", *(f"sum:{c.path}" for c in self.rules.columns)]
        return self.body(
            trigger, name, dict(zip(names, value, strict=True)),
            dict(zip(names, variance, strict=True)),
        )  # fmt: skip

    def chained(
        self, window: Window, trigger: Clock, name: bytes, key: Key
    ) -> tuple[list[int], list[Fraction]]:
        """Noisy totals of centred columns after the chain's last release, with variances."""
        label, shard = name + key.chain.to_bytes(4, "big"), self.nonces.shard(name)
        value, variance = [], []
        for n, column in enumerate(["count", *(f"sum:{c.path}" for c in self.rules.columns)]):
            purpose = f"{column}/S"
            z = window.drawn.setdefault((purpose, label, shard), [])
            noise, spread = self.noisy(
                z, trigger, purpose, label, shard, key.leaf, when=lambda step: key.chain
            )
            value.append(wrapped(key.base[n] + key.total[n] + (noise + (STEPS + 1) // 2) // STEPS))
            variance.append(key.spread[n] + spread)
        return value, variance
