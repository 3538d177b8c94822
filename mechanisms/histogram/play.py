"""Run a histogram over numbered units and keys in memory, for planning and for benchmarks.

The same functions as in production, without shards. The input must be public or synthetic
wherever the output decides a configuration.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64, Batch, Closed, Part, Releases, merge
from ..contract import Mechanism, Noise
from ..keys import Keys
from ..workload import Workload
from .dense_units import DenseRows, DenseUnits
from .mechanism import Histogram
from .rounds import Rounds


class Errors(NamedTuple):
    """Distance of released from exact figures; a key that is not public counts as 0."""

    last: F64  # (outputs,) l1 distance at the last trigger
    mean: F64  # (outputs,) mean of the l1 distance over all triggers
    size: F64  # (outputs,) l1 norm of the exact figures at the last trigger
    released: int  # public keys at the end


@dataclass
class Run:
    """One mechanism over one window, trigger by trigger, by the product's own functions.

    After each `step`, ``values`` (keys, outputs) holds the public figures and ``seconds`` the
    time of the last release; ``accepted`` counts records that the bound let through, where nothing
    is deleted. Windows of one epoch share ``units``.
    """

    mechanism: Histogram | Rounds
    work: Workload
    noise: Noise
    delay: int = 0
    slice_size: int = 1 << 21
    units: DenseUnits | None = None

    def __post_init__(self) -> None:
        mechanism = cast(Mechanism, self.mechanism)  # frozen fields satisfy it in substance
        self.units = self.units or DenseUnits(mechanism, self.work.users)
        self.rows = DenseRows(mechanism, self.work.keys)
        if getattr(mechanism, "public", None) is not None:  # listed keys are there from the start
            self.rows.store(mechanism.init_rows(numbered(np.arange(self.work.keys))))
        self.status = np.zeros(self.work.keys, np.int32)
        # What bound sees in micro-batch j: statuses as of trigger j-1-delay.
        self.past = deque([self.status] * (self.delay + 1), self.delay + 1)
        self.values = np.zeros((self.work.keys, len(mechanism.outputs)), np.int64)
        self.t, self.seconds, self.accepted = 0, 0.0, 0

    @property
    def shown(self) -> I64:
        """(keys,) the first output."""
        first: I64 = self.values[:, 0]
        return first

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
        value = self.work.value
        batch = Batch(
            numbered(used), key.astype(np.intp), unit.astype(np.intp),
            np.zeros((len(key), 0), np.int64) if value is None else value[rows],
            self.work.signs(rows), self.past[0][used], self.work.window,
        )  # fmt: skip
        assert self.units is not None
        units, part = self.mechanism.absorb(self.units.load(ids), batch)
        self.units.store(ids, units)
        self.accepted += int(np.abs(part.sums[:, 0]).sum())
        return part

    def _publish(self, out: Releases) -> None:
        codes = out.key.codes().astype(np.int64)
        self.status = self.status.copy()
        self.status[codes] = out.status
        self.past.append(self.status)
        self.values[codes] = out.value


def play(run: Run) -> Errors:
    """Run a whole window; where only keys are released, a public key counts as exact."""
    exact, distances = np.zeros(()), []
    for part_of_day in run.work.micro_batches(run.mechanism.horizon):
        run.step(part_of_day)
        exact = exact + run.work.exact(run.mechanism, part_of_day)
        shown = run.values if run.values.shape[1] else exact * (run.status[:, None] > 0)
        distances.append(np.abs(exact - shown).sum(axis=0))
    size, released = np.abs(exact).sum(axis=0), int((run.status > 0).sum())
    return Errors(distances[-1], np.mean(distances, axis=0), size, released)


def numbered(codes: NDArray[np.integer]) -> Keys:
    """Keys that stand for numbers."""
    return Keys.of_codes(codes.astype(np.uint64))
