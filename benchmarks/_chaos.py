"""Faults at random points of a running deployment, and the load that runs meanwhile."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _cluster import Local
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from hushstream.agents.stages.ingest.unit_digests import murmur2
from hushstream.agents.state.rocks import discard
from hushstream.deploy.broker import Broker
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import TriggerRequest, encode

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
SESSION = 3.0
BROKER = {"group.min.session.timeout.ms": "1000"}
PARTITIONS = 3  # the last one of each topic stays idle

# Dealt like cards, so that each kind comes as often as this in so many points.
KINDS = {"kill": 3, "wipe": 3, "pause": 3, "clock": 3, "add": 1, "remove": 1, "broker": 1}
DECK = sum(KINDS.values())

TOML = """
[deployment]
name = "chaos"
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"

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
budget = { epsilon = 8.0, delta = 1e-4, limit_epsilon = LIMIT }
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
"""


def toml(seconds: float) -> str:
    """The configuration; one pipeline runs out of budget halfway, or after a minute at the least.

    Args:
        seconds: for how long the deployment is going to run, about.
    """
    windows = max(3, int(seconds / 20 / 2))
    return TOML.replace("LIMIT", str(8.0 * windows))


class Load(threading.Thread):
    """Events, bad records, aborted transactions and trigger requests until it is ended."""

    def __init__(self, local: Local, seed: int, rate: int, hours_per_second: float) -> None:
        super().__init__(name="load", daemon=True)
        self._local = local
        self._random = random.Random(seed)
        self._rate = rate
        self._speed = hours_per_second * HOUR
        self._requests = local.names.requests
        self._users = [u for u in (f"u{i}" for i in range(3000)) if home(u) < PARTITIONS - 1]
        self._ended = threading.Event()
        self._began = time.monotonic()
        self.sent = 0

    @property
    def now(self) -> int:
        """Event time of the visits."""
        return ORIGIN + int((time.monotonic() - self._began) * self._speed)

    def run(self) -> None:
        """Go on through every outage; what a failure loses was never in the log."""
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
            transactional.flush(5)  # an abort would drop what has not been sent
            if self._random.random() < 0.3:
                transactional.abort_transaction(10)
            else:
                transactional.commit_transaction(10)
            if time.monotonic() - asked > 1:
                asked = time.monotonic()
                at = self.now - HOUR  # some records are late
                plain.produce(self._requests, encode(TriggerRequest(str(at), at)), partition=0)
                plain.flush(5)

    def _some(self, producer: Producer, number: int) -> None:
        choose = self._random
        for _ in range(number):
            user = choose.choice(self._users)
            page = f"p{min(int(choose.paretovariate(0.8)), 60)}"
            at = self.now - int(choose.expovariate(1) * HOUR / 2)
            body: Any = {"user": user, "page": page, "t": at, "spent": choose.uniform(-5, 60)}
            value = json.dumps(body).encode() if choose.random() > 0.003 else b"{bad"
            producer.produce("visits", value, user, partition=home(user))
            order = {"user": choose.randrange(2000), "shop": "s", "item": page, "colour": user[-1]}
            producer.produce(
                "orders", json.dumps(order).encode(), partition=choose.randrange(PARTITIONS - 1)
            )
            producer.poll(0)
            self.sent += 2

    def end(self) -> None:
        """Stop, and leave no transaction open."""
        self._ended.set()
        self.join(30)


def home(user: str) -> int:
    """Where the producer's partitioner puts a user."""
    return int(murmur2(Keys.of([user.encode()]))[0]) % PARTITIONS


