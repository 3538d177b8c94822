"""Reading whole topics: a broker without a leader for a moment is asked again."""

from __future__ import annotations

from typing import Any

import hushstream.agents.kafka.logs as logs
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from hushstream.errors import EngineError, OutageError

PLACE = TopicPartition("t", 0)


class Answers:
    """A client that fails with each of some codes, and then answers.

    None stands for an answer that is no error and tells no offset.
    """

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        if self.codes:
            if (code := self.codes.pop(0)) is None:
                return OFFSET_INVALID, OFFSET_INVALID
            raise KafkaException(KafkaError(code))
        return 3, 7


def test_a_partition_that_has_no_leader_yet_is_asked_again(monkeypatch):
    monkeypatch.setattr(logs.time, "sleep", lambda _: None)
    client = Answers(KafkaError.NOT_LEADER_FOR_PARTITION, None, KafkaError.LEADER_NOT_AVAILABLE)
    assert logs.watermarks(client, PLACE) == (3, 7)  # type: ignore[arg-type]


def test_other_errors_and_lasting_ones_name_the_topic(monkeypatch):
    with pytest.raises(EngineError, match="t cannot be read"):
        logs.watermarks(Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED), PLACE)  # type: ignore[arg-type]
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(EngineError, match="t cannot be read"):
        logs.watermarks(Answers(KafkaError.NOT_LEADER_FOR_PARTITION), PLACE)  # type: ignore[arg-type]
    with pytest.raises(OutageError, match="t cannot be read"):
        logs.watermarks(Answers(None), PLACE)  # type: ignore[arg-type]
