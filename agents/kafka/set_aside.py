"""Records that pipelines set aside: dead letters and late records, with reasons.

Their topics hold raw data, so what is read here is for operators only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .cluster import Cluster

_PREFIX = "__streams.errors."
_TRIED, _PIPELINE = f"{_PREFIX}tried", f"{_PREFIX}pipeline"
_FIRST = f"{_PREFIX}exception"  # the first header of a failure
Origin = tuple[str, int, int]  # topic, partition and offset of a record
Headers = tuple[tuple[str, bytes | None], ...]


class Letter(NamedTuple):
    """A copy of a record that was set aside."""

    reason: str
    field: str  # field at fault; empty: unknown
    topic: str  # raw topic, followed by partition and offset, of the record itself
    partition: int
    offset: int
    timestamp: int  # time of the record, milliseconds since 1970
    key: bytes | None
    value: bytes | None
    headers: Headers  # headers of the record
    place: int  # offset of the copy
    whose: str = ""  # pipeline that set it aside; empty if each has its own topic

    @property
    def origin(self) -> Origin:
        """Place of the record itself."""
        return self.topic, self.partition, self.offset


def letters(
    cluster: Cluster, topic: str, start: int = 0, newest: int = 0, whose: str = ""
) -> Iterator[Letter]:
    """Read the copies in a topic of records set aside, oldest first.

    Args:
        topic: topic with a single partition, like all of these; it may be missing.
        start: offset of the first copy.
        newest: most offsets before the end to read; 0: all.
        whose: pipeline whose copies are wanted, if several share the topic; empty: only one uses
            it.

    Raises:
        RightError: this user may not read the topic.
        OutageError: the broker is silent.
    """
    if not cluster.partitions(topic, "READ"):
        return
    (begin,), (end,) = cluster.offsets.begins(topic, 1), cluster.offsets.ends(topic, 1)
    first = max(begin, start, end - newest if newest else 0)
    if first >= end:
        return
    for message in cluster.each(topic, 0, first):
        if (found := _letter(message)) is not None and _of(found, whose):
            yield found


def _of(letter: Letter, whose: str) -> bool:
    """Whether a copy is of a pipeline; without sharing, a header may be forged and is ignored."""
    return not whose or letter.whose == whose


def _letter(message: object) -> Letter | None:
    """Read a copy; None: the record is from another program."""
    headers: Headers = tuple(message.headers() or ())  # type: ignore[attr-defined]
    # Ours follow the record's own, among which a producer may have forged some.
    ours = max((n for n, (name, _) in enumerate(headers) if name == _FIRST), default=0)
    told = {
        name.removeprefix(_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers[ours:]
        if name.startswith(_PREFIX)
    }
    try:
        return Letter(
            told["reason"], told.get("path", ""), told["topic"], int(told["partition"]),
            int(told["offset"]), int(told["timestamp"]),
            message.key(), message.value(),  # type: ignore[attr-defined]
            tuple(one for one in headers if not one[0].startswith(_PREFIX)),
            message.offset(),  # type: ignore[attr-defined]
            told.get("pipeline", ""),
        )  # fmt: skip
    except (KeyError, ValueError):
        return None


def mark(position: int) -> list[tuple[str, bytes]]:
    """Make the headers of a mark: every copy before this position was retried.

    A mark lacks the topic header, which every copy has, so no producer can forge a mark.
    """
    return [(f"{_PREFIX}reason", b"tried"), (_TRIED, str(position).encode())]


def marked(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Read the position of a mark; -1: the record is no mark."""
    told = dict(headers)
    return -1 if f"{_PREFIX}topic" in told else int(told.get(_TRIED) or -1)


def tried(cluster: Cluster, topic: str, least: int = 0, whose: str = "") -> tuple[int, set[Origin]]:
    """Find the position up to which copies were retried, and the retried records.

    A record may have two copies, if a later deployment has read it again.

    Args:
        topic, whose: the same as for `letters`.
        least: position that is known from elsewhere.
    """
    position, copies = least, list[tuple[int, Origin]]()  # without values, which may be large
    for message in cluster.each(topic):
        if (found := _letter(message)) is not None:
            if _of(found, whose):
                copies.append((found.place, found.origin))
        else:
            position = max(position, marked(message.headers() or ()))
    return position, {origin for place, origin in copies if place < position}


def pipeline_in(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """Read which pipeline set a record aside, if several share the topic; otherwise empty."""
    return (dict(headers).get(_PIPELINE) or b"").decode(errors="replace")


class Reasons(NamedTuple):
    """Records that were set aside for one reason."""

    reason: str
    field: str
    records: int
    newest: Letter


def reasons(found: Iterable[Letter]) -> list[Reasons]:
    """Count records by reason and field, the most frequent first."""
    told: dict[tuple[str, str], Reasons] = {}
    for one in found:
        place = one.reason, one.field
        before = told[place].records if place in told else 0
        told[place] = Reasons(*place, before + 1, one)
    return sorted(told.values(), key=lambda one: -one.records)
