"""Sends bad, late and far-future records in the transaction of the step that met them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ....errors import EngineError
from ....formats.events.decode import RawRecord
from ....formats.events.reasons import Bad, Unread
from ...deployment.model import Pipeline
from ..step import Out, Step

ROOM = 900_000  # bytes; a copy larger than this falls back to a hash
_HEADER = 10  # most bytes of the two lengths of a header
Place = tuple[str, int]  # topic, partition


def dead_letters(
    pipeline: Pipeline, place: Place, records: Sequence[RawRecord], bad: Bad, step: Step, key: bytes
) -> None:
    """Send each bad record to the pipeline's dead-letter topic, with KIP-1034 headers.

    Args:
        place: raw topic and partition of the records.
        bad: reason by position in ``records``.
        key: 32 secret bytes for hashes, of the deployment.

    Raises:
        EngineError: the input is configured to stop at a bad record.
    """
    if pipeline.fail_on_error:
        reason = next(iter(bad.values()))
        field = f" of {path}" if (path := getattr(reason, "path", "")) else ""
        raise EngineError(
            f"pipeline {pipeline.name!r}: a bad record ({reason}{field}) on {place[0]}-{place[1]}, "
            'and on_error = "fail"; mend the producer, or set on_error = "dlq"'
        )
    for row, reason in sorted(bad.items()):
        step.counts[pipeline.name, f"invalid:{reason}"] += 1
        if pipeline.dlq_topic:
            headers = failure_headers(place, records[row], reason, pipeline.told)
            step.out.append(copy(pipeline, pipeline.dlq_topic, records[row], headers, key))


def late_records(
    pipeline: Pipeline,
    place: Place,
    records: Iterable[RawRecord],
    outcome: str,
    step: Step,
    key: bytes,
) -> None:
    """Send late and far-future records to a topic of their own.

    Args:
        pipeline: pipeline with a ``late_topic``.
    """
    for record in records:
        headers = failure_headers(place, record, outcome, pipeline.told)
        step.out.append(copy(pipeline, pipeline.late_topic or "", record, headers, key))


def failure_headers(
    place: Place, record: RawRecord, reason: str, whose: str = ""
) -> tuple[tuple[str, bytes], ...]:
    """Describe a failure in the six headers of KIP-1034 and three of our own.

    Args:
        record: refused record; its offset and time are exact, so its copy belongs inside the trust
            boundary, whatever the payload policy.
        reason: text from a fixed list, never a part of the record.
        whose: name of the pipeline if several share a topic; empty: left out.
    """
    topic, partition = place
    prefix = "__streams.errors."
    fields = {
        "exception": "hushstream.RecordError",
        "stacktrace": "",
        "message": reason,
        "topic": topic,
        "partition": str(partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "stage": "decode",
        "reason": reason,
    }
    if path := getattr(reason, "path", ""):
        fields["path"] = path
    if whose:
        fields["pipeline"] = whose
    if isinstance(record.value, Unread):
        fields["first_offset"] = str(record.value.first)
    return tuple((prefix + name, value.encode()) for name, value in fields.items())


def copy(
    pipeline: Pipeline,
    topic: str,
    record: RawRecord,
    headers: tuple[tuple[str, bytes], ...],
    secret: bytes,
) -> Out:
    """Copy a record as the pipeline's payload policy allows.

    Args:
        record: record to copy; if it is larger than `ROOM`, the copy has its hash instead. A record
            that was not read has no copy; its headers give its place.
        headers: headers of the failure, which follow the record's own.
    """
    policy = pipeline.dlq_payload
    # Some clients read a header's name only up to its first NUL, so every copy is cut there to be
    # the same for all clients.
    kept = tuple((name.partition("\0")[0], value) for name, value in record.headers)
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(_HEADER + len(name.encode()) + len(value or b"") for name, value in kept)
    key, value = record.key, record.value
    if policy == "none" or isinstance(value, Unread):
        key = value = None
        kept = ()
    elif policy == "hash" or size > ROOM:
        key, value, kept = None, digest(record, secret), ()
    # The timestamp is the time of writing. With the record's own time, which a header has, a broker
    # would soon delete copies of old records.
    return Out(topic, 0, key, value, None, (*kept, *headers))


def digest(record: RawRecord, secret: bytes) -> bytes:
    """Hash key and value of a record under a secret key: ``blake2b:`` and 64 hexadecimal digits.

    Records are guessable: with plain hashes, a reader could try every likely record. A keyed hash
    shows only which records are equal.
    """
    state = hashlib.blake2b(digest_size=32, key=secret)
    for part in (record.key, record.value):
        # Lengths mark the boundary, so that no other pair gives the same bytes.
        state.update((-1 if part is None else len(part)).to_bytes(8, "big", signed=True))
        state.update(part or b"")
    return f"blake2b:{state.hexdigest()}".encode()
