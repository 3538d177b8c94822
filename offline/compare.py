"""Comparison of published and recomputed records: bytes, times, headers, each record once.

Copies of bad and late records are compared without their times, which are the times of writing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ..agents.deployment.model import Pipeline
from ..agents.kafka.logs import PartitionLog
from ..agents.kafka.set_aside import marked, pipeline_in
from ..agents.stages.step import Out, route
from ..formats.events.decode import RawRecord, utc
from ..formats.values.codec import JSON, ReleaseCodec
from ..mechanisms.keys import Keys
from ..topics.records import Trigger
from ..topics.signatures import SIGNATURE, Seal, Sealing, Signed

SHOWN = 20


@dataclass
class ReplayOutcome:
    """The result of a comparison."""

    compared: int = 0  # records found in both, identical byte for byte
    lost: int = 0  # recomputed, but missing in the log although later ones of the shard are present
    doubled: int = 0  # in the log more than once
    # in the log with other bytes than recomputed, or not recomputed at all; includes copies from
    # aborted transactions
    differing: int = 0
    pending: int = 0  # recomputed, but not yet in the log: the deployment has not got there
    aborted: int = 0  # identical copies that only a reader of uncommitted data sees
    routed: int = 0  # events whose path through a units log was checked
    problems: list[str] = field(default_factory=list)  # the first problems, in words
    left_out: list[str] = field(default_factory=list)  # what was not compared, in words

    @property
    def agrees(self) -> bool:
        """Whether all published records are correct."""
        return not (self.lost or self.doubled or self.differing)

    def found(self, what: str, where: str, number: int = 1) -> None:
        """Count ``number`` problems under the figure ``what``, and keep the first few as text."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.problems) < SHOWN:
            self.problems.append(f"{what}: {where}")

    def figures(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return asdict(self) | {"agrees": self.agrees}


class Published(NamedTuple):
    """All that a reader can see of a record."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


Name = tuple[bytes, str, int]  # record key, schema, trigger


class ReleaseCheck:
    """The recomputed releases of one pipeline, compared with those that readers see.

    A reader of committed data must see each release once, and all copies that a reader of
    uncommitted data sees must be identical. Records arrive one by one, and only digests are kept.

    Args:
        triggers: this pipeline's triggers, from the clock log.
        windows: numbers of windows to compare; all of them if None.
        first: the first window that can be compared; None: the very first.
        sealing: verifier of releases, without the secret key; None: they are not signed.
        without: numbers of windows that cannot be compared.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        triggers: Sequence[Trigger],
        windows: Collection[int] | None,
        first: int | None = None,
        sealing: Sealing | None = None,
        without: Collection[int] = (),
    ) -> None:
        self._mine = pipeline.name.encode() + b"|"
        self._codec = pipeline.codec
        self._topic, self._sealing = pipeline.release_topic, sealing
        self._chosen = _Chosen(pipeline, triggers, windows, first, without)
        self._expected: dict[Name, bytes] = {}
        self._seen: dict[Name, Tally] = {}
        self._copies: dict[Name, Tally] = {}
        self._reached: dict[int, int] = defaultdict(int)

    def expect(self, out: Out) -> None:
        """Take a recomputed record of the release topic."""
        if self.takes(out.key):
            self._expected[name(out.key, out.value, self._codec)] = digest(of_out(out))

    def take(self, partition: int, record: RawRecord, committed: bool) -> None:
        """Take a record of the release topic, after `expect` was given all records.

        ``committed`` is False for a copy that only a reader of uncommitted data sees.
        """
        if self.takes(record.key):
            one = name(record.key, record.value, self._codec)
            wrong = digest(self._unsigned(partition, record)) != self._expected.get(one)
            tallies = self._seen if committed else self._copies
            before = tallies.get(one, NONE)
            tallies[one] = Tally(before.number + 1, before.wrong + wrong)

    def _unsigned(self, partition: int, record: RawRecord) -> Published:
        """A record as read, without its signature if the signature is valid.

        A replay has no signing key, so an invalid signature stays in the record and differs.
        """
        found = of_raw(partition, record)
        name, told = found.headers[-1] if found.headers else ("", b"")
        seal = Seal.decode(told) if name == SIGNATURE else None
        if seal is None or self._sealing is None:
            return found
        rest = found.headers[:-1]
        signed = Signed(
            self._topic, partition, found.key or b"", found.value or b"", found.timestamp, rest
        )
        if not self._sealing.holds(signed, seal):
            return found
        return found._replace(headers=(*rest, (name, seal._replace(signature="").encode())))

    def takes(self, key: bytes | None) -> bool:
        """Whether a record is of this pipeline and of the requested windows."""
        return (key or b"").startswith(self._mine) and self._chosen.takes(key or b"")

    def finish(self, outcome: ReplayOutcome) -> None:
        """Judge the records taken, and add the result to ``outcome``."""
        for one, tally in self._seen.items():
            self._judge(one, tally, outcome)
        for one, tally in self._copies.items():
            seen = self._seen.get(one, NONE)
            extra, wrong = tally.number - seen.number, tally.wrong - seen.wrong
            outcome.aborted += extra - wrong
            if wrong:
                outcome.found("differing", f"an aborted copy of {_text(one)}", wrong)
        self._missing(outcome)

    def _judge(self, one: Name, tally: Tally, outcome: ReplayOutcome) -> None:
        if one not in self._expected:
            outcome.found("differing", f"{_text(one)} was published but not recomputed")
        elif tally.wrong:
            outcome.found("differing", _text(one))
        else:
            outcome.compared += 1
        if tally.number > 1:
            outcome.found("doubled", _text(one), tally.number - 1)

    def ordinal(self, key: bytes, trigger: int) -> int:
        """The ordinal of a trigger in the window that a record key names."""
        return self._chosen.ordinal((key, "", trigger))

    def published(self, key: bytes, ordinal: int) -> bool:
        """Whether the shard of a row has published up to it; known after `finish`."""
        return ordinal <= self._reached[self._chosen.shard((key, "", 0))]

    def _missing(self, outcome: ReplayOutcome) -> None:
        """Distinguish lost and pending rows: a shard publishes in order, a manifest after rows."""
        chosen, reached = self._chosen, self._reached
        for one in self._seen:
            if one in self._expected and one[1].startswith("hush.manifest"):
                shard, ordinal = chosen.shard(one), chosen.ordinal(one)
                reached[shard] = max(reached[shard], ordinal)
        for one in self._expected.keys() - self._seen.keys():
            if chosen.ordinal(one) <= reached[chosen.shard(one)]:
                outcome.found("lost", _text(one))
            else:
                outcome.pending += 1


