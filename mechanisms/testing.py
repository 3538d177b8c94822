"""Run any mechanism in memory: virtual shards, micro-batches, feedback, snapshots.

The same contract functions that the workers call, without Kafka; for the contract suite, for
audits and for benchmarks of accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import I64, Batch, Closed, Part, Releases, Rows, Units, empty_part, merge
from .contract import Mechanism, Noise
from .keys import Keys, concat


class Trace(NamedTuple):
    """Events of one window in log order, as columns of length n."""

    trigger: NDArray[np.intp]  # (n,) micro-batch 1..horizon, non-decreasing
    unit: NDArray[np.int64]  # (n,) any non-negative integers
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,) row of keys
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,)

    def where(self, rows: NDArray[Any]) -> Trace:
        """The trace of some of its events."""
        return self._replace(
            trigger=self.trigger[rows],
            unit=self.unit[rows],
            key=self.key[rows],
            value=self.value[rows],
            sign=self.sign[rows],
        )


class UnitTable:
    """Unit rows of one bound shard, keyed by integer ids, all in CSR columns."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.ids = np.empty(0, np.int64)
        self.units = mechanism.init_units(0)
        self._fresh = mechanism.init_units

    def load(self, ids: NDArray[np.int64]) -> Units:
        """State of the sorted distinct ``ids``; unseen ones are fresh."""
        place = np.searchsorted(self.ids, ids)
        place = np.minimum(place, max(len(self.ids) - 1, 0))
        known = self.ids[place] == ids if len(self.ids) else np.zeros(len(ids), bool)
        fresh = self._fresh(int((~known).sum()))
        both = _stack(_select(self.units, place[known]), fresh)
        back = np.empty(len(ids), np.intp)
        back[np.flatnonzero(known)] = np.arange(int(known.sum()))
        back[np.flatnonzero(~known)] = int(known.sum()) + np.arange(int((~known).sum()))
        return _select(both, back)

    def store(self, ids: NDArray[np.int64], units: Units) -> None:
        """Replace or add the rows of the sorted distinct ``ids``."""
        stays = np.flatnonzero(~np.isin(self.ids, ids, assume_unique=True))
        every = np.concatenate([self.ids[stays], ids])
        order = np.argsort(every, kind="stable")
        self.units = _select(_stack(_select(self.units, stays), units), order)
        self.ids = every[order]


def _select(units: Units, rows: NDArray[Any]) -> Units:
    widths = units.start[1:][rows] - units.start[:-1][rows]
    start = np.concatenate([np.zeros(1, np.int64), widths.cumsum()])
    where = np.arange(start[-1]) + np.repeat(units.start[:-1][rows] - start[:-1], widths)
    return Units(units.left[rows], start, units.pair[where], units.used[where])


def _stack(first: Units, second: Units) -> Units:
    return Units(
        np.concatenate([first.left, second.left]),
        np.concatenate([first.start, second.start[1:] + first.start[-1]]),
        np.concatenate([first.pair, second.pair]),
        np.concatenate([first.used, second.used]),
    )


