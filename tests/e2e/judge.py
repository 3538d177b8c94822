"""What releases and metrics of a run must be; this shares no code with the product."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from .engine import EngineError

BOOTSTRAP = "localhost:9092"
RAW = "trips"
RELEASES = "hush.zones.releases.v1"
PROMETHEUS = "http://localhost:9090/api/v1/"
SILENCE = 3.0  # seconds without a record after which a topic counts as read

Identity = tuple[bytes, int]  # key of a record (window and group), number of the trigger


class Row(NamedTuple):
    """One record of the release topic."""

    identity: Identity
    value: bytes
    is_row: bool
    scheduled: int = 0  # time of the trigger, ms since 1970


def produce(count: int, tag: str) -> None:
    """Send events with the current time, each from its own trip, to the port in the file."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    now = datetime.now(UTC).isoformat()
    for number in range(count):
        event = {"trip_id": f"{tag}-{number}", "pickup": now, "zone": f"zone {number % 4}"}
        producer.produce(RAW, json.dumps(event))
    if left := producer.flush(60):
        raise EngineError(f"{left} of {count} events did not reach {BOOTSTRAP} within 60 s")


def releases(
    isolation: str = "read_committed", bootstrap: str = BOOTSTRAP, name: str = RELEASES
) -> list[Row]:
    """Return all records of the release topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "e2e", "enable.auto.commit": False,
         "isolation.level": isolation}
    )  # fmt: skip
    try:
        topic = consumer.list_topics(name, timeout=20).topics[name]
        consumer.assign([TopicPartition(name, number, 0) for number in topic.partitions])
        found = []
        last = time.monotonic()
        while time.monotonic() < last + SILENCE:
            message = consumer.poll(0.5)
            if message is None or message.error():
                continue
            last = time.monotonic()
            if message.value() is not None:
                found.append(_row(message))
        return found
    finally:
        consumer.close()


def _row(message: Any) -> Row:
    is_row = any(name == "hush-row" for name, _ in message.headers() or ())
    trigger = json.loads(message.value())["trigger"]
    return Row((message.key(), trigger), message.value(), is_row, message.timestamp()[1])


def second_releases(committed: list[Row], everything: list[Row]) -> list[str]:
    """Rows that were released twice: committed more than once, or written with different bytes.

    >>> one = Row((b"k", 1), b"5", True)
    >>> second_releases([one], [one, one])
    []
    >>> second_releases([one, one], [one, one])
    ["(b'k', 1) is committed 2 times"]
    >>> second_releases([one], [one, one._replace(value=b"6")])
    ["(b'k', 1) was written in 2 texts"]
    """
    times: dict[Identity, int] = defaultdict(int)
    texts: dict[Identity, set[bytes]] = defaultdict(set)
    for row in committed:
        times[row.identity] += 1
    for row in everything:
        texts[row.identity].add(row.value)
    twice = [f"{one} is committed {n} times" for one, n in times.items() if n > 1]
    return twice + [
        f"{one} was written in {len(f)} texts" for one, f in texts.items() if len(f) > 1
    ]


def newest(rows: list[Row]) -> int:
    """The newest released time; numbers of triggers are no order, since each window restarts them.

    >>> newest([Row((b"k", 9), b"", False, 609_000), Row((b"k", 0), b"", False, 610_000)])
    610000
    """
    return max((row.scheduled for row in rows), default=-1)


def texts_of_key(text: str) -> list[str]:
    """Spellings of the key: as in its file, in hexadecimal, in base64.

    >>> texts_of_key("00ff")
    ['00ff', '00FF', 'AP8']
    """
    key = bytes.fromhex(text.strip())
    encoded = base64.b64encode(key).decode().rstrip("=")
    return [key.hex(), key.hex().upper(), encoded]


def ask(path: str, **words: str) -> Any:
    """An answer of Prometheus; None if it gives none.

    Raises:
        EngineError: Prometheus rejects the question.
    """
    url = f"{PROMETHEUS}{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise EngineError(f"{words}: {error.read().decode()}") from None
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def values(query: str) -> list[float]:
    """The current values of a query."""
    found = ask("query", query=query)
    return [float(one["value"][1]) for one in found["result"]] if found else []


def scraped(workers: int) -> bool:
    """Tell whether exactly the pages of so many workers are scraped."""
    return all(values(f'up{{job="{job}"}}') == [1.0] * workers
               for job in ("hush-public", "hush-operator"))  # fmt: skip