@dataclass
class Monkey:
    """Injects faults; whatever it takes down comes back a little later.

    Attributes:
        counts: faults so far, by kind.
        died: workers that ended without being asked to, with the end of their log.
        gap: seconds between two faults, on average.
    """

    local: Local
    broker: Broker
    random: random.Random
    counts: dict[str, int] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)
    gap: float = 1.9
    _later: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)
    _deck: list[str] = field(default_factory=list)
    _stopped: set[str] = field(default_factory=set)
    _names: int = 0

    def begin(self, workers: int) -> None:
        """Start the first workers and wait until they serve."""
        names = [self._fresh() for _ in range(workers)]
        self.local.wait_ready(names)

    def point(self) -> str:
        """One fault at a random moment."""
        self._pass(self.gap * self.random.uniform(0.15, 1.85))
        if not self._deck:
            self._deck = self.random.sample(list(KINDS), counts=list(KINDS.values()), k=DECK)
        kind = self._deck.pop()
        getattr(self, f"_{kind}")()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return kind

    def settle(self) -> None:
        """Let everything come back."""
        while self._later:
            self._pass(0.2)
        while len(self.local.workers) < 2:
            self._fresh()

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            due = [action for at, action in self._later if at <= now]
            self._later = [(at, action) for at, action in self._later if at > now]
            for action in due:
                action()
            self._watch()
            if now >= until:
                return
            time.sleep(0.05)

    def _watch(self) -> None:
        for name, child in list(self.local.workers.items()):
            if child.returncode is not None:
                said = self.local.errors(name)
                self.died.append(f"worker {name} ended with {child.returncode}:\n{said}")
                del self.local.workers[name]
                self._start(name)

    def _fresh(self) -> str:
        self._names += 1
        name = f"w{self._names}"
        self._start(name)
        return name

    def _start(self, name: str) -> None:
        if name not in self.local.workers:
            self.local.start(name)

    def _soon(self, least: float, most: float, action: Callable[[], Any]) -> None:
        self._later.append((time.monotonic() + self.random.uniform(least, most), action))

    def _victim(self) -> str:
        running = sorted(set(self.local.workers) - self._stopped)
        return self.random.choice(running) if running else self._fresh()

    def _kill(self) -> None:
        name = self._victim()
        self.local.kill(name)
        self._soon(0, 4, lambda: self._start(name))

    def _wipe(self) -> None:
        name = self._victim()
        self.local.kill(name)
        discard(self.local.data(name))
        self._soon(0, 4, lambda: self._start(name))

    def _pause(self, name: str | None = None) -> None:
        name = name or self._victim()
        self.local.workers[name].send(signal.SIGSTOP)
        self._stopped.add(name)
        self._soon(SESSION + 0.5, SESSION + 4, lambda: self._resume(name))

    def _resume(self, name: str) -> None:
        self._stopped.discard(name)
        if name in self.local.workers:
            self.local.workers[name].send(signal.SIGCONT)

    def _clock(self) -> None:
        """Take the clock from its owner, who dies or sleeps."""
        owner = self._owner()
        if owner is None or owner in self._stopped:
            self._kill()
        elif self.random.random() < 0.5:
            self._pause(owner)
        else:
            self.local.kill(owner)
            self._soon(0, 4, lambda: self._start(owner))

    def _owner(self) -> str | None:
        client = AdminClient({"bootstrap.servers": self.local.bootstrap, "log_level": 0})
        names = self.local.names
        with contextlib.suppress(KafkaException):
            group = client.describe_consumer_groups([names.group])[names.group].result(10)
            for member in group.members:
                assigned = member.assignment.topic_partitions if member.assignment else []
                if any(tp.topic == names.clock for tp in assigned):
                    owner = member.group_instance_id
                    return owner if owner in self.local.workers else None
        return None

    def _add(self) -> None:
        self._fresh() if len(self.local.workers) < 4 else self._kill()

    def _remove(self) -> None:
        running = sorted(set(self.local.workers) - self._stopped)
        if len(running) < 2:
            self._fresh()
            return
        self.local.stop(self.random.choice(running))

    def _broker(self) -> None:
        self.broker.kill()
        self._pass(self.random.uniform(0, 3))
        self.broker.start()
