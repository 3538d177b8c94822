"""What was published beside what was recomputed: bytes, times, headers, each record once."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from hushstream.mechanisms.keys import Keys
from hushstream.topics.events import Raw, utc
from hushstream.topics.records import Trigger

from .bound import route
from .logs import PartitionLog
from .model import Pipeline
from .step import Out

SHOWN = 20


@dataclass
class Outcome:
    """What a comparison found.

    Attributes:
        compared: records found in both, byte for byte the same.
        lost: recomputed, not in the log, although later ones of its shard are.
        doubled: in the log more than once.
        differing: in the log with other bytes than recomputed, or not recomputed at all;
            copies of aborted transactions included.
        pending: recomputed, and not in the log yet: the deployment has not come so far.
        aborted: copies that only a reader of uncommitted data sees, all the same bytes.
        routed: events whose way through a units log was checked.
        problems: the first of them, in words.
    """

    compared: int = 0
    lost: int = 0
    doubled: int = 0
    differing: int = 0
    pending: int = 0
    aborted: int = 0
    routed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether everything published is exactly what it should be."""
        return not (self.lost or self.doubled or self.differing)

    def found(self, what: str, where: str, number: int = 1) -> None:
        """Count a problem, and keep the first ones in words."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.problems) < SHOWN:
            self.problems.append(f"{what}: {where}")

    def figures(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"agrees": self.agrees}


class Published(NamedTuple):
    """Everything of a record that a reader can see."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


Name = tuple[bytes, str, int]  # record key, schema, trigger


def compare_releases(
    pipeline: Pipeline,
    triggers: Sequence[Trigger],
    windows: Collection[int] | None,
    outs: Sequence[Out],
    committed: Sequence[PartitionLog],
    uncommitted: Sequence[PartitionLog],
    outcome: Outcome,
) -> None:
    """Compare the release topic of one pipeline with what was recomputed.

    Each release must be there once for a reader of committed data, and all copies that a reader
    of uncommitted data sees must be the same.
    """
    mine = pipeline.name.encode() + b"|"
    chosen = _Chosen(pipeline, triggers, windows)
    expected = {
        name(o.key, o.value): _of_out(o)
        for o in outs
        if (o.key or b"").startswith(mine) and chosen.takes(o.key or b"")
    }
    seen = _published(committed, mine, chosen)
    copies = _published(uncommitted, mine, chosen)
    for one, records in seen.items():
        _compare_one(one, records, expected.get(one), outcome)
    for one, records in copies.items():
        extra = len(records) - len(seen.get(one, ()))
        wrong = sum(record != expected.get(one) for record in records)
        if one in seen:
            wrong -= sum(record != expected.get(one) for record in seen[one])
        outcome.aborted += extra - wrong
        if wrong:
            outcome.found("differing", f"an aborted copy of {_text(one)}", wrong)
    _missing(expected, seen, chosen, outcome)


def _compare_one(
    one: Name, records: list[Published], expected: Published | None, outcome: Outcome
) -> None:
    if expected is None:
        outcome.found("differing", f"{_text(one)} was published but not recomputed")
    elif any(record != expected for record in records):
        outcome.found("differing", _text(one))
    else:
        outcome.compared += 1
    if len(records) > 1:
        outcome.found("doubled", _text(one), len(records) - 1)


def _missing(
    expected: dict[Name, Published],
    seen: dict[Name, list[Published]],
    chosen: _Chosen,
    outcome: Outcome,
) -> None:
    """A shard publishes its triggers in order, and a manifest after its rows."""
    reached: dict[int, int] = defaultdict(int)
    for one in seen:
        if one in expected and one[1].startswith("hush.manifest"):
            shard, ordinal = chosen.shard(one), chosen.ordinal(one)
            reached[shard] = max(reached[shard], ordinal)
    for one in expected.keys() - seen.keys():
        if chosen.ordinal(one) <= reached[chosen.shard(one)]:
            outcome.found("lost", _text(one))
        else:
            outcome.pending += 1


