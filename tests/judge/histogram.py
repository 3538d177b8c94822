"""The histogram pipeline, specified a second time to judge what the product has released.

From raw log, clock log, public configuration and noise key, the judge computes one record at a
time each micro-batch after the contribution bound, the noise, and every row that must be released.
It shares no line with the product and uses plain Python, integers and fractions; only AES comes
from a library. `stream` applies the clock's cuts, `rules` and `numbers` derive everything from the
configuration, `noise` draws, `records` reads JSON, `rows` writes values, `rounds` finds keys in
rounds, and `logs` reads topics.

It covers counts, sums, means, variances, quantiles and keys alone; unknown and public keys; all
bounds, adaptive weights, `min_users`, deletions and debiasing; all windows, epochs and
factorisations. It covers no dead letters and few texts of manifests.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from .noise import Noise, Nonces, Secret
from .numbers import STEPS, floored, held, limited, wrapped
from .records import Event
from .rows import named, shown, six, utc
from .rules import COUNTERS, Rules, S, V
from .stream import Clock, Objection, Order, Place, Placed, Stream


@dataclass
class Unit:
    """What a privacy unit has left in an epoch, and its accepted records by (window, key)."""

    left: int
    used: dict[tuple[int, bytes], list[int]] = field(default_factory=dict)
    seen: int = 0  # records that debiasing counted


@dataclass
class Window:
    """Exact totals of an open window, and the trigger at which each key became public."""

    sums: dict[bytes, list[list[int]]] = field(default_factory=dict)  # by key and lane
    first: dict[bytes, int] = field(default_factory=dict)
    counters: list[int] = field(default_factory=lambda: [0] * 4)
    marks: dict[bytes, list[int]] = field(default_factory=dict)
    drawn: dict[tuple[str, bytes, int], list[int]] = field(default_factory=dict)
    released: int = 0


class Release(NamedTuple):
    """What one trigger must publish, and what its micro-batch held."""

    trigger: Clock
    start: str
    rows: dict[bytes, dict[str, Any]]  # by key
    contents: dict[bytes, list[list[int]]]  # accepted records: key, lane, count and sums
    threshold: int | None  # in 1/256 of a record
    counters: dict[int, Any] | None = None  # by shard: arrived and accepted, deviations, cap
    hops: tuple[int, int] | None = None  # if windows overlap: hops held, hops of a window
    public: dict[str, list[int]] | None = None  # columns of the manifest, if the judge knows them


class Judge(Stream):
    """Judge of one pipeline: takes the records of its clock log one after the other.

    Args:
        rules: rules from the configuration.
        secret: noise key.
        nonces: each shard's nonces, as manifests publish them.
        order: see `Stream`.
    """

    def __init__(
        self, rules: Rules, secret: Secret, nonces: Nonces, order: Order | None = None
    ) -> None:
        super().__init__(rules, order)
        self.nonces = nonces
        self.noise = Noise(secret, rules.config, self.nonces)
        self.units: dict[Any, Unit] = {}
        self.purses = rules.purses()
        self.windows: dict[int, Window] = defaultdict(Window)
        self.content: dict[Place, dict[bytes, list[list[int]]]] = defaultdict(dict)
        self.totals: dict[Place, list[int]] = defaultdict(lambda: [0] * 4)

    def run(
        self, clock: Iterable[Clock], raw: Sequence[Iterable[tuple[int, Event]]]
    ) -> Iterator[Release]:
        """Yield every release of the pipeline.

        Args:
            clock: the clock log.
            raw: offset and event of each usable record, by raw partition, in order.
        """
        if not self.rules.affordable():
            raise Objection("pipelines that share a budget cost more than it has")
        self.feed = self.follow(clock, raw)
        while self.due or next(self.feed, False):
            while self.due:
                trigger = self.due.popleft()
                self.bound((trigger["window"], trigger["index"]))
                yield self.release(trigger)
                if trigger["final"]:
                    del self.windows[trigger["window"]]

    def bound(self, place: Place) -> None:
        """Bound a micro-batch; the records of each unit come in the order of their log."""
        for unit, number in self.needed.pop(place, {}).items():
            while number:
                one = self.next(unit)
                number -= (one.window, one.batch) == place
                if (one.window, one.batch) != place:
                    self.needed[one.window, one.batch][unit] -= 1
                self.take((one.window // self.rules.per_epoch, one.event.unit), one)

    def take(self, place: Any, one: Placed) -> None:
        """Count one record if its unit can pay for it."""
        rules, window, key = self.rules, self.windows[one.window], one.event.key
        if rules.adaptive and window.released < one.batch - 1 - rules.delay:
            raise Objection("a record was bounded before what it depends on was released")
        since = window.first.get(key, rules.horizon + 1)
        known = rules.adaptive and since <= one.batch - 1 - rules.delay
        if known and rules.keys_only:
            return
        lane = V if known else S
        unit, room = self.units.setdefault(place, Unit(rules.budget)), self.purses.room(place)
        if room < 0:
            return
        used = unit.used.setdefault((one.window if rules.hops == 1 else 0, key), [0, 0])
        if rules.quadratic:
            price, free = rules.weights[lane] * (2 * used[lane] + 1), used[lane] < rules.caps[lane]
        else:
            price, free = 1, sum(used) < rules.per_key
        accepted = free and price <= min(unit.left, room)
        counted = rules.parameters["debias"] and unit.seen < rules.parameters["debias_cap"]
        if accepted or counted:
            self.purses.pay(place, price * accepted)
        if counted:
            unit.seen += 1
            self.totals[one.window, one.batch][lane] += 1
            self.totals[one.window, one.batch][2 + lane] += accepted
        if not accepted:
            return
        unit.left -= price
        used[lane] += 1
        self.add(self.content[one.window, one.batch], one.event, lane)

    def add(self, content: dict[bytes, list[list[int]]], event: Event, lane: int) -> None:
        """Add an accepted record to the sums of its micro-batch."""
        rules = self.rules
        blank = [[0] * len(rules.names) for _ in rules.weights]
        sums = content.setdefault(event.key, blank)[lane]
        sums[0] += event.sign
        for n, moved in enumerate(rules.moved(event.values), 1):
            sums[n] += event.sign * moved

    def release(self, trigger: Clock) -> Release:
        """Add the closed micro-batch, find keys, and make the row of every public key."""
        rules, t = self.rules, trigger["index"]
        window = self.windows[trigger["window"]]
        contents = self.content.pop((trigger["window"], t), {})
        for key, lanes in contents.items():
            blank = [[0] * len(rules.names) for _ in rules.weights]
            sums = window.sums.setdefault(key, blank)
            for lane, more in enumerate(lanes):
                sums[lane] = [a + limited(b) for a, b in zip(sums[lane], more, strict=True)]
        more = self.totals.pop((trigger["window"], t), [0] * 4)
        window.counters = [a + b for a, b in zip(window.counters, more, strict=True)]
        if rules.listed is not None:
            window.first = dict.fromkeys(rules.listed, 1)
        for key, sums in window.sums.items() if rules.listed is None else ():
            count = sums[S][0]  # with distinct units, at most one for each unit
            if key not in window.first and count >= rules.least:
                noisy = count * STEPS + self.at(window, trigger, "count/S", key)[0]
                if noisy >= rules.thresholds[t - 1]:
                    window.first[key] = t
        window.released = t
        rows = {key: self.row(window, trigger, key) for key in sorted(window.first)}
        bar = rules.thresholds[t - 1] if rules.thresholds else None
        cut = self.cut(window, trigger) if rules.parameters["debias"] else None
        return Release(trigger, utc(rules.opens(trigger["window"])), rows, contents, bar, cut)

    def cut(self, window: Window, trigger: Clock) -> dict[int, Any]:
        """What each shard states about all records: how many arrived, how many were accepted."""
        found: dict[int, Any] = {}
        for shard in range(self.rules.shards):
            counts, variances = [0, 0], [0.0, 0.0]
            for place, name in enumerate(COUNTERS):
                purpose, t = f"debias/{name}", trigger["index"]
                z = window.drawn.setdefault((purpose, b"", shard), [])
                noise, variance = self.noisy(z, trigger, purpose, b"", shard, t)
                counts[place // 2] += window.counters[place] + (noise + (STEPS + 1) // 2) // STEPS
                variances[place // 2] += float(variance)
            spread = tuple(six(one**0.5) for one in variances)
            found[shard] = (counts[0], counts[1]), spread, self.rules.parameters["debias_cap"]
        return found

    def at(
        self, window: Window, trigger: Clock, purpose: str, key: bytes, since: int = 0,
        shared: bool = False,
    ) -> tuple[int, Fraction]:  # fmt: skip
        """Noise of draws after ``since`` at a trigger, rounded down to 1/256, and its variance.

        Noise that all keys of a shard share is drawn for the empty key (``shared``).
        """
        shard, drawn_for = self.nonces.shard(key), b"" if shared else key
        z = window.drawn.setdefault((purpose, drawn_for, shard), [])
        return self.noisy(z, trigger, purpose, drawn_for, shard, trigger["index"], since)

    def noisy(
        self, z: list[int], trigger: Clock, purpose: str, key: bytes, shard: int, step: int,
        since: int = 0, when: Callable[[int], int] = int,
    ) -> tuple[int, Fraction]:  # fmt: skip
        """Noise at a step; ``when`` says at which trigger a draw of some step covers data first."""
        factors, variance = self.rules.matrix, self.rules.variance[purpose]
        if since >= step:
            return 0, Fraction(0)
        for first in range(1, step + 1):
            for index in range(max(len(z), factors.width[first - 1]), factors.width[first]):
                label = self.noise.label(purpose, variance, trigger, shard, when(first))
                z.append(self.noise.draw(label, key, index, variance))
        known = factors.width[since]  # draws that were complete before there could be data
        row, common = factors.row(step)
        total = sum(b * one for b, one in zip(row[known:], z[known:], strict=False))
        spread = factors.norm2(step, known) * variance / 4**factors.bits
        return floored(total, common, factors.bits), spread

    def scales(self, window: Window, trigger: Clock, key: bytes) -> list[float]:
        """Debiasing: the ratio of arrived to accepted records for each lane; 1 if it is unknown."""
        t, lanes, now = trigger["index"], len(self.rules.weights), []
        for exact, name in zip(window.counters, COUNTERS, strict=True):
            noise, variance = self.at(window, trigger, f"debias/{name}", key, shared=True)
            now.append(exact + (noise + (STEPS + 1) // 2) // STEPS)
        if window.first[key] + self.rules.delay >= t or lanes == 1:
            window.marks[key] = now
        mark, least = window.marks[key], 8 * float(variance) ** 0.5
        pairs = [(mark[0], mark[2]), (now[1] - mark[1], now[3] - mark[3])]
        return [min(max(a / b, 1.0), 64.0) if b > least else 1.0 for a, b in pairs]

    def row(self, window: Window, trigger: Clock, key: bytes) -> dict[str, Any]:
        """The record of one public key."""
        rules = self.rules
        scale = self.scales(window, trigger, key) if rules.parameters["debias"] else None
        sums = window.sums.get(key, [[0] * len(rules.names) for _ in rules.weights])
        names = rules.names[1 - rules.counted :]
        value: dict[str, int] = {}
        variance: dict[str, Fraction | float] = {}
        for name, column in zip(names, range(1 - rules.counted, len(rules.names)), strict=True):
            since = [0, window.first[key] + rules.delay]
            noise = [self.at(window, trigger, f"{name}/{lane}", key, since[n])
                     for n, lane in enumerate("SV"[: len(rules.weights)])]  # fmt: skip
            steps = [lane[column] * STEPS + z for lane, (z, _) in zip(sums, noise, strict=True)]
            steps = [wrapped(one // STEPS) * STEPS + one % STEPS for one in steps]
            if scale is None:
                value[name] = wrapped((sum(steps) + (STEPS + len(steps)) // 2) // STEPS)  # nearest
                variance[name] = sum(v for _, v in noise)
            else:
                value[name] = held(round(sum((s + 0.5) / STEPS * f for s, f in zip(steps, scale))))  # noqa: B905
                variance[name] = sum(float(v) * f**2 for (_, v), f in zip(noise, scale))  # noqa: B905
        return self.body(trigger, key, value, variance)

    def body(
        self, trigger: Clock, key: bytes, value: dict[str, int], variance: dict[str, Any]
    ) -> dict[str, Any]:
        """The record of a key, from noisy totals of centred columns."""
        rules, config = self.rules, self.rules.config
        for n in rules.squared:  # released around the middle
            path = rules.columns[n].path
            value[f"centred:{path}"] = value[f"sum:{path}"]
            variance[f"centred:{path}"] = variance[f"sum:{path}"]
        for name, middle, count in rules.back():
            value[name] += middle * value[count]
            variance[name] += middle**2 * variance[count]
        value = {name: held(one) for name, one in value.items()}
        shown_key = dict(zip(config["key"], json.loads(key), strict=True))
        return named(rules, trigger, key, shown_key, shown(rules, value, variance))
