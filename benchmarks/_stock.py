"""Stock Faust counting events per key in its RocksDB table, as its documentation shows it.

    python benchmarks/_stock.py BOOTSTRAP TOPIC EVENTS FOLDER

Prints one line: events per second, from the first event to the last one counted.
"""

from __future__ import annotations

import os
import sys
import time

import faust

bootstrap, name, wanted, folder = sys.argv[1:5]
app = faust.App(
    f"stock-{name}-{os.getpid()}",
    broker=f"kafka://{bootstrap}",
    store="rocksdb://",
    datadir=folder,
    web_enabled=False,
    topic_partitions=4,
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
)


class Event(faust.Record, serializer="json"):
    """An event as the producer wrote it."""

    user: str
    page: str
    t: int
    price: float


topic = app.topic(name, value_type=Event, key_type=bytes)
counts = app.Table("counts", default=int, partitions=4)
state = {"n": 0, "begin": 0.0}


@app.agent(topic)
async def count(stream: faust.Stream) -> None:
    async for event in stream:
        if state["n"] == 0:
            state["begin"] = time.monotonic()
        counts[event.page] += 1
        state["n"] += 1
        if state["n"] >= int(wanted):
            # Faust redirects print to its log; this is the real stdout.
            rate = state["n"] / (time.monotonic() - state["begin"])
            print(rate, file=sys.__stdout__, flush=True)
            os._exit(0)


if __name__ == "__main__":
    app.finalize()
    sys.argv = [sys.argv[0], "worker", "-l", "error", "--without-web"]
    app.main()
