"""The one transaction of a step: its records, its changed rows, and last the marker."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from aiokafka.errors import NotLeaderForPartitionError

from ....errors import EngineError
from ....topics.records import encode
from ...kafka.batches.record_columns import Content, RecordColumns
from ...kafka.clients import BATCH_BYTES, answers, heard
from ...kafka.private.of_aiokafka import fill, fill_columns
from ...stages.step import Out, Step
from ...state.layout import MARKER

Find = Callable[[str, int], tuple[str, int]]
"""Maps a partition of a pipeline's topic to its place on the cluster: see `Names.place`."""


def here(topic: str, partition: int) -> tuple[str, int]:
    """Return the place unchanged, for topics that are not shared."""
    return topic, partition


async def transact(
    producer: Any,
    step: Step,
    changelog: str,
    partition: int,
    place: Find = here,
    end: int | None = None,
) -> int:
    """Commit a step; return the offset of the first record of the changelog's last batch.

    A leader that is cut off from the other brokers may not know that it was replaced, and report an
    old end to readers. Writes go to the current leader. Only this shard writes the changelog, so
    its first record must lie where reading ended. Until that is confirmed, nothing else is sent:
    even an uncommitted step would be a second content.

    Args:
        end: end of the changelog as read; None: this producer has written since.

    Raises:
        EngineError: a record does not fit into a batch.
        NotLeaderForPartitionError: the changelog was not read to its end; nothing is committed.
        KafkaError: the transaction was committed or not; which is unknown.
    """
    await producer.begin_transaction()
    # Last, so that a changelog that ends with a marker holds every row before it.
    rows = _unit_records(step).then(RecordColumns.of({**step.rows, MARKER: encode(step.marker)}))
    kept: list[Any] = []
    if end is not None:
        kept = await send(producer, changelog, partition, rows)
        if (await answers(kept))[0].offset != end:
            raise NotLeaderForPartitionError(f"{changelog}-{partition} was not read to its end")
    sent: list[Any] = []
    for (topic, number), outs in _grouped(step.out).items():
        sent += await send(producer, *place(topic, number), [out[2:] for out in outs])
    kept = kept or await send(producer, changelog, partition, rows)
    last = (await answers([*sent, *kept]))[-1]  # or a commit would leave refused batches out
    await producer.commit_transaction()
    return int(last.offset)  # reading the rows of a batch again is harmless


def names() -> Callable[[], str]:
    """Make names for the transactions of one opening of a shard: a random part and a count.

    A log that was rewound and has grown again has transactions of other openings. So a name
    identifies the history of a marker: see `evidence.check_same`.
    """
    opening, numbers = secrets.token_hex(8), count(1)
    return lambda: f"{opening}-{next(numbers)}"


def _unit_records(step: Step) -> RecordColumns:
    keys, values = step.units.columns()
    return RecordColumns(keys, values, np.diff(values.offsets) == 0)


async def send(
    producer: Any, topic: str, partition: int, records: RecordColumns | Sequence[Content]
) -> list[Any]:
    """Send records in batches; return their futures.

    Raises:
        EngineError: a record does not fit into a batch.
    """
    number = len(records.gone) if isinstance(records, RecordColumns) else len(records)
    futures, sent = [], 0
    while sent < number:
        batch, begun = producer.create_batch(), sent
        if isinstance(records, RecordColumns):
            sent = fill_columns(batch, records, begun, BATCH_BYTES)
        else:
            sent = fill(batch, records, begun)
        if sent == begun:
            raise EngineError(f"a record for {topic} is too large for one batch")
        answer = await producer.send_batch(batch, topic, partition=partition)
        answer.add_done_callback(heard)  # a later batch may fail first
        futures.append(answer)
    return futures


def _grouped(outs: Sequence[Out]) -> dict[tuple[str, int], list[Out]]:
    # One batch per partition: a request per record would take most of a step's time.
    groups: dict[tuple[str, int], list[Out]] = {}
    for out in outs:
        groups.setdefault((out.topic, out.partition), []).append(out)
    return groups
