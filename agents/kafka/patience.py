"""Patience with brokers that are away: which errors are transient, and how long to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    Awaitable,
    Callable,
)

from aiokafka import errors as aio
from aiokafka.errors import IllegalOperation, KafkaError

from ...errors import EngineError, RightError
from .forgotten import HalfEnded
from .outage import OUTAGE
from .progress import Progress

ROLE = "worker"  # role of all code that uses these clients to write, or for long


AIO_DENIED: dict[type[BaseException], tuple[str, str]] = {
    aio.TopicAuthorizationFailedError: ("READ", "topic"),
    aio.GroupAuthorizationFailedError: ("READ", "group"),
    aio.TransactionalIdAuthorizationFailed: ("WRITE", "transactional id"),
    aio.ClusterAuthorizationFailedError: ("IDEMPOTENT_WRITE", "cluster"),
}


OUTAGES = (KafkaError, IllegalOperation, ConnectionError, TimeoutError, asyncio.CancelledError)
"""Errors that a client raises while the broker is away; see `asked_to_end` for the last.

A producer that was given up while its caller went on sending raises the second.
"""


AWAY = (
    ConnectionError, TimeoutError, aio.KafkaConnectionError, aio.NodeNotReadyError,
    aio.RequestTimedOutError, aio.KafkaTimeoutError, aio.CoordinatorNotAvailableError,
)  # fmt: skip
"""Outages that mean exactly that no broker answers."""


ELSEWHERE = (aio.NotLeaderForPartitionError, aio.ProducerFenced, IllegalOperation)
"""Outages that mean that another broker leads, or that another owner writes.

A producer that already knows that it was fenced raises the last.
"""


def asked_to_end() -> bool:
    """Whether the running task was cancelled.

    A client that loses its broker cancels its own tasks, and their `CancelledError` may reach our
    task. It would mistake that for its own cancellation, and end unnoticed.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def through_outages(
    progress: Progress,
    acquire: Callable[[], Awaitable[None]],
    let_go: Callable[[], Awaitable[None]],
    patience: int,
    wanted: Callable[[], bool] = lambda: True,
) -> bool:
    """Acquire something from the broker, with retries while it is away.

    Args:
        acquire: called again after each outage.
        let_go: called after each outage, to release what was acquired so far.
        patience: microseconds, `kafka.outage_timeout`.
        wanted: asked before each attempt; the first False ends them.

    Returns:
        Whether it was acquired.

    Raises:
        EngineError: the broker stayed away for longer.
    """
    until = time.monotonic() + patience / 1e6
    while wanted():
        try:
            await acquire()
            progress.outage(False)
            return True
        except OUTAGES as error:
            if asked_to_end():
                raise
            progress.outage(True)
            await let_go()
            check_outage(progress.what, until, patience, error)
            OUTAGE.sign(type(error).__name__)
            await asyncio.sleep(1.0)
    return False


def check_outage(what: str, until: float, patience: int, error: BaseException) -> None:
    """Raise an error once an outage has lasted too long.

    Args:
        until: monotonic time at which patience ends, seconds.
        patience: microseconds, for the message.

    Raises:
        EngineError: that time has come, or the error is permanent, such as a refused right.
    """
    if (refused := aio_refusal(error, ROLE)) is not None:
        raise refused from error
    if time.monotonic() > until:
        if isinstance(error, HalfEnded):
            raise EngineError(error.args[0]) from error
        known = isinstance(error, KafkaError | TimeoutError) and str(error)
        said = f"; last of all: {error}" if known else ""
        raise EngineError(
            f"{what}: no broker for {patience / 1e6:g} s (kafka.outage_timeout){said}"
        ) from error


def aio_refusal(
    error: BaseException, role: str = "", operation: str | None = None
) -> RightError | None:
    """Make our own error of a right that aiokafka was refused; None for other errors.

    Args:
        role: the client's role; empty: not known.
        operation: operation tried; None: the usual one of such an error.
    """
    known = AIO_DENIED.get(type(error))
    if known is None:
        return None
    names = error.args[0] if error.args else "of this client"
    each = sorted(names) if isinstance(names, set | frozenset | list | tuple) else [str(names)]
    missing = [(operation or known[0], known[1], name) for name in each]
    return RightError(missing, "this client", role)