class RowTable:
    """Key rows of one aggregate shard."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.cells: dict[bytes, Any] = {}
        self.due: dict[bytes, int] = {}
        self._mechanism = mechanism

    def load(self, part: Part, t: int, scan: bool) -> Rows:
        """Rows that a release at trigger ``t`` may read; ``scan`` loads every stored one."""
        wanted = set(part.key.tolist())
        if scan or self._mechanism.load == "all":
            wanted.update(self.cells)
        else:
            wanted.update(k for k, due in self.due.items() if due in (t, -1))
        keys = Keys.of(sorted(wanted))
        rows = self._mechanism.init_rows(keys)
        for row, key in enumerate(keys):
            if key in self.cells:
                rows.cell[row] = self.cells[key]
                rows.due[row] = self.due[key]
        return rows

    def store(self, rows: Rows) -> None:
        """Write back the rows that a release returned."""
        for row, key in enumerate(rows.key):
            self.cells[key] = rows.cell[row].copy()
            self.due[key] = int(rows.due[row])


@dataclass
class Memory:
    """All state of one window of one pipeline, on any number of virtual shards.

    Args:
        mechanism: any `Mechanism`.
        noise: its only randomness.
        bound_shards, aggregate_shards: number of each; results never depend on them.
        delay: d; a record of micro-batch j sees statuses as of trigger j-1-d.
        scan: load every row at every trigger instead of due ones (same result, slower).
        renewals: triggers at which the nonce of the noise changes; all rows are loaded there.
    """

    mechanism: Mechanism
    noise: Noise
    bound_shards: int = 1
    aggregate_shards: int = 1
    delay: int = 1
    scan: bool = False
    renewals: tuple[int, ...] = ()
    t: int = 0
    unit_tables: list[UnitTable] = field(default_factory=list)
    row_tables: list[RowTable] = field(default_factory=list)
    seen: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    parked: list[list[Part]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.mechanism.routing == "single":
            self.aggregate_shards = 1
        self.unit_tables = [UnitTable(self.mechanism) for _ in range(self.bound_shards)]
        self.row_tables = [RowTable(self.mechanism) for _ in range(self.aggregate_shards)]
        self._reset()

    def _reset(self) -> None:
        empty = empty_part(self.mechanism.columns, self.mechanism.totals)
        self.parked = [[empty] for _ in range(self.aggregate_shards)]

    def absorb(self, slice_: Trace) -> list[Part]:
        """Take events of the open micro-batch; return the parts that bound shards sent."""
        sent = []
        for shard in range(self.bound_shards):
            mine = slice_.where(np.flatnonzero(slice_.unit % self.bound_shards == shard))
            if len(mine.unit):
                sent.append(self._bound(shard, mine))
        for part in sent:
            self._route(part)
        return sent

    def _bound(self, shard: int, mine: Trace) -> Part:
        used, key = np.unique(mine.key, return_inverse=True)
        keys = mine.keys.take(used)
        ids, unit = np.unique(mine.unit, return_inverse=True)
        batch = Batch(keys, key, unit, mine.value, mine.sign, self._statuses(keys))
        table = self.unit_tables[shard]
        units, part = self.mechanism.absorb(table.load(ids), batch)
        table.store(ids, units)
        return part

    def _statuses(self, keys: Keys) -> NDArray[np.int32]:
        status = np.zeros(len(keys), np.int32)
        if self.mechanism.feedback:
            last = self.t - self.delay  # open micro-batch t+1 sees triggers up to t - d
            for row, key in enumerate(keys):
                for trigger, value in self.seen.get(key, ()):
                    status[row] = value if trigger <= last else status[row]
        return status

    def _route(self, part: Part) -> None:
        home = np.fromiter((_route_hash(k) for k in part.key), np.int64, len(part.key))
        home %= self.aggregate_shards
        for shard in range(self.aggregate_shards):
            rows = np.flatnonzero(home == shard)
            mine = Part(part.key.take(rows), part.lane[rows], part.sums[rows], part.totals)
            self.parked[shard].append(mine)

    def trigger(self) -> Releases:
        """Close the open micro-batch and release it; rows of all shards in canonical order."""
        self.t += 1
        if self.t > self.mechanism.horizon:
            raise ContractError(f"trigger {self.t} is beyond the horizon")
        out = [self._release(shard) for shard in range(self.aggregate_shards)]
        self._reset()
        return gather(out)

    def _release(self, shard: int) -> Releases:
        part = merge(self.parked[shard])
        table = self.row_tables[shard]
        rows = table.load(part, self.t, self.scan or self.t in self.renewals)
        renewals = tuple(t for t in self.renewals if t <= self.t)
        closed = Closed(rows, part, self.t, renewals)
        rows, releases = self.mechanism.release(closed, self.noise)
        table.store(rows)
        for key, status in zip(releases.key, releases.status.tolist(), strict=True):
            known = self.seen.setdefault(key, [])
            if not known or known[-1][1] != status:
                known.append((self.t, status))
        return releases


def _route_hash(key: bytes) -> int:
    return int.from_bytes(key[-4:], "big") + 31 * len(key)


def gather(releases: list[Releases]) -> Releases:
    """Releases of all aggregate shards of one trigger as one, in canonical key order."""
    keys = concat([r.key for r in releases])
    order = np.array(sorted(range(len(keys)), key=keys.tolist().__getitem__), np.intp)
    public: dict[str, I64] = {}
    for one in releases:
        public.update(one.public)
    return Releases(
        keys.take(order),
        np.concatenate([r.value for r in releases])[order],
        np.concatenate([r.variance for r in releases])[order],
        np.concatenate([r.status for r in releases])[order],
        public,
        releases[0].counted,  # the same of all, since here they have one noise
    )


def run(memory: Memory, trace: Trace, slice_size: int | None = None) -> Iterator[Releases]:
    """Feed a whole trace, trigger by trigger, in slices of at most ``slice_size`` events."""
    for t in range(memory.t + 1, memory.mechanism.horizon + 1):
        rows = np.flatnonzero(trace.trigger == t)
        step = slice_size or max(len(rows), 1)
        for begin in range(0, len(rows), step):
            memory.absorb(trace.where(rows[begin : begin + step]))
        yield memory.trigger()


def seed(memory: Memory, keys: Keys) -> None:
    """Store the rows of a public key list before the first trigger, due at every one."""
    for key in keys:
        one = Keys.of([key])
        shard = _route_hash(key) % memory.aggregate_shards
        rows = memory.mechanism.init_rows(one)
        memory.row_tables[shard].store(rows._replace(due=np.full(1, -1, np.int32)))
