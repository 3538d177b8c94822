"""Run any mechanism in memory: virtual shards, micro-batches, feedback, new nonces.

It calls the contract functions that the workers call, but without Kafka: for forecasts and
proposals, for the contract suite, audits and benchmarks. The input must be public or synthetic
wherever the output decides a configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import FIRST, I64, Batch, Closed, Hop, Part, Releases, merge
from .contract import Mechanism, Noise
from .keys import Keys, concat
from .pair_numbers import pairs_of
from .pairs import homes, settled, split
from .tables import RowTable, StatusTable, UnitTable
from .workload import Workload

SLICE = 1 << 20  # records of a workload absorbed at once


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


@dataclass
class Memory:
    """All state of one window of one pipeline, on any number of virtual shards.

    Args:
        mechanism: any `Mechanism`.
        noise: the only source of randomness.
        bound_shards, aggregate_shards: number of each; results do not depend on them.
        delay: d; a record of micro-batch j sees statuses as of trigger j-1-d.
        scan: load every row at every trigger instead of due ones (same result, slower).
        renewals: triggers at which the nonce of the noise changes; all rows are loaded there.
        window: position of the window in its epoch.
        hop: position of the window among those with carried rows.
        before: the previous window, from which rows are carried.
        unit_tables: unit tables, one per bound shard; windows of an epoch share them.
    """

    mechanism: Mechanism
    noise: Noise
    bound_shards: int = 1
    aggregate_shards: int = 1
    delay: int = 1
    scan: bool = False
    renewals: tuple[int, ...] = ()
    window: int = 0
    hop: Hop = FIRST
    before: Memory | None = None
    t: int = 0
    unit_tables: list[UnitTable] = field(default_factory=list)
    row_tables: list[RowTable] = field(default_factory=list)
    parked: list[list[Part]] = field(default_factory=list)
    sets: list[set[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.mechanism.traits.routing == "single":
            self.aggregate_shards = 1
        if not self.unit_tables:
            self.unit_tables = [UnitTable(self.mechanism.traits) for _ in range(self.bound_shards)]
        self.row_tables = [RowTable(self.mechanism.traits) for _ in range(self.aggregate_shards)]
        self.sets = [set() for _ in range(self.aggregate_shards)]
        self._statuses = StatusTable(self.delay)
        self._reset()

    def _reset(self) -> None:
        self.parked = [[self.mechanism.traits.part()] for _ in range(self.aggregate_shards)]

    def absorb(self, slice_: Trace) -> list[Part]:
        """Take events of the open micro-batch; return the parts that bound shards sent."""
        sent = []
        for shard in range(self.bound_shards):
            mine = slice_
            if self.bound_shards > 1:
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
        none = np.zeros(len(keys), np.int32)
        status = self._status(keys) if self.mechanism.traits.feedback else none
        batch = Batch(keys, key, unit, mine.value, mine.sign, status, self.window)
        table = self.unit_tables[shard]
        units, part = self.mechanism.absorb(table.load(ids), batch)
        table.store(ids, units)
        return part

    def _status(self, keys: Keys) -> NDArray[np.int32]:
        if not self.mechanism.traits.pairs:
            return self._statuses.of(keys)
        parts = split(keys)
        status: NDArray[np.int32] = self._statuses.of(parts.keys)[parts.key]
        return status

    def _route(self, part: Part) -> None:
        if self.aggregate_shards == 1:
            self.parked[0].append(part)
            return
        homes_ = homes(part) if self.mechanism.traits.pairs else part.key
        home = np.fromiter((_route_hash(k) for k in homes_), np.int64, len(part.key))
        home %= self.aggregate_shards
        for shard in range(self.aggregate_shards):
            rows = np.flatnonzero(home == shard)
            mine = Part(part.key.take(rows), part.lane[rows], part.sums[rows], part.totals)
            self.parked[shard].append(mine)

    def trigger(self) -> Releases:
        """Close the open micro-batch and release it; rows of all shards in canonical order."""
        self.t += 1
        if self.t > self.mechanism.traits.horizon:
            raise ContractError(f"trigger {self.t} is beyond the horizon")
        out = gather([self._release(shard) for shard in range(self.aggregate_shards)])
        if self.mechanism.traits.feedback:
            self._statuses.add(out.key, out.status)
        self._reset()
        return out

    def _release(self, shard: int) -> Releases:
        parts = self.parked[shard]
        part = merge(parts) if len(parts) > 1 else parts[0]
        if self.mechanism.traits.pairs:
            part = self._settled(part, self.sets[shard])
        table = self.row_tables[shard]
        scan = self.scan or self.mechanism.traits.carries or self.t in self.renewals
        source = table if self.before is None else self.before.row_tables[shard]
        rows = source.load(part, self.t, scan)
        renewals = tuple(t for t in self.renewals if t <= self.t)
        closed = Closed(rows, part, self.t, renewals, self.hop)
        rows, releases = self.mechanism.release(closed, self.noise)
        table.store(rows)
        return releases

    def _settled(self, part: Part, known: set[bytes]) -> Part:
        """Sums by key of the pairs that a shard has not seen before."""
        new = np.fromiter((name not in known for name in part.key), np.bool_, len(part.key))
        known.update(part.key)
        return settled(part, new)


def _route_hash(key: bytes) -> int:
    return int.from_bytes(key[-4:], "big") + 31 * len(key)


def gather(releases: list[Releases]) -> Releases:
    """Releases of all aggregate shards of one trigger as one, in canonical key order."""
    keys = concat([r.key for r in releases])
    order = np.argsort(keys.unique()[1], kind="stable")
    public: dict[str, I64] = {}
    for one in releases:
        public.update(one.public)
    return Releases(
        keys.take(order),
        np.concatenate([r.value for r in releases])[order],
        np.concatenate([r.variance for r in releases])[order],
        np.concatenate([r.status for r in releases])[order],
        public,
        releases[0].counted,  # equal for all shards, which share one noise here
    )


def run(memory: Memory, trace: Trace, slice_size: int | None = None) -> Iterator[Releases]:
    """Feed a whole trace, trigger by trigger, in slices of at most ``slice_size`` events."""
    for t in range(memory.t + 1, memory.mechanism.traits.horizon + 1):
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
        rows = memory.mechanism.traits.rows(one)
        memory.row_tables[shard].store(rows._replace(due=np.full(1, -1, np.int32)))


def trace_of(mechanism: Mechanism, work: Workload, rows: slice) -> Trace:
    """Some records of a workload, with numbered keys or the mechanism's own keys.

    Raises:
        ContractError: the workload has no columns, but the mechanism reads some.
    """
    unit, sign = work.unit[rows].astype(np.int64), work.signs(rows)
    if not mechanism.traits.inputs:
        keys, key = _numbered(work, rows, mechanism.traits.pairs)
        value = np.zeros((len(key), 0), np.int64) if work.value is None else work.value[rows]
        return Trace(np.zeros(len(key), np.intp), unit, keys, key, value, sign)
    if work.columns is None:
        raise ContractError("the workload does not hold what this mechanism reads")
    encoded = mechanism.encode({name: column[rows] for name, column in work.columns.items()})
    keys, key = encoded.keys, encoded.key
    if mechanism.traits.by_record:
        keys, key = _numbered(work, rows)
    keep = np.flatnonzero(encoded.keep)
    trace = Trace(np.zeros(len(key), np.intp), unit, keys, key, encoded.value, sign)
    return trace.where(keep)


def _numbered(work: Workload, rows: slice, pairs: bool = False) -> tuple[Keys, NDArray[np.intp]]:
    """Keys that encode the numbers of a workload, and the row of each record among them."""
    if pairs and work.item is not None:
        code = work.key[rows].astype(np.int64) << 32 | work.item[rows]
        both, key = np.unique(code, return_inverse=True)
        return pairs_of(both >> 32, both & 0xFFFFFFFF), key
    used, key = np.unique(work.key[rows], return_inverse=True)
    return Keys.of_codes(used.astype(np.uint64)), key


def feed(memory: Memory, work: Workload, rows: slice, size: int = SLICE) -> list[Part]:
    """Take records of a workload into the open micro-batch; return the bound shards' parts."""
    sent: list[Part] = []
    for begin in range(rows.start, rows.stop, size):
        part = slice(begin, min(begin + size, rows.stop))
        sent += memory.absorb(trace_of(memory.mechanism, work, part))
    return sent


