"""Rights on a group: how an answer is read, and what happens without one."""

from __future__ import annotations

from collections.abc import Callable

import aiokafka.errors as aio
import pytest
from hushstream.agents.kafka.access import groups
from hushstream.agents.kafka.access.groups import allowed, may_read
from hushstream.deploy.broker import Broker
from hushstream.errors import OutageError
from hushstream.topics.config.model import Kafka


@pytest.mark.parametrize(
    ("operations", "may"),
    [
        (-(1 << 31), True),  # no authorizer
        (1 << 3, True),  # READ
        (1 << 2, True),  # ALL
        (1 << 8 | 1 << 6, False),  # DESCRIBE and DELETE
        (0, False),
    ],
)
def test_the_bits_of_an_answer_are_those_of_the_protocol(operations: int, may: bool) -> None:
    assert allowed(0, operations) is may


def test_a_refusal_is_no_answer() -> None:
    with pytest.raises(aio.GroupAuthorizationFailedError):
        allowed(30, -(1 << 31))


def test_a_group_that_nobody_made_may_be_joined(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    assert may_read(Kafka(bootstrap=broker.bootstrap), unique("group")) is True


@pytest.mark.parametrize("error", [aio.GroupCoordinatorNotAvailableError(), TimeoutError()])
def test_a_group_without_a_coordinator_is_an_outage(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(kafka: Kafka, group: str) -> bool:
        raise error

    monkeypatch.setattr(groups, "_told", fail)
    monkeypatch.setattr(groups, "SECONDS", 0.5)
    with pytest.raises(OutageError, match="no coordinator tells of group 'g'"):
        may_read(Kafka(), "g")


def test_a_coordinator_that_comes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([aio.GroupCoordinatorNotAvailableError(), aio.NotCoordinatorForGroupError(), None])

    async def later(kafka: Kafka, group: str) -> bool:
        if (error := next(told)) is not None:
            raise error
        return True

    monkeypatch.setattr(groups, "_told", later)
    assert may_read(Kafka(), "g") is True


def test_where_no_broker_answers_it_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SECONDS", 1.0)
    with pytest.raises(OutageError, match="'g'"):
        may_read(Kafka(bootstrap="127.0.0.1:1"), "g")


def test_a_group_that_may_not_be_asked_for_may_not_be_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(kafka: Kafka, group: str) -> bool:
        raise aio.GroupAuthorizationFailedError(group)

    monkeypatch.setattr(groups, "_told", refused)
    assert may_read(Kafka(), "g") is False
