"""The published workload of streaming histograms, and a runner for tens of millions of records.

Records per user follow a Zipf–Mandelbrot law on 1…100,000 (q = 26, s = 6.738), keys one on a
million keys (q = 1000, s = 1.4); records are shuffled over one day (Zhang et al., "Differentially
Private Stream Processing at Scale", 2023). Scale s means s·10 M users, s·1 M keys and q·s, so
that keys keep their sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from hushstream.mechanisms.columns import Closed, Releases, Rows
from hushstream.mechanisms.contract import Noise
from hushstream.mechanisms.factorization.prefix_noise import STEPS, Process
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Workload
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.keys import Keys
from numpy.typing import NDArray

USERS, KEYS = 10_000_000, 1_000_000
LARGE = 1000  # records of a key that counts as large


def law(size: int, q: float, s: float) -> NDArray[np.float64]:
    """(size,) Zipf–Mandelbrot probabilities, p_i ∝ (i+q)^-s."""
    weight = (np.arange(size) + q) ** -s
    return weight / weight.sum()


def draw(rng: np.random.Generator, probability: NDArray[np.float64], n: int) -> NDArray[np.int32]:
    """(n,) independent indices by inverse distribution function."""
    edges = np.cumsum(probability)
    edges[-1] = 1.0
    out = np.empty(n, np.int32)
    for begin in range(0, n, 1 << 22):
        u = rng.random(min(1 << 22, n - begin))
        out[begin : begin + len(u)] = np.searchsorted(edges, u, side="right")
    return out


def published(scale: float, seed: int) -> Workload:
    """The workload at a scale in (0, 1]."""
    rng = np.random.default_rng(seed)
    users, keys = round(USERS * scale), round(KEYS * scale)
    counts = 1 + draw(rng, law(100_000, 26, 6.738), users)
    unit = np.repeat(np.arange(users, dtype=np.int32), counts)
    rng.shuffle(unit)
    return Workload(unit, draw(rng, law(keys, 1000 * scale, 1.4), len(unit)), users, keys)


def shaped(shape: str, scale: float, seed: int) -> Workload:
    """The published workload, or a skewed or hostile variation of it of the same size.

    repeat: every user sends all records to one key. heavy: one user in a thousand sends ten
    thousand records' worth of traffic, nine tenths of all. bursts: a key's records arrive within a
    hundredth of the day. fleeting: as bursts, and half of the records go to short-lived keys that
    never recur.
    """
    work = published(scale, seed)
    rng, n = np.random.default_rng(seed + 1), len(work.unit)
    if shape == "repeat":
        own = draw(rng, law(work.keys, 1000 * scale, 1.4), work.users)
        return work._replace(key=own[work.unit])
    if shape == "heavy":
        few = rng.integers(0, max(1, work.users // 1000), n, dtype=np.int32)
        return work._replace(unit=np.where(rng.random(n) < 0.9, few, work.unit))
    if shape in ("bursts", "fleeting"):
        moment = rng.random(work.keys)
        order = np.argsort(moment[work.key] + 0.01 * rng.random(n), kind="stable")
        if shape == "fleeting":
            step = np.linspace(0, work.keys // 2, n, endpoint=False).astype(np.int32)
            key = np.where(rng.random(n) < 0.5, work.keys // 2 + step, work.key[order] // 2)
            return work._replace(unit=work.unit[order], key=key.astype(np.int32))
        return work._replace(unit=work.unit[order], key=work.key[order])
    return work


SHAPES = ("published", "repeat", "heavy", "bursts", "fleeting")


def checks(work: Workload, scale: float) -> dict[str, float]:
    """Checks of the generator; at scale 1: 59.05 M records, l2 594 k, 25.4–25.5 k, 32."""
    truth, per_user = work.truth(), np.bincount(work.unit, minlength=work.users)
    return {
        "records": len(work.unit) / scale,
        "l2_of_nothing": float(np.sqrt((truth.astype(float) ** 2).sum() / scale)),
        "largest_key": float(truth.max()),
        "p99_records_per_user": float(np.percentile(per_user, 99)),
    }


class Errors(NamedTuple):
    """Errors against the exact histogram over the whole key space; a hidden key counts as 0."""

    keys: float
    linf: float
    l1: float
    l2: float
    mean_l1: float
    bias: float  # Σ (shown - true) / Σ true over released keys
    bias_large: float  # the same over released keys of at least LARGE records

    def scaled(self, scale: float) -> Errors:
        """The errors extrapolated to the full workload."""
        return self._replace(
            keys=self.keys / scale, l1=self.l1 / scale, l2=self.l2 / scale**0.5,
            mean_l1=self.mean_l1 / scale,
        )  # fmt: skip


def errors(
    truth: NDArray[np.int64], shown: NDArray[np.int64], released: NDArray[np.bool_]
) -> Errors:
    gap = np.abs(truth - shown).astype(float)
    l1 = float(gap.sum())
    large = released & (truth >= LARGE)
    biases = [_bias(truth[some], shown[some]) for some in (released, large)]
    return Errors(
        float(released.sum()), float(gap.max()), l1, float(np.sqrt((gap**2).sum())), l1, *biases
    )


def _bias(truth: NDArray[np.int64], shown: NDArray[np.int64]) -> float:
    return float((shown - truth).sum() / max(truth.sum(), 1))


@dataclass(frozen=True)
class Kept(Histogram):
    """A histogram that computes noise once per key and run, and at times also as a worker does.

    At five triggers of the day ``plain``, which keeps nothing between triggers, also computes the
    release: its time is what a worker needs, and its release must be the same. At all other
    triggers the noise comes from a table, in which a key's first use pays for all its triggers, so
    the time of a single release means nothing.
    """

    plain: Histogram | None = None
    seconds: list[float] = field(default_factory=list)

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        out = super().release(closed, noise)
        if closed.t in {1, *(round(self.horizon * part / 4) for part in range(1, 5))}:
            assert self.plain is not None
            began = time.perf_counter()
            want = self.plain.release(closed, noise)
            self.seconds.append(time.perf_counter() - began)
            if not same(out, want):
                raise AssertionError(f"trigger {closed.t}: kept noise gives another release")
        return out


def same(one: tuple[Rows, Releases], other: tuple[Rows, Releases]) -> bool:
    """Whether rows to write back and releases are equal."""
    a, b = one[1], other[1]
    pairs = [
        (one[0].state, other[0].state), (one[0].due, other[0].due), (a.value, b.value),
        (a.status, b.status), (a.key.codes(), b.key.codes()),
    ]  # fmt: skip
    return all(np.array_equal(x, y) for x, y in pairs)


@dataclass(frozen=True)
class Cached(Process):
    """A process whose noise is computed once per key and run, and then read back unchanged.

    ``rows[key, t-1]`` is filled on a key's first use. Only for runs that compute all triggers of a
    window at once; a worker computes noise when a trigger needs it.
    """

    table: tuple[NDArray[Any], NDArray[np.bool_]] | None = None

    def _filled(
        self, noise: Noise, keys: Keys, since: NDArray[np.int64] | None
    ) -> NDArray[np.intp]:
        assert self.table is not None
        rows, known = self.table
        codes = keys.codes().astype(np.intp)
        fresh = np.flatnonzero(~known[codes])
        after = np.zeros(len(codes), np.int64) if since is None else since
        for group in np.unique(after[fresh]):
            chosen = fresh[after[fresh] == group]
            for begin in range(0, len(chosen), 1 << 14):
                some = chosen[begin : begin + (1 << 14)]
                made = super().ahead(noise, keys.take(some), int(group) + 1, after[some])
                if abs(made).max() > np.iinfo(rows.dtype).max:
                    raise OverflowError("noise does not fit into the table that keeps it")
                rows[codes[some], group:] = made
        known[codes] = True
        return codes

    def at(
        self,
        noise: Noise,
        keys: Keys,
        t: int,
        since: NDArray[np.int64],
        first: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        assert self.table is not None
        return self.table[0][self._filled(noise, keys, since), t - 1].astype(np.int64)

    def ahead(
        self,
        noise: Noise,
        keys: Keys,
        t: int,
        since: NDArray[np.int64] | None = None,
        first: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        assert self.table is not None
        codes = self._filled(noise, keys, since)
        return self.table[0][codes, t - 1 :]


def cached(mechanism: Histogram, keys: int) -> Kept:
    """The mechanism with every process's noise cached during a run."""

    def keep(process: Process) -> Cached:
        none = np.zeros(1, np.int64)
        largest = max(process.variance_at(t, none)[0] for t in range(1, process.horizon + 1))
        kind = np.int16 if 10 * STEPS * largest**0.5 < 2**15 else np.int32
        table = (np.zeros((keys, process.horizon), kind), np.zeros(keys, np.bool_))
        return Cached(process.purpose, process.name, process.horizon, process.variance, table)

    parts = {one.name: getattr(mechanism, one.name) for one in fields(mechanism)}
    parts["quantities"] = tuple(
        one._replace(lanes=tuple(keep(process) for process in one.lanes))
        for one in mechanism.quantities
    )
    return Kept(**parts, plain=mechanism)


class Playable(Protocol):
    """A design over one day; see `hushstream.mechanisms.histogram.planning.play.Run`."""

    mechanism: Histogram | Rounds
    work: Workload
    status: NDArray[np.int32]
    seconds: float

    @property
    def shown(self) -> NDArray[np.int64]: ...

    def step(self, part_of_day: slice, /) -> object: ...


def play(run: Playable, triggers: int, tick: Callable[[], None]) -> tuple[Errors, float]:
    """Run a whole day; errors at the last trigger (mean l1 over all), slowest release (seconds).

    For a mechanism that caches its noise, only releases computed as a worker does count.
    """
    truth = np.zeros(run.work.keys, np.int64)
    l1, seconds = [], []
    for part_of_day in run.work.micro_batches(triggers):
        run.step(part_of_day)
        truth += np.bincount(run.work.key[part_of_day], minlength=len(truth))
        l1.append(float(np.abs(truth - run.shown).sum()))
        seconds.append(run.seconds)
        tick()
    last = errors(truth, run.shown, run.status > 0)
    kept = run.mechanism.seconds if isinstance(run.mechanism, Kept) else seconds
    return last._replace(mean_l1=float(np.mean(l1))), max(kept)
