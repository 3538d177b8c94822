"""Each release is passed on once, wherever its pieces are and wherever the reader was stopped.

Covers: reading/sinks/feed.py
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, TopicPartition
from hushstream.errors import EngineError
from hushstream.reading.client import ReleaseTopic
from hushstream.reading.sinks import feed
from hushstream.reading.sinks.feed import DoneRelease, SinkPosition, SinkProgress
from hushstream.topics.config.model import Kafka
from hushstream.topics.releases import Manifest, Privacy, Row, WindowSpan
from hypothesis import given
from hypothesis import strategies as st

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def _pieces(trigger: int, rows: int, shards: int) -> list[Row | Manifest]:
    """The rows and manifests of one release."""
    window = WindowSpan(FIRST + trigger // 3 * DAY, FIRST + (trigger // 3 + 1) * DAY)
    common: dict[str, Any] = {
        "pipeline": "p", "window": window, "trigger": trigger % 3, "final": False
    }  # fmt: skip
    told = {
        "schema": "m", "triggers": 3, "shards": shards, "key_names": (), "value_names": (),
        "replaces": False, "mechanism": "histogram", "confidence_level": 0.95,
        "emitted_at": FIRST, "privacy": Privacy("user", 1.0, 0.0, 0),
    }  # fmt: skip
    made: list[Row | Manifest] = [
        Row(schema="r", release_id=f"{trigger}-{n}", key={}, values={}, **common)
        for n in range(rows)
    ]
    for shard in range(shards):
        own = len(range(shard, rows, shards))
        made.append(Manifest(shard=shard, rows=own, **common, **told))
    return made


@given(st.data())
def test_releases_come_once_wherever_a_reader_was_stopped(data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, 3))
    number = data.draw(st.integers(1, 6))
    logs: dict[int, list[Row | Manifest]] = defaultdict(list)
    every = []
    for trigger in range(number):
        rows, shards = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 2))
        every += _pieces(trigger, rows, shards)
    # Releases overlap: pieces are shuffled within a short reach.
    keys = [n + data.draw(st.integers(0, 6)) for n in range(len(every))]
    for _, piece in sorted(zip(keys, every, strict=True), key=lambda pair: pair[0]):
        logs[data.draw(st.integers(0, partitions - 1))].append(piece)
    position = SinkPosition("t", {str(n): 0 for n in range(partitions)})
    given_: list[tuple[Any, ...]] = []
    stops = [*data.draw(st.lists(st.integers(1, len(every)), max_size=4)), 3 * len(every)]
    for stop in stops:  # a reader starts at the last committed position and is killed
        progress = SinkProgress(
            msgspec.json.decode(msgspec.json.encode(position), type=SinkPosition)
        )
        pending: list[tuple[Any, ...]] = []
        for _ in range(stop):
            at = progress.offsets()
            open_ = [n for n in range(partitions) if at[n] < len(logs[n])]
            if not open_:
                break
            n = data.draw(st.sampled_from(open_))
            release = progress.take(n, at[n], logs[n][at[n]])
            if release is not None:
                pending.append((release.window.start, release.trigger, len(release.rows)))
                if data.draw(st.booleans()):  # committed: rows and position together
                    given_ += pending
                    position, pending = progress.position(), []
    assert all(progress.offsets()[n] == len(logs[n]) for n in range(partitions))
    given_ += pending
    wanted = [(one.window.start, one.trigger) for one in every if isinstance(one, Manifest)]
    assert len(given_) == len({one[:2] for one in given_}) == len(set(wanted)) == number
    counts = {(m.window.start, m.trigger): 0 for m in every if isinstance(m, Manifest)}
    for one in every:
        counts[one.window.start, one.trigger] += isinstance(one, Row)
    assert {one[:2]: one[2] for one in given_} == counts
    end = progress.position()
    assert end.offsets == {str(n): len(logs[n]) for n in range(partitions)} and end.done == []


def test_a_release_that_is_done_is_named_while_its_records_may_come_again() -> None:
    early, late = _pieces(0, 1, 1), _pieces(1, 1, 1)
    progress = SinkProgress(SinkPosition("t", {"0": 0}))
    order = [early[0], *late, early[1]]  # one release encloses the other
    taken = [progress.take(0, n, one) for n, one in enumerate(order[:3])]
    assert [one is not None for one in taken] == [False, False, True]
    name = ("p", FIRST.isoformat(), 1)
    assert progress.position() == SinkPosition("t", {"0": 0}, [DoneRelease(name, {"0": 2})])
    again = SinkProgress(progress.position())
    assert [again.take(0, n, one) is not None for n, one in enumerate(order)] == [
        False, False, False, True
    ]  # fmt: skip
    assert again.position() == SinkPosition("t", {"0": 4})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"topic_id": 1}', type=SinkPosition)


class _Cluster:
    """A cluster whose topic of one partition was recreated."""

    def __init__(self, kafka: Kafka, role: str, options: Any) -> None:
        pass

    def wait(self) -> None:
        pass

    def partitions(self, topic: str, right: str) -> int:
        return 1

    def ids(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "new")


def test_a_reader_goes_on_where_its_table_ends_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recreated topic is refused, and a trimmed one must fail instead of skipping records."""
    asked: list[tuple[bool, str, int]] = []

    def consumer(kafka: Kafka, committed: bool, more: dict[str, Any]) -> Any:
        def assign(places: list[TopicPartition]) -> None:
            asked.append((committed, more["auto.offset.reset"], places[0].offset))

        return SimpleNamespace(assign=assign)

    monkeypatch.setattr(feed, "Cluster", _Cluster)
    monkeypatch.setattr(feed, "consumer", consumer)
    source = ReleaseTopic(Kafka(bootstrap="127.0.0.1:1"), "hush.p.releases.v1", "p")
    with pytest.raises(EngineError, match=r"an earlier topic .*: name another --table"):
        feed.Feed(source, SinkPosition("old", {"0": 3}))
    feed.Feed(source, SinkPosition("new", {"0": 3}))
    feed.Feed(source, None)
    assert asked == [(True, "error", 3), (True, "earliest", 0)]


def test_a_topic_of_which_nothing_comes_any_more_is_silent_until_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    end = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)
    coming: list[Any] = []

    def poll(seconds: float) -> Any:
        clock[0] += seconds
        return coming.pop(0) if coming else None

    client = SimpleNamespace(assign=lambda places: None, poll=poll)
    monkeypatch.setattr(feed, "Cluster", _Cluster)
    monkeypatch.setattr(feed, "consumer", lambda *given: client)
    monkeypatch.setattr(feed, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    read = feed.Feed(ReleaseTopic(Kafka(bootstrap="127.0.0.1:1"), "t", "p"), None)
    record = SimpleNamespace(
        error=lambda: None, partition=lambda: 0, offset=lambda: 0, key=lambda: b"",
        value=lambda: b"", timestamp=lambda: (1, 0), headers=list,
    )  # fmt: skip
    for seconds, come, silent in ((29, [], False), (2, [], True), (1, [record], False),
                                  (29, [], False), (2, [], True)):  # fmt: skip
        coming += come
        read.read(seconds)
        assert read.silent is silent and not read.ended
    coming.append(SimpleNamespace(error=lambda: end, partition=lambda: 0))
    read.read(1)
    read.read(100)
    assert read.ended and not read.silent  # nothing more is to come
