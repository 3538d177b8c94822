"""The last release of a window of quantiles through a real broker: produced, released, read back.

All records go through a deployment's topics and one worker, with one micro-batch per trigger; the
answers are those that any reader sees in the release topic.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _cluster import Local, local
from hushstream.deploy.broker import Broker
from hushstream.mechanisms.workload import Workload
from hushstream.reading.client import read_releases
from rich.progress import Progress

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
PARTITIONS = 2
PATIENCE = 3600.0  # seconds for a worker to release a window

TOML = """
[deployment]
name = "quantiles"
[engine]
units_partitions = 2
cells_partitions = 2
[[input]]
name = "sales"
topic = "sales"
unit = "user"
partitioner = "murmur2"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "prices"
input = "sales"
key = ["product"]
public_keys = {keys}
inputs = {{ value = "price" }}
window = {{ length = "{triggers}h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = {epsilon}, delta = {delta} }}
mechanism = {{ kind = "quantile", low = {low}, high = {high}, at = {at}, budget = {budget}, \
factorization = "{factorization}" }}
"""


def product(key: int) -> str:
    """Name of a key."""
    return f"p{key}"


def columns(table: Any, keys: int, at: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of a table of releases, and the ends of their intervals, in the order of keys.

    Args:
        table: one release, as `hushstream.reading.client.read_releases` gives it.
        keys: number of keys.
        at: the quantiles.

    Returns:
        (keys, quantiles) and (keys, quantiles, 2); NaN if a key has no row.
    """
    place = {product(key): key for key in range(keys)}
    rows = [place[name] for name in table["product"].to_pylist()]
    value, ends = np.full((keys, len(at)), np.nan), np.full((keys, len(at), 2), np.nan)
    for number, q in enumerate(at):
        name = f"p{round(100 * q)}"
        value[rows, number] = table[name].to_numpy()
        ends[rows, number, 0] = table[f"{name}_low"].to_numpy()
        ends[rows, number, 1] = table[f"{name}_high"].to_numpy()
    return value, ends


def last_release(
    work: Workload, at: Sequence[float], triggers: int, **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of the last trigger and their intervals, as in `columns`.

    Args:
        work: records of one window, with a column ``value``.
        at: the quantiles.
        triggers: number of triggers of the window.
        settings: epsilon, delta, low, high, budget and factorization of the pipeline.
    """
    keys = json.dumps([product(key) for key in range(work.keys)])
    toml = TOML.format(keys=keys, triggers=triggers, at=list(at), **settings)
    with (
        tempfile.TemporaryDirectory(prefix="hush-quantiles-") as folder,
        Broker(quiet=True) as broker,
        local(Path(folder), broker.bootstrap, toml, {"sales": PARTITIONS}) as run,
    ):
        run.start("w")
        run.wait_ready(["w"])
        _publish(run, work, triggers)
        run.wait_released(run.wait_triggers(triggers), PATIENCE)
        table = read_releases(broker.bootstrap, "prices", which="final")
    return columns(table, work.keys, at)


def _publish(run: Local, work: Workload, triggers: int) -> None:
    """Produce each micro-batch in its own hour, and request its trigger."""
    values = np.asarray((work.columns or {})["value"])
    producer = run.producer(
        **{"partitioner": "murmur2_random", "linger.ms": 50, "compression.type": "lz4",
           "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    with Progress(transient=True) as progress:
        task = progress.add_task("micro-batches", total=triggers)
        for index, part in enumerate(work.micro_batches(triggers)):
            moment = ORIGIN + index * HOUR + HOUR // 2
            columns = (column[part].tolist() for column in (work.unit, work.key, values))
            for place, (unit, key, value) in enumerate(zip(*columns, strict=True)):
                user = b"u%d" % unit
                body = b'{"user":"%b","product":"p%d","price":%r,"t":%d}'
                producer.produce("sales", body % (user, key, value, moment), key=user)
                if place % 10_000 == 0:
                    producer.poll(0)
            if producer.flush(PATIENCE):
                raise SystemExit("the broker did not take all records")
            run.trigger(ORIGIN + (index + 1) * HOUR)
            run.wait_triggers(index + 1)
            progress.advance(task)