def releases(mechanism: Mechanism, work: Workload, noise: Noise) -> Iterator[Releases]:
    """Releases of one window of a workload, trigger by trigger.

    Raises:
        ContractError: the workload has no columns for the mechanism.
    """
    units = UnitTable(mechanism.traits, work.users)
    memory = Memory(mechanism, noise, window=work.window, unit_tables=[units])
    for rows in work.micro_batches(mechanism.traits.horizon):
        feed(memory, work, rows)
        yield memory.trigger()


def replays(
    mechanism: Mechanism, work: Workload, noises: Sequence[Noise]
) -> Iterator[list[Releases]]:
    """Releases of one window under each noise, trigger by trigger.

    Records are read and bounded once for all noises, unless releases decide which records count.

    Raises:
        ContractError: the workload has no columns for the mechanism.
    """
    if mechanism.traits.feedback:
        yield from (list(releases(mechanism, work, noise)) for noise in noises)
        return
    parts: list[Part] = []
    for noise in noises:
        units = UnitTable(mechanism.traits, work.users)
        memory = Memory(mechanism, noise, window=work.window, unit_tables=[units])
        if not parts:
            for rows in work.micro_batches(mechanism.traits.horizon):
                sent = feed(memory, work, rows)
                parts.append(merge([mechanism.traits.part(), *sent]))
        found = []
        for part in parts:
            memory.parked = [[part]]
            found.append(memory.trigger())
        yield found


def last_releases(
    mechanism: Mechanism, work: Workload, noises: Sequence[Noise]
) -> Iterator[Releases]:
    """The last release of a window under each noise; it must not depend on earlier ones.

    Raises:
        ContractError: the workload has no columns for the mechanism.
    """
    parked: list[Part] = []
    for noise in noises:
        memory = Memory(
            mechanism, noise, window=work.window, t=mechanism.traits.horizon - 1,
            unit_tables=[UnitTable(mechanism.traits, work.users)],
        )  # fmt: skip
        if not parked:
            sent = feed(memory, work, slice(0, len(work.unit)), max(len(work.unit), 1))
            parked.append(merge([mechanism.traits.part(), *sent]))
        memory.parked = [parked]
        yield memory.trigger()


def last_release(mechanism: Mechanism, work: Workload, noise: Noise) -> Releases:
    """The last release of a window under one noise."""
    return next(last_releases(mechanism, work, [noise]))
