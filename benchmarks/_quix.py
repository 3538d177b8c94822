"""Quix Streams counting events per page in its RocksDB state, as its documentation shows it.

    python benchmarks/_quix.py BOOTSTRAP TOPIC EVENTS FOLDER

Prints one line: seconds from the first event read to the last one counted.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from quixstreams import Application, State

bootstrap, name, wanted, folder = sys.argv[1:5]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"quix-{os.getpid()}",
    auto_offset_reset="earliest",
    state_dir=folder,
    processing_guarantee="exactly-once",
    loglevel="ERROR",
)
begun, counted = 0.0, 0


def count(event: Any, state: State) -> int:
    """Count an event under its key; the last event ends the program."""
    global counted
    total = int(state.get("total", 0)) + 1
    state.set("total", total)
    counted += 1
    if counted == int(wanted):
        print(time.perf_counter() - begun, flush=True)
        app.stop()
    return total


def first(event: Any) -> Any:
    """Note the time of the first event."""
    global begun
    begun = begun or time.perf_counter()
    return event


events = app.dataframe(app.topic(name, value_deserializer="json")).apply(first)
events = events.group_by("page").apply(count, stateful=True)
app.run()
