"""The client on a real broker: only committed and complete releases, as a table or one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream import follow_releases, read_releases
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.stages.step import Out
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, ParameterError
from hushstream.reading.client import Wanted, moment
from hushstream.reading.tables import table_of
from hushstream.topics.assembly import Released
from hushstream.topics.config.model import Kafka

from ..recorded.pipelines import outs
from ..topics.test_assembly import complete, records

CASE = "histogram-sums"
START = datetime(2019, 3, 1, tzinfo=UTC)


@cache
def sent() -> list[Out]:
    """Every record of the release topic."""
    return outs(CASE)[0]


@cache
def whole() -> list[Released]:
    """All complete releases."""
    return complete(records(CASE)[0], CASE)


class Topic:
    """A release topic of two partitions, written by hand."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.bootstrap, self.name = broker.bootstrap, name
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        config = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
        admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result()
        self.producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        self.producer.init_transactions(120)

    def send(self, records: Sequence[Out], commit: bool = True) -> None:
        """Send one transaction, with rows and manifests spread over both partitions."""
        self.producer.begin_transaction()
        for n, out in enumerate(records):
            self.producer.produce(self.name, out.value, out.key, n % 2, timestamp=out.timestamp,
                                  headers=list(out.headers))  # fmt: skip
        self.producer.flush()
        if commit:
            self.producer.commit_transaction(120)
        else:
            self.producer.abort_transaction(120)
        self._settle()

    def _settle(self) -> None:
        """Wait until ended transactions can be read: a commit returns before it becomes visible."""
        cluster = Cluster(Kafka(bootstrap=self.bootstrap))
        for n in range(2):
            cluster.read(self.name, n)

    def read(self, **options: Any) -> Any:
        return read_releases(self.bootstrap, CASE, topic=self.name, **options)


@pytest.fixture
def topic(broker: Broker, unique: Callable[[str], str]) -> Topic:
    return Topic(broker, unique("releases"))


def test_what_was_committed_comes_as_a_table(topic: Topic) -> None:
    topic.send(sent()[:10], commit=False)
    assert len(topic.read()) == 0
    topic.send(sent())
    assert topic.read().equals(table_of(whole()))
    assert topic.read(which="latest").equals(table_of(whole(), latest=True))
    final = topic.read(which="final")
    assert final.equals(table_of([r for r in whole() if r.final])) and len(final) > 0
    assert set(final["trigger"].to_pylist()) == {4}
    settings = Kafka(bootstrap=topic.bootstrap)
    assert read_releases(settings, CASE, topic=topic.name).equals(table_of(whole()))


def test_a_release_without_a_row_or_a_manifest_is_left_out(topic: Topic) -> None:
    last = max(n for n, out in enumerate(sent()) if out.headers[0][0] == "hush-row")
    topic.send([out for n, out in enumerate(sent()) if n != last])
    places = {(r.window.start, r.trigger) for r in whole()}
    told = topic.read()
    seen = set(zip(told["window_start"].to_pylist(), told["trigger"].to_pylist(), strict=True))
    assert seen < places and (START + timedelta(hours=8), 4) not in seen
    topic.send([sent()[last]])
    assert topic.read().equals(table_of(whole()))


def test_windows_and_times_choose_releases(topic: Topic) -> None:
    topic.send(sent())
    second = [r for r in whole() if r.window.start > START]
    assert topic.read(window="2019-03-01T09:30").equals(table_of(second))
    assert topic.read(window=START + timedelta(hours=8)).equals(table_of(second))
    late = [r for r in whole() if r.scheduled >= START + timedelta(hours=12)]
    assert 0 < len(late) < len(whole())
    assert topic.read(since="2019-03-01T12:00:00Z").equals(table_of(late))
    assert len(topic.read(since=datetime(2100, 1, 1))) == 0


def test_a_follower_gets_each_release_once_when_it_is_complete(topic: Topic) -> None:
    half = len(sent()) // 2
    topic.send(sent()[:half])
    follower = follow_releases(topic.bootstrap, CASE, topic=topic.name, patience=150.0)
    begun = [next(follower)]
    writer = threading.Thread(target=topic.send, args=[sent()[half:]])
    writer.start()
    found = [*begun, *islice(follower, len(whole()) - 1)]
    writer.join()
    assert table_of(found).equals(table_of(whole()))
    final = follow_releases(topic.bootstrap, CASE, topic=topic.name, final=True, patience=4.0)
    assert [release.final for release in final] == [True, True]  # and it ends by itself


def test_a_missing_topic_and_a_silent_address_say_what_to_do(broker: Broker) -> None:
    wanted = r"hush\.nobody\.releases\.v1.*check the name of the pipeline"
    with pytest.raises(EngineError, match=wanted) as told:
        read_releases(broker.bootstrap, "nobody")
    assert "hush topics" not in str(told.value)  # a reader has no right to run it


def test_a_damaged_record_is_an_error_and_another_version_is_passed_over(topic: Topic) -> None:
    row = sent()[0]
    topic.send([row._replace(headers=(("hush-row", b"hush.release/1"),), value=b'{"old":1}')])
    assert len(topic.read()) == 0
    topic.send([row._replace(value=b'{"schema":')])
    with pytest.raises(EngineError, match="damaged"):
        topic.read()


def test_times_have_a_zone_and_wrong_ones_are_refused() -> None:
    assert moment("since", "2019-03-01") == START == moment("since", datetime(2019, 3, 1))
    assert moment("since", "2019-03-01T01:00+01:00") == START and moment("since", None) is None
    with pytest.raises(ParameterError, match="since = 'soon'"):
        moment("since", "soon")
    with pytest.raises(ParameterError, match="which = 'first'"):
        read_releases("nowhere:1", "p", which="first")  # type: ignore[arg-type]


def test_a_window_holds_its_start_and_not_its_end() -> None:
    release = next(r for r in whole() if r.window.start == START)
    assert Wanted(window=START).takes(release)
    assert not Wanted(window=START + timedelta(hours=8)).takes(release)
    assert not Wanted(since=release.scheduled + timedelta(microseconds=1)).takes(release)
