"""Topics that change while a worker runs, and input that is not fetched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import hushstream.agents.worker.health.topics as module
import pytest
from confluent_kafka import KafkaException
from faust.types import TP
from hushstream.agents.worker.health.topics import Inflow, TopicWatch
from hushstream.errors import EngineError
from hushstream.topics.names import OWNERS, Names

from ....support import deployment, messages

NAMES = Names("hush", "abcdef")


class FakeCluster:
    """Gives one answer after the other: topics or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def topics(self, named: Any = ()) -> dict[str, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def ids(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, f"id-{self.owners}")

    owners = 0


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TopicWatch]:
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(module, "verify", lambda *_: NAMES)  # it has its own tests
    monkeypatch.setattr(module, "unclaimed", lambda *_: [])  # likewise
    return lambda *answers: TopicWatch(FakeCluster(*answers), deployment(), None)  # type: ignore[arg-type]


def whole() -> dict[str, int]:
    made = deployment()
    specs = [*module.public_topics(made), *module.internal_topics(made, NAMES)]
    return {spec.name: spec.partitions for spec in specs}


def test_what_is_missing_twice_is_gone_and_what_comes_back_is_not(watch):
    ledger = next(iter(whole()))
    less = {name: n for name, n in whole().items() if name != ledger}
    watch(whole()).look()
    watch(less, whole()).look()
    with pytest.raises(EngineError, match=f"topic {ledger} .* was deleted .* new deployment"):
        watch(less, less).look()


def test_topics_of_releases_can_be_made_anew_and_those_with_state_cannot(watch):
    made = deployment()
    for spec in [*module.public_topics(made)[2:], *module.internal_topics(made, NAMES)]:
        less = {name: n for name, n in whole().items() if name != spec.name}
        with pytest.raises(EngineError) as raised:
            watch(less, less).look()
        outside = NAMES.genesis not in spec.name
        assert ("run `hush topics`" in str(raised.value)) == outside
        assert ("begin a new deployment" in str(raised.value)) != outside


def test_a_cluster_that_does_not_answer_is_no_evidence(watch):
    watch(KafkaException("away")).look()
    less: dict[str, int] = {}
    watch(less, KafkaException("away")).look()


def test_an_answer_is_noted_and_silence_is_not(watch, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    looks = watch(whole(), KafkaException("away"))
    now[0] = 100.0
    looks.look()
    assert not looks.progress.stalled(0.5)
    now[0] = 116.0
    looks.look()
    assert looks.progress.stalled(15)


def test_owners_that_are_deleted_or_forget_are_told_and_others_in_their_place_stop(
    watch, monkeypatch, caplog
):
    asked: list[list[str]] = []
    missing: list[str] = []
    monkeypatch.setattr(module, "unclaimed", lambda *_: asked.append(missing) or missing)
    monkeypatch.setattr(module, "SAID_SECONDS", 0.0)
    less = {name: n for name, n in whole().items() if name != OWNERS}
    looks = watch(*[whole()] * 2, less, *[whole()] * 4)
    looks.look()
    looks.look()
    assert len(asked) == 1 and not caplog.records  # it reads them once
    looks.look()
    (said,) = messages(caplog.records)
    assert f"{OWNERS} was deleted" in said and "run `hush topics` of every deployment" in said
    missing.append("releases")  # another deployment has recreated it
    looks.look()
    looks.look()
    assert ["who writes releases" in said for said in messages(caplog.records)[1:]] == [True, True]
    missing.clear()
    looks.look()
    assert len(messages(caplog.records)) == 3

    def others(*_: Any) -> list[str]:
        raise EngineError("topic releases is written by deployment 'b'")

    monkeypatch.setattr(module, "unclaimed", others)
    looks._cluster.owners = 1  # recreated
    looks._cluster.answers = [whole(), whole()]
    with pytest.raises(EngineError, match="is written by deployment"):
        looks.look()


def test_input_that_grows_and_is_not_fetched_is_a_stall():
    tp, seen = TP("raw", 0), {"end": 5}
    ends, away = dict[TP, int](), [False]
    flow = Inflow(lambda _: seen["end"], ends, lambda: away[0])
    flow.look({tp: 5})
    assert not flow.progress[tp].stalled(-1.0)  # it has fetched everything
    seen["end"] = 9
    flow.look({tp: 6})
    one = flow.progress[tp]
    first = one._since
    assert first is not None and one.stalled(-1.0) and "raw-0" in one.what
    flow.look({tp: 6})
    assert one._since == first  # still the same stall
    away[0] = True
    flow.look({tp: 6})
    assert one._since != first  # other parts of the worker wait for an absent broker
    away[0] = False
    flow.look({tp: 9})
    assert one._since is None
    ends[tp] = 12  # the broker has more; for cells, the clock log does not say so
    flow.look({tp: 9})
    second = one._since
    assert second is not None  # the stall began here, after a rest
    flow.look({tp: 9})
    assert one._since == second
    flow.look({tp: 12})
    assert one._since is None
    flow.look({})  # paused or revoked
    assert flow.progress == {}
