"""μ² of a histogram, rebuilt from its stated bound and from what its releases add."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from hushstream.mechanisms.histogram.debias import Debias
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise

from .loss import IMPULSE, Linear, Probe, most
from .recorder import Label, Recorder, View, seen

NEVER = 1 << 50
STEPS = 256  # thresholds are in these parts of a record
ALWAYS = -NEVER


class Record(NamedTuple):
    """One record of some unit."""

    trigger: int
    value: tuple[int, ...]
    sign: int = 1


def columns_of(keys: Sequence[Sequence[Record]]) -> Trace:
    """A trace in which key i gets the i-th records, each by a unit of its own."""
    rows = sorted((one, key) for key, some in enumerate(keys) for one in some)
    width = len(rows[0][0].value)
    return Trace(
        np.array([one.trigger for one, _ in rows], np.intp), np.arange(len(rows)),
        names(len(keys)), np.array([key for _, key in rows], np.intp),
        np.array([one.value for one, _ in rows], np.int64).reshape(len(rows), width),
        np.array([one.sign for one, _ in rows], np.int8),
    )  # fmt: skip


def names(n: int) -> Keys:
    """Distinct keys of one width."""
    return Keys.of([b"%05d" % place for place in range(n)])


def number(label: Label) -> int:
    """Which of the `names` a draw is for; rounds append a number of their own."""
    return int(label.key[:5] or -1)  # the shared row of debiasing has no name


def probed(
    mechanism: Histogram | Rounds,
    crowd: Sequence[Record],
    records: Sequence[Record],
    purposes: str,
) -> tuple[Linear, np.ndarray]:
    """Responses to draws, and (records, seen) shifts by single records of one unit.

    Keys do not meet: each key is one experiment, with one draw planted or one record more.
    """  # fmt: skip
    recorder = Recorder()
    look(mechanism, [crowd], recorder)
    labels = sorted(one for one in recorder.asked if re.match(purposes, one.purpose))
    worlds = [crowd, *[crowd] * len(labels), *([*crowd, record] for record in records)]

    def planted(label: Label) -> int:
        place = number(label) - 1
        if not 0 <= place < len(labels):
            return 0
        mine = labels[place]
        return IMPULSE * (label == mine._replace(key=label.key[:5] + mine.key[5:]))

    view = look(mechanism, worlds, Recorder(planted))
    table = by_key(view, len(worlds))
    moved = table[1:] - table[0]
    cut = len(labels)
    return Linear(labels, moved[:cut].T / IMPULSE, rounding=2.0), moved[cut:]


def by_key(view: View, n: int) -> np.ndarray:
    """(keys, numbers) what is seen of each of the first n `names`."""
    each: list[dict[tuple[object, ...], float]] = [{} for _ in range(n)]
    for (t, key, column), x in view.items():
        if isinstance(key, bytes) and key:
            each[int(key)][t, column] = x
    assert all(one.keys() == each[0].keys() for one in each), "a decision changed"
    return np.array([[one[place] for place in each[0]] for one in each])


def look(mechanism: Histogram | Rounds, keys: Sequence[Sequence[Record]], noise: object) -> View:
    """What is released of keys with these records."""
    listed = None
    if isinstance(mechanism, Histogram) and mechanism.public is not None:
        listed = names(len(keys))
        mechanism = replace(mechanism, public=frozenset(listed.tolist()))
    return seen(mechanism, columns_of(keys), noise, listed)


class Stated:
    """The bound as it is stated to people, and nothing else of it."""

    def __init__(self, bounds: dict[str, Any]) -> None:
        self.quadratic = bounds["kind"] == "quadratic"
        self.price = Fraction(str(bounds.get("price_of_released_keys", 1)))  # 9/100 prints exactly
        self.budget = Fraction(str(bounds["budget"]))
        self.in_key = int(bounds["most_records_per_key"])

    def pairs(self, late: bool) -> Iterable[tuple[int, int, Fraction]]:
        """(records of a hidden key, records once it is public, price of both together)."""
        if not self.quadratic:
            top = min(self.in_key, int(self.budget))
            return [(m, 0, Fraction(m)) for m in range(top + 1)]
        far = math.isqrt(int(self.budget / self.price)) if late else 0
        both = product(range(self.in_key + 1), range(far + 1))
        priced = [(m, v, m * m + self.price * v * v) for m, v in both]
        return [(m, v, cost) for m, v, cost in priced if cost <= self.budget]

    def price_of(self, counts: Mapping[tuple[int, int, bool], int]) -> Fraction:
        """What accepted records cost, by (window, key, whether the key was public)."""
        each = [(m * m * (self.price if late else 1)) for (_, _, late), m in counts.items()]
        return Fraction(sum(each) if self.quadratic else sum(counts.values()))

    def most_records(self) -> int:
        """In how many records a unit can count, one in each key."""
        return int(self.budget / (min(1, self.price) if self.quadratic else 1))


def extremes(mechanism: Histogram | Rounds) -> list[tuple[int, ...]]:
    """Values that move every column as far as it goes: μ is convex in them.

    With squares it is convex in the square of the distance from the middle, which is least there.
    """
    squared = {one.column for one in mechanism.squares} if isinstance(mechanism, Histogram) else ()
    ends = [
        (column.low, column.high, *[column.middle] * (place in squared))
        for place, column in enumerate(mechanism.summed)
    ]
    return list(product(*ends))


def pair_loss(early: np.ndarray, late: np.ndarray, m: int, v: int) -> float:
    """Largest ‖m·a ± v·b‖² over single records a (hidden key) and b (public key)."""
    a = early if m else np.zeros((1, max(early.shape[1], late.shape[1])))
    b = late if v and len(late) else np.zeros((1, a.shape[1]))
    cross = np.abs(a @ b.T)
    total = m * m * (a**2).sum(axis=1)[:, None] + v * v * (b**2).sum(axis=1) + 2 * m * v * cross
    return float(total.max())


def spent(stated: Stated, early: np.ndarray, late: np.ndarray) -> float:
    """The most that a whole bound buys, over all its divisions among keys."""
    unit = Fraction(1, math.lcm(stated.price.denominator, stated.budget.denominator))
    options = []
    for m, v, price in stated.pairs(len(late) > 0):
        if price:
            options.append((int(price / unit), pair_loss(early, late, m, v)))
    return most(int(stated.budget / unit), options)


def crowd_of(mechanism: Histogram | Rounds) -> list[Record]:
    """As many units as a key needs, in the first micro-batch."""
    return [Record(1, (0,) * len(mechanism.summed))] * mechanism.min_units


def values(mechanism: Histogram, since: int, delay: int) -> tuple[Linear, np.ndarray, np.ndarray]:
    """Single records of a key that becomes public at trigger ``since``.

    Returns responses, and (s, seen) shifts by records of the hidden and of the public key.
    """
    T = mechanism.horizon
    bar = (*[NEVER] * (since - 1), *[ALWAYS] * (T - since + 1)) if mechanism.threshold else ()
    shown = replace(mechanism, threshold=bar, delay=delay, show="values")
    single = [Record(t, value) for t in range(1, T + 1) for value in extremes(mechanism)]
    linear, shifts = probed(shown, crowd_of(mechanism), single, "count|sum|square")
    early = np.array([one.trigger <= since + delay for one in single])
    early |= mechanism.public is not None
    return linear, shifts[early], shifts[~early]


def noisy_totals(mechanism: Histogram) -> float:
    """μ² of the debiasing counters, which see records before and after the bound."""
    assert mechanism.debias is not None
    shown = replace(mechanism, threshold=(ALWAYS,) * mechanism.horizon)

    def look_at(trace: Trace, noise: Recorder) -> View:
        view: View = {}
        whole = Debias.noisy

        def watched(self: Debias, totals: np.ndarray, t: int, source: Any) -> np.ndarray:
            out = whole(self, totals, t, source)
            view.update({(t, place): float(x) for place, x in enumerate(out.tolist())})
            return out

        Debias.noisy = watched  # type: ignore[method-assign]
        try:
            seen(shown, trace, noise)
        finally:
            Debias.noisy = whole  # type: ignore[method-assign]
        return view

    crowd = crowd_of(mechanism)
    probe = Probe(look_at, columns_of([crowd]), rounding=2.0)
    shifts = [
        probe.shift(columns_of([[*crowd, Record(t, (0,) * len(mechanism.summed))]]))
        for t in range(1, mechanism.horizon + 1)
    ]
    linear = probe.linear
    found = linear.gaussian(shifts)
    arrived = np.array(["arrived" in one.purpose for one in linear.labels])
    cap = mechanism.debias.cap
    counted = min(cap, Stated(mechanism.bounds("u")).most_records())
    split = (found[:, arrived] ** 2).sum(axis=1) * cap**2
    split = split + (found[:, ~arrived] ** 2).sum(axis=1) * counted**2
    return float(split.max())


def histogram(mechanism: Histogram, shards: int = 1) -> float:
    """μ² of everything that a histogram releases or decides about one unit's records.

    Keys lie in one shard each; debiasing counters are released by every one, under its own nonces.
    """
    stated, T = Stated(mechanism.bounds("u")), mechanism.horizon
    worlds = [(1, T)]  # no second lane: the count that decides about a hidden key, laid open
    if mechanism.traits.lanes > 1:
        worlds += [(since, mechanism.delay) for since in range(1, min(T, 2) + 1)]
    worst = 0.0
    for since, delay in worlds:
        linear, *shifts = values(mechanism, since, delay)
        early, late = (linear.gaussian(some) if len(some) else some for some in shifts)
        worst = max(worst, spent(stated, early, late))
    return worst + (shards * noisy_totals(mechanism) if mechanism.debias else 0.0)


def choices(mechanism: Histogram) -> int:
    """How many keys' first triggers follow from their noisy counts, laid open; all must.

    Counts lie where noise decides. Those within a record of a threshold, where the rounding of
    the opened count hides the outcome, are passed over.
    """
    T, n = mechanism.horizon, 400
    opened = replace(mechanism, threshold=(ALWAYS,) * T, delay=T, show="values")
    low = min(mechanism.threshold) // STEPS
    crowd = np.random.default_rng(3).integers(max(mechanism.min_units, low // 2), low + 2, n)
    unit = np.arange(int(crowd.sum()))
    trace = Trace(
        np.ones(len(unit), np.intp), unit, Keys.of_codes(np.arange(n, dtype=np.uint64)),
        np.repeat(np.arange(n), crowd), np.zeros((len(unit), len(mechanism.summed)), np.int64),
        np.ones(len(unit), np.int8),
    )  # fmt: skip
    noise = KeyedNoise(
        b"n" * 32, charge=bytes(32), mechanism="m", config=b"", pipeline="p", window="w",
        nonces=STEADY,
    )  # fmt: skip
    count, real, known = seen(opened, trace, noise), seen(mechanism, trace, noise), 0
    for key in trace.keys.tolist():
        gaps = [STEPS * count[t, key, 0] - mechanism.threshold[t - 1] for t in range(1, T + 1)]
        if min(map(abs, gaps)) > STEPS:
            passed = [gap > 0 for gap in gaps]
            shown = [(t, key, "status") in real for t in range(1, T + 1)]
            assert shown == [any(passed[: t + 1]) for t in range(T)]
            known += any(passed) and not all(passed)
    return known


# Rounds: the selection has noise of its own, read from the decisions


def decision_row(mechanism: Rounds, t: int, labels: list[Label]) -> np.ndarray:
    """(draws,) records by which one step of each draw moves the count that is tested at trigger t.

    A key with one unit is released at t if and only if 1 + weight·v reaches a bar that is far
    away; the least such v is found by trying many keys at once.
    """
    bar, T, far = 1 << 34, mechanism.horizon, float(1 << 48)
    alone = replace(mechanism, threshold=tuple(bar if s == t else NEVER for s in range(1, T + 1)))
    ways = np.array([[far] * len(labels), [-far] * len(labels)])
    up, down = released(alone, t, labels, ways)
    sign, rows = up.astype(float) - down, np.arange(len(labels))
    low, high = np.zeros(len(labels)), np.full(len(labels), far)
    for _ in range(9):  # sixteen times closer with each
        grid = low + (high - low) * np.linspace(0, 1, 17)[:, None]
        hit = released(alone, t, labels, np.rint(grid * sign))
        at = np.clip(hit.argmax(axis=0), 1, 16)
        low, high = grid[at - 1, rows], grid[at, rows]
    return sign * (bar / STEPS - 1) / high


def released(mechanism: Rounds, t: int, labels: list[Label], grid: np.ndarray) -> np.ndarray:
    """Whether a key is released at trigger t whose selection noise is one draw of such a size."""
    places = grid.ravel().tolist()

    def planted(label: Label) -> int:
        mine = labels[number(label) % len(labels)]
        same = (label.purpose, label.index) == (mine.purpose, mine.index)
        return int(places[number(label)]) if same else 0

    view = look(
        mechanism, [[Record(1, (0,) * len(mechanism.summed))]] * grid.size, Recorder(planted)
    )
    hits = [(t, name, "status") in view for name in names(grid.size).tolist()]
    return np.array(hits).reshape(grid.shape)


def selection(mechanism: Rounds) -> float:
    """μ² of one distinct unit in the count of one round, at the trigger where it costs most."""
    recorder = Recorder()
    quiet = replace(mechanism, threshold=(NEVER,) * mechanism.horizon, min_units=1)
    look(quiet, [[Record(1, (0,) * len(mechanism.summed))]], recorder)
    labels = sorted(recorder.asked)
    assert len({(one.purpose, one.parameter, one.key) for one in labels}) == 1
    T = mechanism.horizon
    B = np.array([decision_row(quiet, t, labels) for t in range(1, T + 1)])
    sigma = math.sqrt(labels[0].parameter)
    prefix = np.tril(np.ones((T, T)))  # a unit of trigger s is in the count from s on
    found, *_ = np.linalg.lstsq(B * sigma, prefix, rcond=1e-5)
    assert np.allclose(B * sigma @ found, prefix, atol=1e-4), "decided without noise"
    return float((found**2).sum(axis=0).max())


def rounds(mechanism: Rounds) -> float:
    """μ² of the published mechanism: its selection, and its values at one leaf per trigger."""
    stated, T = Stated(mechanism.bounds("u")), mechanism.horizon
    shown = replace(mechanism, threshold=(ALWAYS,) * T, min_units=1)
    zero = (0,) * len(mechanism.summed)
    crowd = [Record(t, zero) for t in range(1, T + 1)]  # a new unit a trigger: each has a release
    single = [Record(t, value) for t in range(1, T + 1) for value in extremes(mechanism)]
    linear, shifts = probed(shown, crowd, single, "count|sum")
    found = linear.gaussian(shifts)
    chosen = float(stated.budget) * selection(mechanism)
    return chosen + spent(stated, found, np.zeros((0, found.shape[1])))
