"""Transactions like a shard's, through a proxy that tears, with a count of what became of each.

    python -m tests.integration.torn_writer [--faults N] [--seed S] [--version V] [--share P]
                                            [--ends KIND] [--stock]

writes until so many requests were torn, and ends with a line of JSON: `Found`. ``--ends`` tears
only the ends of transactions, every second one, in one way; ``--stock`` leaves aiokafka unchanged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokafka.errors import IllegalOperation, KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.kafka import clients
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka

from ..servers.torn import Asked, Choice, Kind, Proxy, Torn, proxied

ROWS = 6  # of a transaction, over two partitions, before its marker
TIMEOUT_MS = 10_000
PLACES = (("rows", 0), ("rows", 1), ("markers", 0))


def tearing(random: Random, share: float, repeats: bool) -> Choice:
    """Choose what to tear.

    Args:
        random: source of all choices.
        share: share of requests that are torn.
        repeats: whether an answered `EndTxn` may arrive once more.
    """

    def choose(asked: Asked) -> Torn | None:
        if not asked.client.startswith("aiokafka"):
            return None
        if random.random() > share * (2 if asked.name == "EndTxn" else 1):
            return None
        kind: Kind = random.choice(("hold", "hold", "lose", "repeat"))
        if kind == "repeat" and asked.name == "EndTxn" and not repeats:
            kind = "hold"
        late = random.random() * 0.05 if random.random() < 0.4 else 0.1 + random.random() * 0.2
        return Torn(kind, late)

    return choose


def ends(random: Random, kind: Kind) -> Choice:
    """Tear every second end of a transaction, so that it may come in the middle of the next one."""
    late = 0.0 if kind == "repeat" else 0.1  # aiokafka asks again after that time

    def choose(asked: Asked) -> Torn | None:
        if asked.name != "EndTxn" or random.random() < 0.5:
            return None
        return Torn(kind, late + random.random() * 0.06)

    return choose


@dataclass
class Found:
    """What became of all transactions.

    Attributes:
        transactions: number of transactions begun.
        committed: number committed, by the producer's account or by the log after the next start.
        lost: transactions that were committed but are not whole in the logs.
        doubled: transactions with more records than were sent.
        half: transactions with only some of their records.
        changed: transactions absent from the log after the next start, but there at the end.
        reopened: number of new producers started.
        torn: number of torn requests, by name and kind.
    """

    transactions: int = 0
    committed: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    half: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    reopened: int = 0
    torn: dict[str, int] = field(default_factory=dict)


class Writer:
    """Writes transactions one after the other, as a shard does.

    Args:
        broker: broker behind the proxy.
        proxy: proxy in front of the broker.
    """

    def __init__(self, broker: Broker, proxy: Proxy) -> None:
        self._direct = Kafka(bootstrap=broker.bootstrap)
        self._kafka = Kafka(bootstrap=proxy.bootstrap)
        self._proxy = proxy
        self._producer: Any = None
        self._outcome: dict[int, bool] = {}
        self._doubtful: int | None = None
        self.found = Found()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("rows", 2), NewTopic("markers", 1)]).values():
            future.result()

    async def run(self, faults: int) -> Found:
        """Write until so many requests were torn and for a moment after that; then count."""
        number = 0
        while self._proxy.count < faults:
            await self._try(number)
            number += 1
        self._proxy.choose = lambda _: None
        await asyncio.sleep(0.5)
        for last in range(number, number + 3):
            await self._try(last)
        await clients.stop_quietly(self._producer)
        await self._count(number + 3)
        return self.found

    async def _try(self, number: int) -> None:
        while self._producer is None:
            await self._open()
        self.found.transactions += 1
        try:
            async with clients.within(TIMEOUT_MS):
                await self._write(str(number).encode())
            self._outcome[number] = True
        except (KafkaError, IllegalOperation, TimeoutError):
            self._doubtful = number
            await clients.stop_quietly(self._producer)
            self._producer = None

    async def _open(self) -> None:
        """Start a producer; then the log shows what became of the previous transaction."""
        self._producer = clients.transactional_producer(self._kafka, "torn", TIMEOUT_MS)
        try:
            await clients.start_producer(self._producer)
        except (KafkaError, TimeoutError):
            await clients.stop_quietly(self._producer)
            self._producer = None
            return
        self.found.reopened += 1
        if self._doubtful is not None:
            self._outcome[self._doubtful] = self._doubtful in await self._read(*PLACES[2])
            self._doubtful = None

    async def _write(self, value: bytes) -> None:
        producer = self._producer
        await producer.begin_transaction()
        sent = []
        for row in range(ROWS):
            sent.append(await producer.send("rows", value, partition=row % 2))
            sent[-1].add_done_callback(_heard)
            await asyncio.sleep(0.005)
        sent.append(await producer.send("markers", value, partition=0))
        await clients.answers(sent)
        await producer.commit_transaction()

    async def _read(self, topic: str, partition: int) -> Counter[int]:
        found: Counter[int] = Counter()
        async for records, _, _ in clients.read_to_end(self._direct, topic, partition):
            found.update(int(record.value) for record in records)
        return found

    async def _count(self, transactions: int) -> None:
        whole, found = Counter({"rows": ROWS, "markers": 1}), self.found
        there: dict[int, Counter[str]] = {n: Counter() for n in range(transactions)}
        for topic, partition in PLACES:
            for number, count in (await self._read(topic, partition)).items():
                there[number][topic] += count
        for number, told in self._outcome.items():
            found.committed += told
            counts = there[number]
            if any(counts[topic] > whole[topic] for topic in whole):
                found.doubled.append(number)
            elif counts and counts != whole:
                found.half.append(number)
            if told and counts != whole:
                found.lost.append(number)
            if not told and counts:
                found.changed.append(number)
        found.torn = dict(self._proxy.torn)


def _heard(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()  # of a record after which another one could not be sent


def written(broker: Broker, proxy: Proxy, faults: int, choose: Choice) -> Found:
    """Write through a proxy until so many requests were torn."""

    async def run() -> Found:
        writer = Writer(broker, proxy)
        proxy.choose = choose
        return await writer.run(faults)

    return asyncio.run(run())


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--ends", choices=("hold", "lose", "repeat"))
    parser.add_argument("--stock", action="store_true")
    args = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    if args.stock:
        clients.send_once = lambda producer: producer
        clients.new_epochs = lambda producer: True
    with proxied(version=args.version) as (broker, proxy):
        random = Random(args.seed)
        choose = tearing(random, args.share, repeats=args.version > 1)
        if args.ends:
            choose = ends(random, args.ends)
        print(json.dumps(vars(written(broker, proxy, args.faults, choose))))


if __name__ == "__main__":
    main()