class Tally(NamedTuple):
    """Number of records of one name, and how many of them differ from the recomputed one."""

    number: int
    wrong: int


NONE = Tally(0, 0)


def digest(published: Published) -> bytes:
    """Digest that represents a record in the tables of a check."""
    return hashlib.blake2b(msgspec.msgpack.encode(published), digest_size=16).digest()


class _Chosen:
    """Shard and ordinal of a pipeline's releases, and whether they were requested."""

    def __init__(
        self,
        pipeline: Pipeline,
        triggers: Sequence[Trigger],
        windows: Collection[int] | None,
        first: int | None,
        without: Collection[int],
    ) -> None:
        self._least = b"" if first is None else utc(pipeline.windows.opens(first)).encode()
        self._pipeline = pipeline
        start = pipeline.windows.opens
        self._ordinals = {(utc(start(t.window)).encode(), t.index): t.ordinal for t in triggers}
        self._texts = None if windows is None else {utc(start(w)).encode() for w in windows}
        self._without = {utc(start(w)).encode() for w in without}

    def takes(self, key: bytes) -> bool:
        """Whether a record belongs to the requested windows."""
        start = key.split(b"|", 2)[1]
        chosen = self._texts is None or start in self._texts
        return start >= self._least and chosen and start not in self._without

    def ordinal(self, one: Name) -> int:
        """The ordinal of the trigger; larger than all others if it is not in the clock log."""
        return self._ordinals.get((one[0].split(b"|", 2)[1], one[2]), 1 << 62)

    def shard(self, one: Name) -> int:
        """The aggregate shard that publishes a record."""
        rest = one[0].split(b"|", 2)[2]
        if one[1].startswith("hush.manifest"):
            return int(rest.removeprefix(b"manifest:"))
        key = self._pipeline.traits.keys.key(rest.decode())
        return int(route(Keys.of([key]), self._pipeline.cells_partitions)[0])


