"""Rights on a consumer group, asked through aiokafka.

If a group's coordinator hangs up during such a request, an assertion in librdkafka ends the whole
process. That would kill a worker that waits for a broker to come back.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import aiokafka.errors as aio
from aiokafka.admin import AIOKafkaAdminClient

from ....errors import OutageError
from ....topics.config.model import Kafka
from ..private.of_aiokafka import described
from .tokens import client_options

SECONDS = 10.0  # of one attempt

_READ = 1 << 3  # codes of operations in the protocol
_ALL = 1 << 2
_UNKNOWN = -(1 << 31)  # there is no authorizer


def may_read(kafka: Kafka, group: str) -> bool:
    """Ask whether this user may join a consumer group, without joining it.

    Args:
        group: name of the group, which need not exist.

    Raises:
        OutageError: no broker answers, or the group has no coordinator now.
        ConfigError: a file of the connection cannot be read, or there is no password.
    """
    with ThreadPoolExecutor(1) as apart:  # the caller may run in an event loop
        return apart.submit(asyncio.run, _asked(kafka, group)).result()


async def _asked(kafka: Kafka, group: str) -> bool:
    until = time.monotonic() + SECONDS
    try:
        while True:
            try:
                async with asyncio.timeout(SECONDS):
                    return await _told(kafka, group)
            except aio.KafkaError as error:
                # The very first request makes a cluster create the coordinators' topic.
                if not error.retriable or time.monotonic() > until:
                    raise
            await asyncio.sleep(0.2)
    except (aio.KafkaError, TimeoutError, OSError) as error:
        if isinstance(error, aio.GroupAuthorizationFailedError):
            return False
        said = f"no coordinator tells of group {group!r}: {error or type(error).__name__}"
        raise OutageError(said) from None


async def _told(kafka: Kafka, group: str) -> bool:
    admin = AIOKafkaAdminClient(**client_options(kafka))
    try:
        await admin.start()
        return allowed(*await described(admin, group))
    finally:
        await admin.close()


def allowed(code: int, operations: int) -> bool:
    """Read from an answer of `described` whether the group may be joined.

    Raises:
        KafkaError: the coordinator refused to answer.
    """
    if code:
        raise aio.for_code(code)
    return operations == _UNKNOWN or bool(operations & (_READ | _ALL))
