"""What is told of a record that was set aside is ours, whatever its producer wrote into headers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.kafka.set_aside import letters
from hushstream.agents.stages.ingest.dead_letters import failure_headers
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.events.reasons import Reason

PREFIX = "__streams.errors."


class Message:
    """A copy in a topic of dead letters, as a client returns it."""

    def __init__(self, headers: tuple[tuple[str, bytes], ...]) -> None:
        self._headers = headers

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._headers)

    def key(self) -> bytes:
        return b"key"

    value = key

    def offset(self) -> int:
        return 5


def cluster(*messages: Message) -> Any:
    return SimpleNamespace(
        partitions=lambda *_: 1,
        offsets=SimpleNamespace(begins=lambda *_: (0,), ends=lambda *_: (len(messages),)),
        each=lambda *_: messages,
    )


@pytest.mark.parametrize("field", ["", "user.id"])
def test_a_producers_own_headers_tell_nothing_of_a_copy(field: str) -> None:
    reason = Reason.at("wrong_type", field) if field else "malformed"
    ours = failure_headers(("events", 3), RawRecord(17, 1234, b"key", b"key"), reason)
    names = ("exception", "path", "pipeline", "reason", "topic", "offset")
    forged = tuple((PREFIX + name, b"forged") for name in names)
    (found,) = letters(cluster(Message((("trace", b"t"), *forged, *ours))), "dlq")
    assert (found.reason, found.field, found.whose) == (str(reason), field, "")
    assert found.origin == ("events", 3, 17) and found.headers == (("trace", b"t"),)
