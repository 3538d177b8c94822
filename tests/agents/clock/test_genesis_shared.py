"""Genesis with shared topics: seats, and what a worker refuses to start with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.clock.ledger import SHARED
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError

from .deployed import SECOND, TOML, Deployed, made

__all__ = ["made"]  # a fixture


SHARING = ('name = "{name}"\n', 'name = "{name}"\nshared_topics = true\n')


@pytest.fixture
def sharing(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Deployed:
    deployed = Deployed(unique("s"), tmp_path / "sharing", broker.bootstrap)
    text = (TOML.replace(*SHARING, 1) + SECOND).format(name=deployed.name)
    deployed.toml.write_text(text)
    deployed.begin()
    return deployed


def test_pipelines_of_an_input_share_topics_and_a_later_one_gets_the_next_seat(sharing):
    names = sharing.names
    plan = prepare(sharing.config())
    assert plan.names == names and plan.ledger.format == SHARED and plan.ledger.shared
    before = sharing.cluster.topics()
    flow, log = names.flow("events"), names.changelog("flow", "events")
    assert before[flow] == before[log] == 8 and before[names.keys("events")] == 2
    internal = {t for t in before if t.startswith(names.base)}
    assert len(internal) == 7 and f"hush.{sharing.name}.events.dlq" in before
    first = sharing.toml.read_text()
    third = SECOND.format(name=sharing.name).replace(f"{sharing.name}-q", f"{sharing.name}-r")
    head, own = first.split("[[pipeline]]", 1)
    sharing.toml.write_text(f"{head}{third}[[pipeline]]{own}")
    sharing.grow(flow, 9)  # as after a run that was interrupted
    assert "are not declared" in sharing.refused()
    sharing.begin()
    later = prepare(sharing.config()).names
    assert {**later.seats, **names.seats} == later.seats
    assert later.place(later.units(f"{sharing.name}-r")) == (flow, 8)
    after = sharing.cluster.topics()
    assert after[flow] == after[log] == 12 and after[names.keys("events")] == 3
    sharing.toml.write_text(first)  # the seat stays, without a pipeline
    assert prepare(sharing.config()).names == later
    sharing.begin()
    assert sharing.cluster.topics() == after


def test_topics_are_shared_from_the_genesis_on_or_never(made, sharing):
    sharing.edit("shared_topics = true", "shared_topics = false")
    made.edit(f'name = "{made.name}"\n', f'name = "{made.name}"\nshared_topics = true\n')
    for run, here, there in ((made, "true", "without"), (sharing, "false", "with")):
        topics = run.cluster.topics()
        said = f"shared_topics is {here} here, and this deployment began {there} shared topics"
        assert said in run.refused() and "another deployment.name" in run.refused()
        with pytest.raises(EngineError, match=said):
            run.begin()
        assert run.cluster.topics() == topics


def test_a_shared_topic_that_was_made_anew_is_refused(sharing):
    flow = sharing.names.flow("events")
    sharing.recreate(flow, 8)
    assert "deleted and created again" in sharing.refused()
    sharing.recreate(flow, 2)
    assert flow in sharing.refused()
