"""Speed of restoring a shard's table from its changelog when its folder is gone.

    python benchmarks/restore.py [--rows N] [--rounds N] [--quick] [--json]

A changelog on a real broker holds rows of privacy units as a shard writes them, in transactions of
`STEP` rows, each with its marker: 44 bytes of key and value per row, random keys. The table is then
restored from nothing, as by a worker when its shard opens.

- ``rows_per_s``: by wall clock, including the broker and other work on the machine.
- ``cpu``: microseconds of CPU of this process per row, including RocksDB's threads.
- ``rows_per_core``: rows per second of that CPU.
- ``said``: lines of progress in the log.
- ``exact``: whether sampled rows equal those written, and the marker is the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import NewTopic
from hushstream.agents.kafka.batches import tolerant
from hushstream.agents.kafka.batches.record_columns import RecordColumns
from hushstream.agents.kafka.clients import transactional_producer
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.state.folders import discard
from hushstream.agents.state.layout import MARKER, sortable, units_of
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shards.transaction import send
from hushstream.agents.worker.shared import Shared
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.deploy.broker import Broker
from hushstream.mechanisms.keys import Keys
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker, encode
from rich.console import Console
from rocksdict import Cache

ROWS, STEP, WIDTH = 10_000_000, 40_000, 17
TOPIC = "restore-changelog"
HELD = 60_000


def rows_of(begun: int, number: int) -> tuple[Keys, Keys]:
    """Keys and values of some units' rows."""
    random = np.random.default_rng(begun)
    head = np.frombuffer(units_of(0) + sortable(0), np.uint8)
    keys = np.empty((number, len(head) + 16), np.uint8)
    keys[:, : len(head)] = head
    keys[:, len(head) :] = random.integers(0, 256, (number, 16), np.uint8)
    return Keys.fixed(keys), Keys.fixed(random.integers(0, 256, (number, WIDTH), np.uint8))


async def produce(kafka: Kafka, rows: int) -> None:
    """Write a changelog in transactions."""
    producer = transactional_producer(kafka, "restore", 60_000)
    await producer.start()
    try:
        for begun in range(0, rows, STEP):
            keys, values = rows_of(begun, min(STEP, rows - begun))
            marker = {MARKER: encode(Marker("g", begun + len(keys)))}
            columns = RecordColumns(keys, values, np.zeros(len(keys), np.bool_))
            await producer.begin_transaction()
            sent = await send(producer, TOPIC, 0, columns.then(RecordColumns.of(dict(marker))))
            await asyncio.gather(*sent)
            await producer.commit_transaction()
    finally:
        await producer.stop()


async def restored(kafka: Kafka, folder: Path, rows: int) -> tuple[float, float, bool]:
    """Seconds, and seconds of CPU, of a restore; and whether the table is right."""
    shared = Shared(
        kafka, "g", folder, Cache(64 << 20), 16 << 20, ThreadPoolExecutor(2), OperatorMetrics(),
        60_000,
    )  # fmt: skip
    state = LocalState(shared, TOPIC, 0, HELD, lambda: None)
    begun, spent = time.monotonic(), time.process_time()
    marker = await state.open()
    seconds, spent = time.monotonic() - begun, time.process_time() - spent
    exact = marker is not None and marker.applied == rows
    for first in (0, (rows - 1) // STEP * STEP):
        keys, values = rows_of(first, min(STEP, rows - first))
        exact = exact and state.table.get_many(keys.tolist()[:500]) == values.tolist()[:500]
    state.close()
    discard(folder)
    return seconds, spent, exact


def measure(rows: int, rounds: int, report: Any) -> dict[str, Any]:
    """All figures, medians of the rounds."""
    tolerant.install()
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    state_log = logging.getLogger("hushstream.state")
    state_log.setLevel(logging.INFO)
    state_log.addHandler(Heard())
    found = []
    with tempfile.TemporaryDirectory(prefix="hush-restore-") as name, Broker(quiet=True) as broker:
        kafka = Kafka(bootstrap=broker.bootstrap)
        cluster = Cluster(kafka)
        cluster.wait()
        cluster._admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        report(f"{rows} rows are written")
        asyncio.run(produce(kafka, rows))
        for number in range(rounds):
            report(f"round {number + 1} of {rounds}")
            found.append(asyncio.run(restored(kafka, Path(name) / "state", rows)))
    seconds, spent = (statistics.median(one[place] for one in found) for place in (0, 1))
    return {
        "rows": rows,
        "rows_per_s": round(rows / seconds),
        "cpu": round(1e6 * spent / rows, 2),
        "rows_per_core": round(rows / spent),
        "said": said[:3],
        "exact": all(one[2] for one in found),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help=f"default {ROWS:,}")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--quick", action="store_true", help="200,000 rows, one round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = options.rows or (200_000 if options.quick else ROWS)
    rounds = options.rounds or (1 if options.quick else 3)
    console = Console(stderr=True)
    found = measure(rows, rounds, console.print)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        Console().print(f"{name}: {value}", markup=False)


if __name__ == "__main__":
    main()
