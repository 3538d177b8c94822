"""Non-streaming histograms: one-shot releases at every trigger, played trigger by trigger."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hushstream.mechanisms.columns import Batch, Closed, Part, Releases
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning.play import Workload
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import UnitTable


def keyed(name: str, seed: int, window: str = "day") -> KeyedNoise:
    """Exact noise of one run."""
    return KeyedNoise(
        seed.to_bytes(32), charge=bytes(32), mechanism=name, config=b"", pipeline="table1",
        window=window, nonces=STEADY,
    )  # fmt: skip


@dataclass
class Repeated:
    """A one-shot histogram of all data so far at every trigger, each with its own noise.

    After each `step`, ``shown`` (keys,) are the public counts, ``status`` (keys,) whether a key
    is public, and ``seconds`` the time of the release.
    """

    mechanism: Histogram
    work: Workload
    seed: int
    slice_size: int = 1 << 21
    name: ClassVar[str] = "repeated"

    def __post_init__(self) -> None:
        self.units = UnitTable(self.mechanism.traits, self.work.users)
        self.t, self.seconds = 0, 0.0
        self._clear()
        self.total = np.zeros(self.work.keys, np.int64)

    def _clear(self) -> None:
        self.shown = np.zeros(self.work.keys, np.int64)
        self.status = np.zeros(self.work.keys, np.int32)

    def step(self, part_of_day: slice) -> None:
        """Absorb one micro-batch and release a new histogram in place of the last one."""
        self.t += 1
        self._count(part_of_day, window=0)
        self._clear()
        self._add(self._one_shot())

    def _count(self, part_of_day: slice, window: int) -> None:
        for begin in range(part_of_day.start, part_of_day.stop, self.slice_size):
            rows = slice(begin, min(begin + self.slice_size, part_of_day.stop))
            part = self._absorb(rows, window)
            self.total[part.key.codes().astype(np.int64)] += part.sums[:, 0]

    def _absorb(self, rows: slice, window: int) -> Part:
        used, key = np.unique(self.work.key[rows], return_inverse=True)
        ids, unit = np.unique(self.work.unit[rows].astype(np.int64), return_inverse=True)
        batch = Batch(
            Keys.of_codes(used.astype(np.uint64)), key.astype(np.intp), unit.astype(np.intp),
            np.zeros((len(key), 0), np.int64), np.ones(len(key), np.int8),
            np.zeros(len(used), np.int32), window,
        )  # fmt: skip
        units, part = self.mechanism.absorb(self.units.load(ids), batch)
        self.units.store(ids, units)
        return part

    def _one_shot(self) -> Releases:
        codes = np.flatnonzero(self.total)
        keys = Keys.of_codes(codes.astype(np.uint64))
        lane, none = np.zeros(len(codes), np.uint8), np.zeros(0, np.int64)
        part = Part(keys, lane, self.total[codes][:, None], none)
        noise = keyed(self.name, self.seed, f"day/{self.t}")
        began = time.perf_counter()
        out = self.mechanism.release(Closed(self.mechanism.traits.rows(keys), part, 1), noise)[1]
        self.seconds = time.perf_counter() - began
        return out

    def _add(self, out: Releases) -> None:
        codes = out.key.codes().astype(np.int64)
        self.status[codes] = 1
        self.shown[codes] += out.value[:, 0]


class Incremental(Repeated):
    """A one-shot histogram of every micro-batch, added up.

    Each micro-batch is a separate window, and all windows share the contribution bound.
    """

    name: ClassVar[str] = "incremental"

    def step(self, part_of_day: slice) -> None:
        """Absorb one micro-batch, release it alone, and add it to the earlier releases."""
        self.t += 1
        self.total[:] = 0
        self._count(part_of_day, window=self.t)
        self._add(self._one_shot())
