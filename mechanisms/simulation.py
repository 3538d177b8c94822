"""Run a histogram over numbered units and keys in memory, for planning and for benchmarks.

The same functions as in production, without shards. What goes in must be public or synthetic
where a configuration is chosen by what comes out.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .contract import I64, Batch, Closed, Mechanism, Noise, Part, Releases, merge
from .dense import DenseRows, DenseUnits
from .histogram import Histogram
from .histogram_rounds import Rounds
from .keys import Keys

Index = NDArray[np.int32]


class Workload(NamedTuple):
    """Records in log order; units and keys are numbered from 0."""

    unit: Index  # (n,)
    key: Index  # (n,)
    users: int
    keys: int

    def micro_batches(self, horizon: int) -> Iterator[slice]:
        """Equal parts, one per trigger."""
        edges = np.linspace(0, len(self.unit), horizon + 1).astype(np.int64).tolist()
        return (slice(a, b) for a, b in itertools.pairwise(edges))

    def truth(self) -> I64:
        """(keys,) the exact histogram."""
        return np.bincount(self.key, minlength=self.keys).astype(np.int64)


@dataclass
class Run:
    """One mechanism over one workload, trigger by trigger, by the product's own functions.

    After each `step`, ``shown`` (keys,) is what the public sees and ``seconds`` the time of the
    last release.
    """

    mechanism: Histogram | Rounds
    work: Workload
    noise: Noise
    delay: int = 0
    slice_size: int = 1 << 21

    def __post_init__(self) -> None:
        mechanism = cast(Mechanism, self.mechanism)  # frozen fields satisfy it in substance
        self.units = DenseUnits(mechanism, self.work.users)
        self.rows = DenseRows(mechanism, self.work.keys)
        self.status = np.zeros(self.work.keys, np.int32)
        # What bound sees in micro-batch j: statuses as of trigger j-1-delay.
        self.past = deque([self.status] * (self.delay + 1), self.delay + 1)
        self.shown = np.zeros(self.work.keys, np.int64)
        self.t, self.seconds = 0, 0.0

    def step(self, part_of_day: slice) -> Releases:
        """Absorb one micro-batch and release it."""
        self.t += 1
        size = self.slice_size
        parts = [
            self._absorb(slice(begin, min(begin + size, part_of_day.stop)))
            for begin in range(part_of_day.start, part_of_day.stop, size)
        ]
        part = merge(parts) if parts else merge([self._absorb(slice(0, 0))])
        began = time.perf_counter()
        rows, out = self.mechanism.release(
            Closed(self.rows.load(part, self.t), part, self.t), self.noise
        )
        self.rows.store(rows)
        self.seconds = time.perf_counter() - began
        self._publish(out)
        return out

    def _absorb(self, rows: slice) -> Part:
        used, key = np.unique(self.work.key[rows], return_inverse=True)
        ids, unit = np.unique(self.work.unit[rows].astype(np.int64), return_inverse=True)
        seen = self.past[0][used]
        batch = Batch(
            Keys.of_codes(used.astype(np.uint64)), key.astype(np.intp), unit.astype(np.intp),
            np.zeros((len(key), 0), np.int64), np.ones(len(key), np.int8), seen,
        )  # fmt: skip
        units, part = self.mechanism.absorb(self.units.load(ids), batch)
        self.units.store(ids, units)
        return part

    def _publish(self, out: Releases) -> None:
        codes = out.key.codes().astype(np.int64)
        self.status = self.status.copy()
        self.status[codes] = out.status
        self.past.append(self.status)
        if out.value.shape[1]:
            self.shown[codes] = out.value[:, 0]


def last_error(run: Run) -> float:
    """Play a whole window; l1 distance of what is public at its end from the exact histogram."""
    for part_of_day in run.work.micro_batches(run.mechanism.horizon):
        run.step(part_of_day)
    return float(np.abs(run.work.truth() - run.shown).sum())
