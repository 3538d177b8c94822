"""A deployment of histograms, and the load for any deployment under faults."""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from _cluster import Local
from confluent_kafka import KafkaException, Producer
from hushstream.agents.stages.ingest.unit_digests import hashed
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import TriggerRequest, encode

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
PARTITIONS = 3  # the last one of each topic stays idle
BAD = b"{bad"

TOML = """
[deployment]
name = "chaos"
[secret]
signing_key_file = "hush-signing.key"
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
standbys = 1

[[input]]
name = "visits"
topic = "visits"
unit = "user"
partitioner = "murmur2"
late = "topic"
time = { field = "t", format = "epoch_us" }

[[input]]
name = "orders"
topic = "orders"
unit = ["shop", "user"]
time = { format = "record" }

[[pipeline]]
name = "direct-adaptive"
input = "visits"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 12, adaptive_weight = 0.3 }

[[pipeline]]
name = "direct-public"
input = "visits"
key = ["page"]
public_keys = ["p1", "p2", "p3", "nobody"]
window = { length = "12h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
epoch = "1d"
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
aggregate = [{ kind = "count" }, { kind = "mean", field = "spent", low = 0, high = 50 }]

[[pipeline]]
name = "routed-adaptive"
input = "orders"
key = ["item", "colour"]
window = { length = "20s" }
triggers = { every = "2s" }
budget = { epsilon = 8.0, delta = 1e-4, limit_delta = LIMIT }
feedback_delay = 0
mechanism = { kind = "histogram", budget = 12, adaptive_weight = 0.3 }

[[pipeline]]
name = "routed-plain"
input = "orders"
key = ["item"]
window = { length = "10s" }
triggers = { every = "5s" }
epoch = "30s"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", adaptive_weight = 0 }

[[pipeline]]
name = "direct-hops"
input = "visits"
key = ["page"]
window = { length = "8h", hop = "2h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "2h" }
epoch = "6h"
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
aggregate = [{ kind = "count" }, { kind = "mean", field = "spent", low = 0, high = 50 }]

[[pipeline]]
name = "routed-hops"
input = "orders"
key = ["item"]
window = { length = "10s", hop = "2s" }
triggers = { every = "2s" }
budget = { epsilon = 8.0, delta = 1e-4 }

[[view]]
name = "items"
source = "routed-adaptive"
key = ["item"]
values = [{ of = "count" }, { kind = "change", of = "count" }, { kind = "running", of = "count" }]

[[view]]
name = "top-pages"
source = "direct-adaptive"
order = [{ by = "count", descending = true }]
limit = 2
"""


def toml(seconds: float) -> str:
    """The configuration; one pipeline runs out of budget halfway, but after at least a minute.

    Args:
        seconds: approximate length of the run.
    """
    windows = max(3, int(seconds / 20 / 2))
    return TOML.replace("LIMIT", f"{windows}e-4")


class Load(threading.Thread, ABC):
    """Events, bad records, aborted transactions and trigger requests until `end`.

    Args:
        local: the deployment.
        seed: of the random choices; each piece of a run needs another.
        rate: records per second over all topics.
        hours_per_second: speed of event time.
        now: event time at the beginning, microseconds.
        sent: records sent by earlier pieces.
    """

    TOPICS: ClassVar[dict[str, int]]

    def __init__(
        self,
        local: Local,
        seed: int,
        rate: int,
        hours_per_second: float,
        now: int = ORIGIN,
        sent: int = 0,
    ) -> None:
        super().__init__(name="load", daemon=True)
        self._local = local
        self._random = random.Random(seed)
        self._seed = seed
        self._rate = rate
        self._speed = hours_per_second * HOUR
        self._requests = local.names.requests
        self._users = [u for u in (f"u{i}" for i in range(3000)) if home(u) < PARTITIONS - 1]
        self._ended = threading.Event()
        self._began, self._first = time.monotonic(), now
        self.sent = sent

    @property
    def now(self) -> int:
        """Event time of the visits."""
        return self._first + int((time.monotonic() - self._began) * self._speed)

    def run(self) -> None:
        """Continue through every outage; records lost by a failure were never in the log."""
        while not self._ended.is_set():
            try:
                self._serve()
            except (KafkaException, BufferError):
                time.sleep(0.2)

    def _serve(self) -> None:
        plain = self._local.producer(**{"message.timeout.ms": 5000})
        transactional = self._local.producer(
            **{"transactional.id": "chaos-load", "transaction.timeout.ms": 10_000}
        )
        transactional.init_transactions(10)
        asked = 0.0
        while not self._ended.wait(0.1):
            self._some(plain, self._rate // 20)
            plain.flush(5)
            transactional.begin_transaction()
            self._some(transactional, self._rate // 20)
            transactional.flush(5)  # an abort would drop unsent records
            if self._random.random() < 0.3:
                transactional.abort_transaction(10)
            else:
                transactional.commit_transaction(10)
            if time.monotonic() - asked > 1:
                asked = time.monotonic()
                at = self.now - HOUR  # some records are late
                plain.produce(self._requests, encode(TriggerRequest(str(at), at)), partition=0)
                plain.flush(5)

    @abstractmethod
    def _some(self, producer: Producer, number: int) -> None:
        """Send about ``number`` records."""

    def end(self) -> None:
        """Stop, and leave no transaction open."""
        self._ended.set()
        self.join(30)


class Visits(Load):
    """Visits of pages, partitioned by user, and orders, which are not."""

    TOPICS: ClassVar = {"visits": PARTITIONS, "orders": PARTITIONS}

    def _some(self, producer: Producer, number: int) -> None:
        choose = self._random
        for _ in range(number):
            user = choose.choice(self._users)
            page = f"p{min(int(choose.paretovariate(0.8)), 60)}"
            at = self.now - int(choose.expovariate(1) * HOUR / 2)
            body: Any = {"user": user, "page": page, "t": at, "spent": choose.uniform(-5, 60)}
            value = json.dumps(body).encode() if choose.random() > 0.003 else BAD
            producer.produce("visits", value, user, partition=home(user))
            order = {"user": choose.randrange(2000), "shop": "s", "item": page, "colour": user[-1]}
            producer.produce(
                "orders", json.dumps(order).encode(), partition=choose.randrange(PARTITIONS - 1)
            )
            producer.poll(0)
            self.sent += 2


def home(user: str) -> int:
    """The partition to which the producer's partitioner sends a user."""
    return int(hashed(Keys.of([user.encode()]), "murmur2")[0]) % PARTITIONS