def name(key: bytes | None, value: bytes | None, codec: ReleaseCodec = JSON) -> Name:
    """Identify a release record in a pipeline's form; it must occur exactly once.

    A foreign record gets a name that is never expected.
    """
    try:
        body = json.loads(codec.to_json(value) or b"{}")
        schema = sys.intern(str(body.get("schema", "")))
        return (key or b"", schema, int(body.get("trigger", 0)))
    except (ValueError, TypeError, AttributeError):
        return (key or b"", "", 0)


def _text(one: Name) -> str:
    return f"{one[0]!r}, trigger {one[2]} ({one[1]})"


def compare_dead_letters(
    topic: str,
    outs: Sequence[Out],
    log: PartitionLog,
    outcome: ReplayOutcome,
    begins: Mapping[tuple[bytes, bytes], int] = MappingProxyType({}),
    sure: Mapping[tuple[bytes, bytes], int] = MappingProxyType({}),
    whose: str = "",
) -> None:
    """Compare a topic of bad, late or far-future records, which may have been trimmed.

    Args:
        topic: name of the topic, for problems.
        log: records of the topic.
        begins: first recomputed offset, by raw topic and partition.
        sure: by raw topic and partition, first offset that no worker read before it knew the
            pipeline. Below it, copies must exist only from the first one found.
        whose: pipeline to compare, where others share the topic; empty: none does.
    """
    # Their timestamp is that of writing, which a replay cannot know.
    mine = (o for o in outs if not whose or pipeline_in(o.headers) == whose)
    made = (of_out(o)._replace(timestamp=-1) for o in mine)
    # Attributes are always read from their beginning.
    expected = Counter(one for one in made if _origin(one)[1] >= begins.get(_origin(one)[0], 0))
    letters = [
        of_raw(0, record)._replace(timestamp=-1)
        for record in log.records
        if marked(record.headers) < 0 and (not whose or pipeline_in(record.headers) == whose)
    ]
    seen = Counter(one for one in letters if _origin(one)[1] >= begins.get(_origin(one)[0], 0))
    reached: dict[Any, int] = defaultdict(int)
    since = dict(sure)
    for record, copies in seen.items():
        source, offset = _origin(record)
        reached[source] = max(reached[source], offset)
        since[source] = min(since.get(source, 0), offset)
        wanted = expected[record]
        outcome.compared += min(copies, wanted)
        if not wanted:
            outcome.found("differing", f"{topic}: a copy of {source}, offset {offset}", copies)
        elif copies > wanted:
            outcome.found("doubled", f"{topic}: {source}, offset {offset}", copies - wanted)
    for record, wanted in (expected - seen).items():
        source, offset = _origin(record)
        if offset < since.get(source, 0):
            continue
        if offset > reached[source] or source not in reached:
            outcome.pending += wanted
        elif log.begin == 0:
            outcome.found("lost", f"{topic}: {source}, offset {offset}", wanted)


def compare_names(
    topic: str, log: PartitionLog, known: Collection[str], outcome: ReplayOutcome
) -> None:
    """Find dead letters in a shared topic that name a pipeline unknown to the ledger.

    No worker wrote them, and the comparison of no pipeline covers them.
    """
    for record in log.records:
        if marked(record.headers) < 0 and (whose := pipeline_in(record.headers)) not in known:
            source, offset = _origin(of_raw(0, record))
            text = f"{topic}: a copy of {source}, offset {offset}, of pipeline {whose!r}"
            outcome.found("differing", text)


def _origin(record: Published) -> tuple[tuple[bytes, bytes], int]:
    """Raw topic, partition and offset of a dead letter's record."""
    headers = dict(record.headers)
    prefix = "__streams.errors."
    source = headers.get(f"{prefix}topic", b""), headers.get(f"{prefix}partition", b"")
    return source, int(headers.get(f"{prefix}offset", b"0"))


def of_out(out: Out) -> Published:
    """A recomputed record as a reader would see it."""
    stamp = -1 if out.timestamp is None else out.timestamp
    return Published(out.partition, out.key, out.value, stamp, tuple(out.headers))


def of_raw(partition: int, record: RawRecord) -> Published:
    """A record as read."""
    return Published(partition, record.key, record.value, record.timestamp, record.headers)
