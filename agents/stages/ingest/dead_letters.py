"""Bad, late and far-future records, in the same transaction as the step that met them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ....errors import EngineError
from ....formats.events.decode import RawRecord
from ....formats.events.reasons import Bad, Unread
from ...deployment.model import Pipeline
from ..step import Out, Step

ROOM = 900_000  # bytes; a copy larger than this falls back to a hash
Place = tuple[str, int]  # topic, partition


def dead_letters(
    pipeline: Pipeline, place: Place, records: Sequence[RawRecord], bad: Bad, step: Step, key: bytes
) -> None:
    """Send each bad record to the pipeline's dead-letter topic, with KIP-1034 headers.

    Args:
        place: raw topic and partition of the records.
        bad: reason by position in ``records``.
        key: 32 secret bytes of the deployment, for hashes.

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
        pipeline: one with a ``late_topic``.
    """
    for record in records:
        headers = failure_headers(place, record, outcome, pipeline.told)
        step.out.append(copy(pipeline, pipeline.late_topic or "", record, headers, key))


def failure_headers(
    place: Place, record: RawRecord, reason: str, whose: str = ""
) -> tuple[tuple[str, bytes], ...]:
    """Describe a failure in the six headers of KIP-1034 and three of our own.

    Args:
        record: the one that was refused; its offset and time are exact, so its copy belongs inside
            the trust boundary, whatever the payload policy.
        reason: one of a fixed list; never a part of the record.
        whose: name of the pipeline, where several share a topic; empty: it is not told.
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
        record: the one to copy; if it is larger than `ROOM`, its hash stands for it. One that was
            not read has no copy: its headers say where it stands.
        headers: headers of the failure, which follow the record's own.
    """
    policy = pipeline.dlq_payload
    # Some clients read a header's name only up to its first NUL. Every copy is cut there, so that
    # it is the same for all of them.
    kept = tuple((name.partition("\0")[0], value) for name, value in record.headers)
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in kept)
    key, value = record.key, record.value
    if policy == "none" or isinstance(value, Unread):
        key = value = None
        kept = ()
    elif policy == "hash" or size > ROOM:
        key, value, kept = None, digest(record, secret), ()
    # It bears the time of its writing: by that of the record, which a header tells, a broker would
    # delete copies of old records at its next look at the topic.
    return Out(topic, 0, key, value, None, (*kept, *headers))


def digest(record: RawRecord, secret: bytes) -> bytes:
    """Hash key and value of a record under a secret key: ``blake2b:`` and 64 hexadecimal digits.

    Most records can be guessed: a reader of plain hashes could try every likely record. A keyed
    hash shows which records are equal, and nothing else.
    """
    state = hashlib.blake2b(digest_size=32, key=secret)
    for part in (record.key, record.value):
        # Lengths keep the boundary between the two: no other pair gives the same bytes.
        state.update((-1 if part is None else len(part)).to_bytes(8, "big", signed=True))
        state.update(part or b"")
    return f"blake2b:{state.hexdigest()}".encode()
