"""The one transaction of a step: its records, its changed rows, and last the marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import EngineError
from ...topics.records import encode
from ..kafka.private import Content, fill
from ..stages.step import Out, Step
from ..state.layout import MARKER


async def transact(producer: Any, step: Step, changelog: str, partition: int) -> int:
    """Commit a step.

    Args:
        producer: the shard's transactional one, started.
        step: to commit.
        changelog: topic of the shard's state.
        partition: of that topic.

    Returns:
        Offset of the first record of the changelog's last batch.

    Raises:
        EngineError: a record does not fit into a batch.
        KafkaError: all of it happened or nothing did, and which of the two is unknown.
    """
    await producer.begin_transaction()
    for (topic, number), outs in _grouped(step.out).items():
        await _send(producer, topic, number, [out[2:] for out in outs])
    rows: list[Content] = [(key, value, None, ()) for key, value in step.rows.items()]
    # Last, so that a changelog that ends with a marker holds every row before it.
    rows.append((MARKER, encode(step.marker), None, ()))
    last = await _send(producer, changelog, partition, rows)
    await producer.commit_transaction()
    return int((await last).offset)  # reading the rows of a batch again is harmless


async def _send(producer: Any, topic: str, partition: int, records: Sequence[Content]) -> Any:
    """Send records in batches; returns the future of the last one."""
    future, sent = None, 0
    while sent < len(records):
        batch = producer.create_batch()
        begun, sent = sent, fill(batch, records, sent)
        if sent == begun:
            raise EngineError(f"a record for {topic} is too large for one batch")
        future = await producer.send_batch(batch, topic, partition=partition)
    return future


def _grouped(outs: Sequence[Out]) -> dict[tuple[str, int], list[Out]]:
    # A batch for each partition: a request for each record would be most of a step's time.
    groups: dict[tuple[str, int], list[Out]] = {}
    for out in outs:
        groups.setdefault((out.topic, out.partition), []).append(out)
    return groups
