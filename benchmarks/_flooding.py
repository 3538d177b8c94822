"""Hostile records, which any producer with write access can send."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from _cluster import Local
from confluent_kafka import Producer
from hushstream.agents.stages.ingest.unit_digests import hashed
from hushstream.mechanisms.keys import Keys

MINUTE = 60_000_000  # microseconds
ORIGIN = 17956 * 1440 * MINUTE  # 2019-03-01
PATIENCE = 600.0  # seconds
TOGETHER = 50  # records per computation of partitions


class Sent(NamedTuple):
    """One record of a flood."""

    topic: str
    unit: str
    value: bytes


def sent(unit: str, key: str, at: int, topic: str = "", **more: Any) -> Sent:
    """An event, for the topics of visits and orders in turn unless one is given."""
    topic = topic or ("orders" if unit[-1] in "02468" else "visits")
    named = {"page" if topic == "visits" else "item": key}
    body = {"user": unit, "shop": "s", "colour": "c", "city": "c", "t": at, "spent": 1.0}
    return Sent(topic, unit, json.dumps(body | named | more).encode())


def keys(count: int, at: int) -> Iterator[Sent]:
    """Distinct keys of 906 bytes in scattered order, each from its own unit."""
    for n in range(count):
        scattered = n * 0x9E3779B97F4A7C15 % (1 << 64)
        yield sent(f"k{at % 997}u{n}", f"{scattered:016x}" + "k" * 886, at)


def units(count: int, at: int) -> Iterator[Sent]:
    """Distinct units of 500 bytes."""
    return (sent("u" * 490 + f"{n:010d}", f"p{n % 10}", at) for n in range(count))


def windows(count: int, at: int) -> Iterator[Sent]:
    """Records of successive minutes from ``at`` on, one each, in scattered order."""
    for n in range(count):
        yield sent(f"w{n}", "p1", at + n * 7919 % count * MINUTE, "visits")


def records(count: int, at: int) -> Iterator[Sent]:
    """Records of 1 MB: one large field, many small ones, or not JSON."""
    fields = {f"f{n}": n for n in range(52_000)}
    for n in range(count):
        if n // 2 % 3 == 0:
            yield sent(f"r{n}", "p1", at, note="x" * 980_000)
        elif n // 2 % 3 == 1:
            yield sent(f"r{n}", "p2", at, **fields)
        else:
            yield sent(f"r{n}", "p3", at)._replace(value=b"{" + b"[" * 980_000)


FLOODS: Mapping[str, Callable[[int, int], Iterator[Sent]]] = {
    "keys": keys, "units": units, "windows": windows, "records": records,
}  # fmt: skip
_SHARES = {"windows": 0.3, "records": 0.0008}


def share(name: str, count: int) -> int:
    """Number of records of a flood when the flood of keys has ``count``."""
    return max(int(count * _SHARES.get(name, 1.0)), 6)


def feed(
    run: Local,
    flood: Iterator[Sent],
    partitions: int,
    watch: Callable[[], None] = lambda: None,
    idle: int = 0,
) -> int:
    """Produce the records of a flood, by unit.

    Args:
        run: the deployment.
        flood: the records.
        partitions: number of partitions of each topic.
        watch: called from time to time, also while brokers do not answer.
        idle: number of partitions, at the end, that get nothing.

    Returns:
        Number of records sent.
    """
    producer = run.producer(**{"linger.ms": 20, "queue.buffering.max.kbytes": 65536})
    count = 0
    while some := list(islice(flood, TOGETHER)):
        homes = hashed(Keys.of(one.unit.encode() for one in some), "murmur2") % partitions
        for one, home in zip(some, homes.tolist(), strict=True):
            if home < partitions - idle:
                _produce(producer, one, home, watch)
                count += 1
        watch()
    until = time.monotonic() + PATIENCE
    while producer.flush(0.5):
        watch()
        assert time.monotonic() < until, "the brokers did not take a flood"
    return count


def _produce(producer: Producer, one: Sent, home: int, watch: Callable[[], None]) -> None:
    while True:
        try:
            producer.produce(one.topic, one.value, one.unit, partition=home)
            break
        except BufferError:
            producer.poll(0.05)
            watch()
    producer.poll(0)
