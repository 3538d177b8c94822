"""Finds transactions that a broker has forgotten to end, before their producer writes again.

`InitProducerId` answers once the open transaction has ended and all partitions have its markers. A
broker that was killed may break that (seen in Kafka 4.3.1): while it starts, its coordinator can
treat an ending transaction as complete although no partition has a marker. The records stay beyond
the last stable offset, so the state that is read next lacks them. **The next commit of the same
producer then commits them too**, and work that was done twice would count twice.

So before a producer writes, all partitions that it writes and may read are asked for its traces:

- no partition has an open transaction: the usual case;
- all partitions that know the newest epoch have it open: no record of that transaction was ever
  visible. The next transaction's markers end it, so an empty transaction is made for that. It is
  committed if the producer's owner knows that the commit was answered, because a table that follows
  committed steps then contains it. Otherwise it is aborted, and the step is computed again, to the
  same bytes;
- some have it open and others have its marker: brokers have lost the others, or one was cut off,
  still calls itself the leader and will get its marker. The marker tells how the transaction was
  decided, so an empty transaction ends the rest likewise. If the marker cannot be identified,
  nothing is written; after `kafka.outage_timeout` the worker ends and says what an operator must
  do.

Brokers before Kafka 2.8 do not support the request and are not asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache

import aiokafka
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    for_code,
)
from aiokafka.structs import TopicPartition

from .private.of_aiokafka_describe import Traces, describe
from .private.of_aiokafka_ends import committed
from .private.of_aiokafka_producer import end_in, new_epochs, producer_id

MARKER_SECONDS = 10.0

log = logging.getLogger("hushstream.kafka")


class HalfEnded(KafkaError):  # type: ignore[misc]
    """A transaction has ended in some partitions only, by what their leaders say now."""


async def never_answered() -> bool:
    """Answer False, for owners that keep no trace of commits."""
    return False


async def end_forgotten(
    producer: aiokafka.AIOKafkaProducer,
    asked: Collection[TopicPartition],
    unread: Collection[TopicPartition] = (),
    answered: Callable[[], Awaitable[bool]] = never_answered,
) -> None:
    """End the forgotten transaction, if any, of a producer that has just started.

    Args:
        producer: started transactional producer without a transaction.
        asked: partitions that it writes and this user may read.
        unread: others that it writes.
        answered: returns whether the commit of a hanging transaction was answered.

    Raises:
        HalfEnded: the transaction has ended in some partitions only; ask again later.
        KafkaError: a broker refuses, or does not answer.
    """
    if not asked:
        return
    traces = await _traces(producer, asked)
    newest = max((one.epoch for one in traces.values() if one.open), default=None)
    if newest is None:
        return
    hanging = [place for place, one in traces.items() if one.open]
    # A marker carries the next epoch; with brokers that keep the epoch, a marker of the same epoch
    # may be this transaction's.
    end = newest + new_epochs(producer)
    if ended := [place for place, one in traces.items() if not one.open and one.epoch >= end]:
        alike = all(one.epoch == newest for one in traces.values() if one.open)
        commit = await _decided(producer, ended, end) if alike else None
        where = f"a transaction has ended in {_named(ended)} and hangs in {_named(hanging)}"
        if commit is None:
            _warn_of_half(where)
            raise HalfEnded(
                f"{where}: brokers have lost its end there. Nothing is written over it: see "
                '"A transaction hangs" in docs/operations.md'
            )
        log.warning("%s: it is %s there, too", where, "committed" if commit else "aborted")
    else:
        commit = await answered()
        log.warning(
            "the brokers never ended a transaction in %s: it is now %s",
            _named(hanging),
            "committed, as they had confirmed" if commit else "aborted, and repeated",
        )
    await end_in(producer, [*hanging, *unread], commit)  # returns before the markers are written
    until = time.monotonic() + MARKER_SECONDS
    while left := [at for at, one in (await _traces(producer, hanging)).items() if one.open]:
        if time.monotonic() > until:
            raise KafkaConnectionError(f"a transaction still hangs in {_named(left)}")
        await asyncio.sleep(0.05)


async def ended(producer: aiokafka.AIOKafkaProducer, place: TopicPartition) -> None:
    """Return once a producer has no open transaction in a partition that it has written.

    A commit is answered before its markers are written.

    Raises:
        KafkaError: it still has one after `MARKER_SECONDS`, or no broker says so.
    """
    until, rest = time.monotonic() + MARKER_SECONDS, 0.002
    while any(one.open for one in (await _traces(producer, [place])).values()):
        if time.monotonic() > until:
            raise KafkaConnectionError(f"a transaction has not ended in {_named([place])}")
        await asyncio.sleep(rest := min(2 * rest, 0.1))


async def _decided(
    producer: aiokafka.AIOKafkaProducer, ended: Collection[TopicPartition], epoch: int
) -> bool | None:
    """Whether the transaction whose markers have this epoch was committed; None: not known.

    Where transactions share an epoch, no marker is known to be that of this one.
    """
    if not new_epochs(producer):
        return None
    said, number = set[bool | None](), producer_id(producer)
    for place in ended:
        leader = producer.client.cluster.leader_for_partition(place)
        said.add(await committed(producer.client, leader, place, number, epoch))
    said.discard(None)
    return said.pop() if len(said) == 1 else None


@cache
def _warn_of_half(where: str) -> None:
    log.warning("%s: a broker may be cut off from the others; asking again", where)


def _named(places: Collection[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in sorted(places))


async def _traces(
    producer: aiokafka.AIOKafkaProducer, places: Collection[TopicPartition]
) -> dict[TopicPartition, Traces]:
    leaders: dict[int, list[TopicPartition]] = defaultdict(list)
    for place in places:
        await producer.partitions_for(place.topic)  # to learn the leaders
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
