"""The number of triggers and charges that a request would cause, counted before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hushstream.agents.clock import forecast as module
from hushstream.agents.clock.clock import REQUEST_AHEAD
from hushstream.agents.clock.forecast import MOST, InForce, Standing, forecast
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.timeline import fold
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.mechanisms.accounting.composition import Spent, charge_of
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import PipelineStanding, Snapshot, TriggerRequest, encode
from msgspec.structs import replace as replace_struct

from ...support import DAY, HOUR, ORIGIN, deployment, start, trigger

P = deployment().pipelines[0]


def ledger(*epochs: int) -> Ledger:
    made = Ledger()
    made.take(made.next("genesis", 1, {"genesis": "abcdef"}).encode())
    for epoch in epochs:
        made.take(made.next("charge", 1, charge_body(P, epoch, "1", "key")).encode())
    return made


def test_triggers_that_have_fired_and_epochs_that_are_charged_cost_nothing_again():
    line = fold([start(P), trigger(P, 1, [0])], {"p": 4})["p"]
    found = forecast(P, line, ledger(0), ORIGIN + 2 * DAY)
    assert (found.triggers, found.charges, found.more) == (7, 1, False)
    assert (found.epsilon, found.delta) == (P.epsilon, P.delta)
    assert forecast(P, line, ledger(0), ORIGIN + 6 * HOUR).triggers == 0


def test_charges_end_at_the_limit():
    line = fold([start(P)], {"p": 4})["p"]
    one = charge_of(P.epsilon, P.delta, P.mechanism.cost())
    limited = replace(P, limit_epsilon=Spent().plus(one, 3).composed())
    found = forecast(limited, line, ledger(0), ORIGIN + 30 * DAY)
    assert (found.due, found.triggers) == (120, 12)  # three epochs of four triggers
    assert (found.charges, found.refused) == (2, 27)  # one of the three is paid already
    assert (found.epsilon, found.delta) == (2 * P.epsilon, 2 * P.delta)
    spent = forecast(replace(P, limit_epsilon=P.epsilon), line, ledger(0), ORIGIN + 2 * DAY)
    assert (spent.due, spent.triggers, spent.charges, spent.refused) == (8, 4, 0, 1)


def test_an_epoch_that_is_refused_already_is_neither_fired_nor_refused_again():
    line, made = fold([start(P)], {"p": 4})["p"], ledger(0)
    body = {"pipeline": "p", "epoch": 1, "reason": "the budget's limit is reached"}
    made.take(made.next("refused", 1, body).encode())
    found = forecast(P, line, made, ORIGIN + 3 * DAY)
    assert (found.due, found.triggers, found.charges, found.refused) == (12, 8, 1, 0)


def test_what_lasts_for_ever_is_counted_to_a_bound():
    line = fold([start(P)], {"p": 4})["p"]
    found = forecast(P, line, ledger(), ORIGIN + 1_000_000 * DAY)
    assert found.more and found.triggers == MOST and found.charges == MOST // 4


class Sent(NamedTuple):
    """A record of the requests topic, as a client returns it."""

    at: int
    body: bytes
    sent: int

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return 1, self.sent // 1000


@dataclass
class Topic:
    """A cluster with one topic whose first records may be deleted."""

    records: list[Sent] = field(default_factory=list)
    begin: int = 0

    @property
    def offsets(self) -> Any:
        return self

    def written(self, topic: str, partition: int) -> int:
        assert (topic, partition) == ("requests", 0)
        return len(self.records)

    def add(self, identity: str, at: int, cancel: bool = False, only: str = "") -> None:
        request = TriggerRequest(identity, at, [only] if only else None, cancel)
        self.records.append(Sent(len(self.records), encode(request), ORIGIN))

    def read(self, topic: str, partition: int = 0, start: int = 0) -> list[Sent]:
        return self.records[max(start, self.begin) :]


def snapshot(requests: int, **requested: int) -> Snapshot:
    return Snapshot(ORIGIN, {}, {}, 1, "", requests=requests, requested=requested)


def test_a_request_is_in_force_until_a_later_one_cancels_it():
    topic = Topic()
    topic.add("earlier", ORIGIN, cancel=True)
    requests = InForce(topic, "requests", ["p", "q"])
    assert requests.look(None) == {}
    topic.add("mine", ORIGIN + DAY)
    assert requests.look(None) == {"p": ORIGIN + DAY, "q": ORIGIN + DAY}
    topic.add("another", 0, cancel=True, only="q")
    topic.add("sooner", ORIGIN + HOUR)
    assert requests.look(None) == {"p": ORIGIN + DAY, "q": ORIGIN + HOUR}
    topic.records.append(Sent(len(topic.records), b"nonsense", ORIGIN))
    topic.add("ahead", ORIGIN + REQUEST_AHEAD + 1)  # the clock ignores it
    topic.add("all", 0, cancel=True, only="p")
    assert requests.look(None) == {"q": ORIGIN + HOUR}


def test_what_was_deleted_unseen_is_known_from_the_snapshot_that_has_read_it():
    topic = Topic()
    requests = InForce(topic, "requests", ["p"])
    topic.add("mine", ORIGIN + DAY)
    assert requests.look(snapshot(0)) == {"p": ORIGIN + DAY}
    topic.add("cancelled", 0, cancel=True)
    topic.begin = 2
    assert requests.look(snapshot(2)) == {}
    topic.add("again", ORIGIN + HOUR)
    assert requests.look(snapshot(2)) == {"p": ORIGIN + HOUR}
    assert requests.look(snapshot(1, p=7)) == {"p": ORIGIN + HOUR}  # older than what was read


def test_the_newest_snapshot_of_the_clock_log_is_kept(monkeypatch: pytest.MonkeyPatch):
    read = snapshot(3, p=ORIGIN)
    read = replace_struct(read, pipelines={"p": PipelineStanding(first=0)})
    records = [
        SimpleNamespace(offset=place, value=encode(one))
        for place, one in enumerate((start(P), read, trigger(P, 1, [0])))
    ]
    monkeypatch.setattr(module, "beginning_of", lambda kafka, topic: 0)
    monkeypatch.setattr(module, "committed_lists", lambda kafka, topic, at: [records[at:]])
    standing = Standing(Kafka(), Names("d", "0123456789"), {"p": 4})
    assert standing.snapshot is None
    assert standing.look()["p"].ordinal == 1 and standing.snapshot == read
