"""Small records of the internal topics and the ledger, as typed structs in canonical JSON.

Times are integer microseconds since 1970 (UTC); offsets are Kafka offsets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias, TypeVar

import msgspec

from ..errors import EngineError
from ..formats.canonical import encode as encode

Offsets: TypeAlias = dict[str, list[int]]  # topic -> end offset of each partition


class Beat(msgspec.Struct, tag="beat", frozen=True):
    """Raw records below ``offsets`` may be used from now on."""

    time: int
    offsets: Offsets


class Trigger(msgspec.Struct, tag="trigger", frozen=True):
    """A cut of one pipeline's window; it is also a beat.

    ``ordinal`` numbers the pipeline's triggers without gaps, over all of its windows. ``charge`` is
    the chain hash of the ledger record that pays for the release, ``epochs`` the number of epochs
    charged to the pipeline so far, including this one. The limits are those at the time, as texts:
    a limit may be raised later, but releases keep theirs.
    """

    time: int
    offsets: Offsets
    pipeline: str
    ordinal: int
    window: int  # number of the window since the pipeline's origin; may be negative
    index: int  # 1..horizon
    final: bool
    scheduled: int
    epoch: int
    charge_seq: int
    charge: str
    config_hash: str
    code_version: str
    key_fingerprint: str = ""
    epochs: int = 0
    limit_epsilon: str = ""  # a rational; empty: none
    limit_delta: str = ""


class WiderTrigger(Trigger, tag="wider-trigger", frozen=True):
    """A trigger that covers raw partitions added after its pipeline was declared.

    It has its own tag so that a process of a version without such growth cannot read it, in the
    clock log or in a barrier: that process would close the micro-batch without these partitions'
    records.
    """


class Start(msgspec.Struct, tag="start", frozen=True):
    """The first window that a pipeline serves; earlier event times are late."""

    pipeline: str
    window: int
    time: int
    key_fingerprint: str = ""


class Skipped(msgspec.Struct, tag="skipped", frozen=True):
    """Windows whose epoch could not be charged: they have no triggers, and their data are dropped.

    The windows run from ``window`` to below ``until``, the end of the epoch.
    """

    pipeline: str
    epoch: int
    window: int
    time: int
    until: int | None = None  # None: this window alone

    @property
    def end(self) -> int:
        """The first window after the skipped ones."""
        return self.window + 1 if self.until is None else self.until


class Retired(msgspec.Struct, tag="retired", frozen=True):
    """The end of a pipeline: from ``window`` on it takes no records and has no triggers, for ever.

    The ledger's record of the same kind determines it, whatever the configuration says.
    """

    pipeline: str
    window: int
    time: int


class PipelineStanding(msgspec.Struct, frozen=True):
    """The state of one pipeline at a place in the clock log; fields as in `Timeline`."""

    first: int | None = None
    ordinal: int = 0
    floor: int = 0
    done: list[tuple[int, int]] = []
    closed: list[int] = []
    end: int | None = None


class Kept(msgspec.Struct, frozen=True):
    """An earlier snapshot from which a replay may begin, and its places in the units topics."""

    offset: int
    time: int
    units: dict[str, list[int]] = {}


class Snapshot(msgspec.Struct, tag="snapshot", frozen=True):
    """The state that results from all earlier records of the clock log: a reader may begin here.

    ``offsets`` are those of the last beat or trigger, ``pipelines`` those named in the log.
    ``records`` is the number of ledger records and ``head`` the hash of the last one; that ledger
    paid for all earlier triggers. ``fired`` is the place of the last trigger, -1 before the first.
    ``needed`` is the place of the oldest snapshot that a shard may still need, 0 if it needs the
    whole log; ``kept`` are older ones, kept for replays. ``requested`` are the requests in force,
    and ``requests`` is the place in the requests topic up to which they were read. ``units`` are
    places in the units topics, by pipeline: everything below them came from records that the log
    had covered before.
    """

    time: int
    offsets: Offsets
    pipelines: dict[str, PipelineStanding]
    records: int
    head: str
    fired: int = -1
    needed: int = 0
    kept: list[Kept] = []
    requested: dict[str, int] = {}
    requests: int = 0
    units: dict[str, list[int]] = {}


ClockRecord: TypeAlias = Beat | Trigger | WiderTrigger | Start | Skipped | Retired | Snapshot


class TriggerRequest(msgspec.Struct, frozen=True):
    """Request all triggers scheduled up to ``at``; ``id`` makes a retry harmless.

    With ``cancel`` it instead ends earlier requests: triggers that have not fired yet do not fire.
    """

    id: str
    at: int
    pipelines: list[str] | None = None
    cancel: bool = False


class Selected(msgspec.Struct, tag="selected", frozen=True):
    """Keys of one window that became public at one trigger, or changed their status."""

    window: int
    trigger: int
    shard: int
    keys: list[str]  # base64
    status: list[int]
    done: bool


class TableSeal(msgspec.Struct, frozen=True, array_like=True):
    """A secret of snapshots of a shard's table: nobody can read them without it.

    Attributes:
        secret: random number in hexadecimal digits.
        of: the last transaction in a snapshot with this secret: it belongs to this history, even if
            compaction has deleted its marker since; empty: not known yet.
    """

    secret: str
    of: str = ""


class Marker(msgspec.Struct, frozen=True):
    """The position that a shard has applied; the last row of each of its transactions.

    ``applied`` is the input offset before which everything is in the state; ``clock`` the next
    clock entry to handle; ``upstream`` the last barrier of each upstream partition, per
    pipeline; ``closed`` the last ordinal that this shard closed, per pipeline; ``progress`` the
    last key of a release that is committed in chunks; ``transaction`` names the transaction
    uniquely among all shards and all histories of the cluster; ``aborted`` names the previous
    one if it was aborted because brokers had failed to end it; ``seals`` belong to the snapshots
    of this shard's table that may still be used, newest first; ``sent`` is the number of the last
    frame to each partition of the next stage, and ``received`` that of the last frame of each
    upstream shard, both per pipeline; ``released`` is the time of the last release, milliseconds;
    ``passed`` is the time of the clock entry before ``clock``, microseconds, 0 if there is none.
    """

    genesis: str
    applied: int
    clock: int = 0
    upstream: dict[str, list[int]] = {}
    closed: dict[str, int] = {}
    progress: str | None = None
    transaction: str = ""
    aborted: str = ""
    seals: list[TableSeal] = []
    sent: dict[str, list[int]] = {}
    received: dict[str, list[int]] = {}
    released: int = 0
    passed: int = 0


_BEAT = b'{"type":"beat",'  # a struct's tag comes first
_SNAPSHOT = b'{"type":"snapshot",'
_CLOCK: msgspec.json.Decoder[ClockRecord] = msgspec.json.Decoder(
    Beat | Trigger | WiderTrigger | Start | Skipped | Retired | Snapshot
)
_REQUEST = msgspec.json.Decoder(TriggerRequest)
_SELECTED = msgspec.json.Decoder(Selected)
_MARKER = msgspec.json.Decoder(Marker)
T = TypeVar("T")


def is_beat(value: bytes) -> bool:
    """Whether a record of the clock topic is a beat, without decoding it."""
    return value.startswith(_BEAT)


def is_snapshot(value: bytes | None) -> bool:
    """Whether a record of the clock topic is a snapshot, without decoding it."""
    return value is not None and value.startswith(_SNAPSHOT)


def decode_clock(value: bytes) -> ClockRecord:
    """Decode one record of the clock topic; raises `EngineError` if it is not one."""
    return _decoded(_CLOCK, value, "clock topic")


def decode_request(value: bytes | None) -> TriggerRequest:
    """Decode one record of the requests topic; raises `EngineError` if it is not one."""
    return _decoded(_REQUEST, value, "requests topic")


def decode_selected(value: bytes) -> Selected:
    """Decode one record of a selected topic; raises `EngineError` if it is not one."""
    record = _decoded(_SELECTED, value, "selected topic")
    if len(record.keys) != len(record.status):
        raise EngineError("a record of the selected topic is damaged: keys without a status")
    return record


def decode_marker(value: bytes) -> Marker:
    """Decode the marker of a shard; raises `EngineError` if it is not one."""
    return _decoded(_MARKER, value, "state of a shard")


def _decoded(decoder: msgspec.json.Decoder[T], value: bytes | None, where: str) -> T:
    if value is not None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return decoder.decode(value)
    raise EngineError(f"a record of the {where} is damaged, or of another version of this product")
