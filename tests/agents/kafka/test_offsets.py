"""Offsets that a cluster returns: a missing one is neither an end nor a beginning."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import hushstream.agents.kafka.offsets as module
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from hushstream.agents.kafka.access.refusals import Permits
from hushstream.agents.kafka.offsets import CONFIRM_SECONDS, PartitionOffsets, confirmed
from hushstream.errors import EngineError, OutageError
from hushstream.topics.config.model import Kafka


class Told(NamedTuple):
    """A client's answer about one partition."""

    offset: int


class Admin:
    """A client with an offset or error for each question; the last one answers all later ones."""

    def __init__(self, *offsets: int | KafkaError) -> None:
        self.offsets = list(offsets)

    def list_offsets(
        self, asked: dict[TopicPartition, Any], **_: Any
    ) -> dict[TopicPartition, Future[Told]]:
        offset = self.offsets.pop(0) if len(self.offsets) > 1 else self.offsets[0]
        found: dict[TopicPartition, Future[Told]] = {place: Future() for place in asked}
        for future in found.values():
            if isinstance(offset, KafkaError):
                future.set_exception(KafkaException(offset))
            else:
                future.set_result(Told(offset))
        return found


def asked(*offsets: int | KafkaError, patience: float = 0.3) -> PartitionOffsets:
    admin: Any = Admin(*offsets)
    return PartitionOffsets(admin, Permits(admin, Kafka(), ""), patience)


@pytest.mark.parametrize("method", ["begins", "ends"])
def test_an_unknown_offset_is_no_offset(method: str):
    with pytest.raises(OutageError, match="t-0: its leader is away"):
        getattr(asked(OFFSET_INVALID), method)("t", 2)
    assert getattr(asked(7), method)("t", 2) == [7, 7]


def test_an_end_that_is_unknown_for_a_moment_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    assert asked(OFFSET_INVALID, OFFSET_INVALID, 0, patience=150).written("t", 0) == 0


@pytest.mark.parametrize("method", ["begins", "ends"])
def test_an_error_that_passes_is_waited_out_and_another_is_not(method: str, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    young = KafkaError(KafkaError.UNKNOWN_LEADER_EPOCH)  # from a broker that has just started
    assert getattr(asked(young, young, 7, patience=150), method)("t", 1) == [7]
    with pytest.raises(OutageError, match=r"^t: its offsets are unknown: "):
        getattr(asked(young), method)("t", 1)
    with pytest.raises(EngineError, match=r"^t: its offsets are unknown: ") as found:
        getattr(asked(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), 7), method)("t", 1)
    assert not isinstance(found.value, OutageError)


@pytest.mark.parametrize(
    ("ends", "seconds", "waits"),
    [((9, 9), 9.0, 0), ((7, 9, 7, 9, 9, 9), 9.0, 2), ((7, 9, 9, 9), 0.0, 0)],
)
def test_records_of_a_commit_are_awaited_until_they_can_be_read(
    ends: tuple[int, ...], seconds: float, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    assert asked(*ends).open("t") == (ends[0] < ends[1])
    asked(*ends).settle("t", seconds)
    assert len(slept) == waits


@pytest.mark.parametrize(
    ("pauses", "told", "said", "asked"),
    [
        ((0, 0), ("t", "t", ""), "", 3),
        ((60, 0), ("t", ""), "", 2),  # the answer is from before a pause
        ((60, 0), ("t", "t", ""), "", 3),  # a leader is still new
        ((0, CONFIRM_SECONDS, 0), ("t",), "t", 3),
        ((0, 60), ("t", "t", ""), "", 3),
    ],
)
def test_what_counts_is_when_a_question_was_asked(
    pauses: tuple[float, ...], told: tuple[str, ...], said: str, asked: int, monkeypatch: Any
) -> None:
    moment, number = [100.0], [0]

    def sleep(seconds: float) -> None:
        moment[0] += seconds

    def ask() -> str:
        number[0] += 1
        sleep(pauses[number[0] - 1] if number[0] <= len(pauses) else 0)
        return told[min(number[0], len(told)) - 1]

    clock = SimpleNamespace(monotonic=lambda: moment[0], sleep=sleep)
    monkeypatch.setattr(module, "time", clock)
    assert confirmed(ask) == said
    assert number == [asked]
