"""Topics that change while a worker runs, and input that nobody fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hushstream.agents.worker.health.topics as module
import pytest
from confluent_kafka import KafkaException
from faust.types import TP
from hushstream.agents.worker.health.topics import Inflow, TopicWatch
from hushstream.errors import EngineError

from ....support import deployment


class FakeCluster:
    """Answers one after the other: topics, or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def topics(self, named: Any = ()) -> dict[str, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TopicWatch]:
    monkeypatch.setattr(module, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(module, "verify", lambda *_: None)  # has tests of its own
    return lambda *answers: TopicWatch(FakeCluster(*answers), deployment(), None)  # type: ignore[arg-type]


def whole() -> dict[str, int]:
    return {spec.name: spec.partitions for spec in module.public_topics(deployment())}


def test_what_is_missing_twice_is_gone_and_what_comes_back_is_not(watch):
    ledger = next(iter(whole()))
    less = {name: n for name, n in whole().items() if name != ledger}
    watch(whole()).look()
    watch(less, whole()).look()
    with pytest.raises(EngineError, match=f"topic {ledger} .* was deleted while"):
        watch(less, less).look()


def test_a_cluster_that_does_not_answer_is_no_evidence(watch):
    watch(KafkaException("away")).look()
    less: dict[str, int] = {}
    watch(less, KafkaException("away")).look()


def test_input_that_grows_and_is_not_fetched_is_a_stall():
    tp, seen = TP("raw", 0), {"end": 5}
    flow = Inflow(lambda _: seen["end"])
    flow.look({tp: 5})
    assert not flow.progress[tp].stalled(-1.0)  # it has all
    seen["end"] = 9
    flow.look({tp: 6})
    one = flow.progress[tp]
    first = one._since
    assert first is not None and one.stalled(-1.0) and "raw-0" in one.what
    flow.look({tp: 6})
    assert one._since == first  # it stands
    flow.away = lambda: True
    flow.look({tp: 6})
    assert one._since != first  # a broker that is away is waited for by others
    flow.away = lambda: False
    flow.look({tp: 9})
    assert one._since is None
    flow.ends = {tp: 12}  # the broker has more, which the clock log does not say of cells
    flow.look({tp: 9})
    second = one._since
    assert second is not None  # it has stood since then, although it had rested before
    flow.look({tp: 9})
    assert one._since == second
    flow.look({tp: 12})
    assert one._since is None
    flow.look({})  # paused, or revoked
    assert flow.progress == {}
