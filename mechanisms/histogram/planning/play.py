"""Run a histogram over numbered units and keys in memory, and judge its errors.

The input must be public or synthetic wherever the output decides a configuration.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...columns import F64, I64, Releases
from ...contract import Noise
from ...in_memory import Memory, feed
from ...keys import Keys
from ...pair_numbers import codes_of, keys_of
from ...tables import UnitTable
from ...workload import Workload, plainly
from ..mechanism import Histogram
from ..rounds.mechanism import Rounds


class Errors(NamedTuple):
    """Distance of released from exact figures; a key that is not public counts as 0."""

    last: F64  # (outputs,) l1 distance at the last trigger
    mean: F64  # (outputs,) mean of the l1 distance over all triggers
    size: F64  # (outputs,) l1 norm of the exact figures at the last trigger
    released: int  # public keys at the end


@dataclass
class Run:
    """One histogram over one window, trigger by trigger.

    After each `step`, ``status`` (keys,) and ``values`` (keys, counts and sums) hold public
    figures and ``seconds`` the time of the last release; ``accepted`` counts records that the bound
    accepted, where nothing is deleted. ``counted`` is what each record adds to the requested exact
    count, see `Workload.exact`. Windows of one epoch share ``units``.
    """

    mechanism: Histogram | Rounds
    work: Workload
    noise: Noise
    delay: int = 0
    units: UnitTable | None = None

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        self.units = self.units or UnitTable(mechanism.traits, self.work.users)
        self.memory = Memory(
            mechanism, self.noise, delay=self.delay, window=self.work.window,
            unit_tables=[self.units],
        )  # fmt: skip
        if mechanism.public is not None:  # listed keys are there from the start
            listed = numbered(np.arange(self.work.keys), mechanism.traits.pairs)
            self.memory.row_tables[0].store(mechanism.traits.rows(listed))
        self.status = np.zeros(self.work.keys, np.int32)
        self.values = np.zeros((self.work.keys, len(plainly(mechanism.traits.outputs))), np.int64)
        self.seconds, self.accepted = 0.0, 0
        self.counted = self.work.once() if mechanism.bound.of_units else None
        if mechanism.traits.pairs:
            self.counted = self.work.sightings()

    @property
    def shown(self) -> I64:
        """(keys,) the first output."""
        first: I64 = self.values[:, 0]
        return first

    def step(self, rows: slice) -> Releases:
        """Absorb one micro-batch and release it."""
        sent = feed(self.memory, self.work, rows)
        self.accepted += sum(int(np.abs(part.sums[:, 0]).sum()) for part in sent)
        began = time.perf_counter()
        out = self.memory.trigger()
        self.seconds = time.perf_counter() - began
        codes = codes_of(out.key) if self.mechanism.traits.pairs else out.key.codes()
        codes = codes.astype(np.int64)
        self.status[codes] = out.status
        self.values[codes] = out.value[:, : self.values.shape[1]]
        return out


def play(run: Run) -> Errors:
    """Run a whole window; where only keys are released, a public key counts as exact."""
    exact, distances = np.zeros(()), []
    for part_of_day in run.work.micro_batches(run.mechanism.horizon):
        run.step(part_of_day)
        exact = exact + run.work.exact(run.mechanism, part_of_day, run.counted)
        shown = run.values if run.values.shape[1] else exact * (run.status[:, None] > 0)
        distances.append(np.abs(exact - shown).sum(axis=0))
    size, released = np.abs(exact).sum(axis=0), int((run.status > 0).sum())
    return Errors(distances[-1], np.mean(distances, axis=0), size, released)


def numbered(codes: NDArray[np.integer], pairs: bool = False) -> Keys:
    """Keys that encode numbers; with ``pairs`` in the form for counting distinct values."""
    if pairs:
        return keys_of(codes)
    return Keys.of_codes(codes.astype(np.uint64))
