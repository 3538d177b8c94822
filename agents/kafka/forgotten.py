"""Transactions that a broker has forgotten to end, found before their producer writes again.

`InitProducerId` answers once what was open has ended and all partitions have their markers. A
broker that was killed may break that: while it starts, its coordinator (seen in Kafka 4.3.1) can
take a transaction that was about to end for complete without a marker in any partition. Its records
stay behind the last stable offset, so the state that is read next lacks them. **The next commit of
the same producer then commits them too**, and what was done twice would count twice.

So before a producer writes, all partitions that it writes and reads are asked for traces of it:

- none has anything open: the usual case;
- all that know the newest epoch have it open: no record of that transaction was ever visible. The
  next transaction's markers end it, so one without records is begun for that. It is committed if
  the producer's owner knows that the commit was answered: a table that follows committed steps has
  it then. Else it is aborted, and the step is computed anew, to the same bytes;
- some have it open and others have its marker: whether it was committed or aborted cannot be told
  by the producer, so it fails closed, with what an operator does.

Brokers before Kafka 2.8 cannot be asked, and are not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping

import aiokafka
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, for_code
from aiokafka.structs import TopicPartition

from ...errors import EngineError
from .private.of_aiokafka_describe import Traces, describe
from .private.of_aiokafka_producer import end_in, new_epochs, producer_id

MARKER_SECONDS = 10.0

log = logging.getLogger("hushstream.kafka")


async def never_answered() -> bool:
    """The answer of owners that keep nothing of what was committed."""
    return False


async def end_forgotten(
    producer: aiokafka.AIOKafkaProducer,
    asked: Collection[TopicPartition],
    unread: Collection[TopicPartition] = (),
    answered: Callable[[], Awaitable[bool]] = never_answered,
) -> None:
    """End what a broker has forgotten to end of a producer that has just started.

    Args:
        producer: transactional and started, without a transaction.
        asked: partitions that it writes and that this user may read.
        unread: others that it writes.
        answered: tells, where something hangs, whether its commit was answered.

    Raises:
        EngineError: part of the transaction has ended and part of it has not.
        KafkaError: a broker refuses, or does not answer.
    """
    if not asked:
        return
    traces = await _traces(producer, asked)
    newest = max((one.epoch for one in traces.values() if one.open), default=None)
    if newest is None:
        return
    hanging = [place for place, one in traces.items() if one.open]
    # A marker bears the next epoch; that of brokers that keep the epoch may be of this transaction.
    end = newest + new_epochs(producer)
    if ended := [place for place, one in traces.items() if not one.open and one.epoch >= end]:
        raise EngineError(
            f"a transaction has ended in {_named(ended)} and hangs in {_named(hanging)}: brokers "
            'have lost its end there. Nothing is written over it: see "A transaction hangs" in '
            "docs/operations.md"
        )
    commit = await answered()
    log.warning(
        "the brokers never ended a transaction in %s: it is now %s",
        _named(hanging),
        "committed, as they had confirmed" if commit else "aborted, and repeated",
    )
    await end_in(producer, [*hanging, *unread], commit)  # returns before the markers are there
    until = time.monotonic() + MARKER_SECONDS
    while left := [at for at, one in (await _traces(producer, hanging)).items() if one.open]:
        if time.monotonic() > until:
            raise KafkaConnectionError(f"a transaction still hangs in {_named(left)}")
        await asyncio.sleep(0.05)


def _named(places: Collection[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in sorted(places))


async def _traces(
    producer: aiokafka.AIOKafkaProducer, places: Collection[TopicPartition]
) -> dict[TopicPartition, Traces]:
    leaders: dict[int, list[TopicPartition]] = defaultdict(list)
    for place in places:
        await producer.partitions_for(place.topic)  # so that leaders are known
        leader = producer.client.cluster.leader_for_partition(place)
        if leader in (None, -1):
            raise KafkaConnectionError(f"{place.topic}-{place.partition} has no leader")
        leaders[leader].append(place)
    number, found = producer_id(producer), dict[TopicPartition, Traces]()
    for leader, ones in leaders.items():
        try:
            answer = await describe(producer.client, leader, ones, number)
        except (IncompatibleBrokerVersion, NotImplementedError):  # before Kafka 2.8
            continue
        found |= _checked(answer)
    return found


def _checked(answer: Mapping[TopicPartition, Traces | int]) -> dict[TopicPartition, Traces]:
    found = {}
    for place, one in answer.items():
        if isinstance(one, int):
            raise for_code(one)(f"{place.topic}-{place.partition}")
        found[place] = one
    return found