class _Chosen:
    """Places of a pipeline's releases: which shard, which ordinal, and whether it was asked for."""

    def __init__(
        self, pipeline: Pipeline, triggers: Sequence[Trigger], windows: Collection[int] | None
    ) -> None:
        self._pipeline = pipeline
        start = pipeline.windows.start
        self._ordinals = {(utc(start(t.window)).encode(), t.index): t.ordinal for t in triggers}
        self._texts = None if windows is None else {utc(start(w)).encode() for w in windows}

    def takes(self, key: bytes) -> bool:
        """Whether a record belongs to the windows asked for."""
        return self._texts is None or key.split(b"|", 2)[1] in self._texts

    def ordinal(self, one: Name) -> int:
        """The number of the trigger; a later one than all if the clock does not know it."""
        return self._ordinals.get((one[0].split(b"|", 2)[1], one[2]), 1 << 62)

    def shard(self, one: Name) -> int:
        """The aggregate shard that publishes a record."""
        rest = one[0].split(b"|", 2)[2]
        if one[1].startswith("hush.manifest"):
            return int(rest.removeprefix(b"manifest:"))
        return int(route(Keys.of([rest]), self._pipeline.cells_partitions)[0])


def _published(
    logs: Sequence[PartitionLog], prefix: bytes, chosen: _Chosen
) -> dict[Name, list[Published]]:
    found: dict[Name, list[Published]] = defaultdict(list)
    for partition, log in enumerate(logs):
        for record in log.records:
            key = record.key or b""
            if key.startswith(prefix) and chosen.takes(key):
                found[name(record.key, record.value)].append(_of_raw(partition, record))
    return found


def name(key: bytes | None, value: bytes | None) -> Name:
    """What makes a release record one and only: all its rows must be there exactly once.

    What somebody else wrote there, and is no release, has a name that nothing expects.
    """
    try:
        body = json.loads(value or b"{}")
        return (key or b"", str(body.get("schema", "")), int(body.get("trigger", 0)))
    except (ValueError, TypeError, AttributeError):
        return (key or b"", "", 0)


def _text(one: Name) -> str:
    return f"{one[0]!r}, trigger {one[2]} ({one[1]})"


def compare_dead_letters(
    topic: str, outs: Sequence[Out], log: PartitionLog, outcome: Outcome
) -> None:
    """Compare a topic of bad, late or far-future records; it may have been trimmed."""
    expected = Counter(_of_out(o) for o in outs)
    seen = Counter(_of_raw(0, record) for record in log.records)
    reached: dict[Any, int] = defaultdict(int)
    for record, copies in seen.items():
        source, offset = _origin(record)
        reached[source] = max(reached[source], offset)
        wanted = expected[record]
        outcome.compared += min(copies, wanted)
        if not wanted:
            outcome.found("differing", f"{topic}: a copy of {source}, offset {offset}", copies)
        elif copies > wanted:
            outcome.found("doubled", f"{topic}: {source}, offset {offset}", copies - wanted)
    for record, wanted in (expected - seen).items():
        source, offset = _origin(record)
        if offset > reached[source] or source not in reached:
            outcome.pending += wanted
        elif log.begin == 0:
            outcome.found("lost", f"{topic}: {source}, offset {offset}", wanted)


def _origin(record: Published) -> tuple[tuple[bytes, bytes], int]:
    """Raw topic and partition, and the offset there, of a dead letter."""
    headers = dict(record.headers)
    prefix = "__streams.errors."
    source = headers.get(f"{prefix}topic", b""), headers.get(f"{prefix}partition", b"")
    return source, int(headers.get(f"{prefix}offset", b"0"))


def _of_out(out: Out) -> Published:
    stamp = -1 if out.timestamp is None else out.timestamp
    return Published(out.partition, out.key, out.value, stamp, tuple(out.headers))


def _of_raw(partition: int, record: Raw) -> Published:
    return Published(partition, record.key, record.value, record.timestamp, record.headers)
