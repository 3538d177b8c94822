"""Reading of real topics: a change of a partition's leader is waited for, other errors are not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from . import topics

PLACE = TopicPartition("t", 0)


def failing(*codes: int) -> SimpleNamespace:
    """A client whose first queries fail."""
    left = list(codes)

    def marks(place: TopicPartition, timeout: float) -> tuple[int, int]:
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return 3, 9

    return SimpleNamespace(get_watermark_offsets=marks)


def test_a_change_of_leader_is_waited_for_but_not_for_ever(monkeypatch):
    moved = KafkaError.NOT_LEADER_FOR_PARTITION
    monkeypatch.setattr(topics.time, "sleep", lambda seconds: None)
    assert topics._begin(failing(moved, moved), PLACE) == 3
    monkeypatch.setattr(topics, "PATIENCE", -1.0)
    with pytest.raises(KafkaException):
        topics._begin(failing(moved), PLACE)


def test_other_errors_are_raised():
    with pytest.raises(KafkaException):
        topics._begin(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED), PLACE)
