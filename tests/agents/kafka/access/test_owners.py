"""Whoever writes a release topic owns it; a second deployment sees that before it has written."""

from __future__ import annotations

import pytest
from hushstream.agents.kafka.access import owners
from hushstream.agents.worker.admission import prepare
from hushstream.errors import EngineError
from hushstream.topics.names import OWNERS
from hushstream.topics.records import encode

from ...clock.test_genesis import Deployed, made, unbegun

__all__ = ["made"]


@pytest.fixture
def other(made, broker, unique, tmp_path) -> Deployed:
    """Another deployment with a pipeline of the same name."""
    run = unbegun(broker, lambda name: unique(f"{name}2"), tmp_path / "other")
    run.toml.write_text(run.toml.read_text().replace(f"{run.name}-p", f"{made.name}-p"))
    return run


def test_two_deployments_cannot_share_a_release_topic(made, other):
    with pytest.raises(EngineError, match=f"is written by deployment '{made.name}'"):
        other.begin()
    own = [topic for topic in other.cluster.topics() if topic.startswith(f"{other.name}.")]
    assert own == []  # nothing was made
    prepare(made.config())
    made.begin()  # safe to repeat


@pytest.mark.parametrize("shared", ["dead letters", "late records"])
def test_nor_topics_of_what_is_set_aside(made, other, shared):
    if shared == "late records":
        for run in (made, other):
            run.edit('unit = "user"', 'unit = "user"\non_error = "drop"\nlate = "topic"')
        made.begin()
    other.toml.write_text(other.toml.read_text() + f'release = {{ topic = "{other.name}-out" }}\n')
    kind = "dlq" if shared == "dead letters" else "late"
    with pytest.raises(EngineError, match=rf"{made.name}-p\.{kind} is written by deployment"):
        other.begin()


def test_a_deployment_with_names_of_its_own_is_let_in(made, other):
    other.edit('unit = "user"', 'unit = "user"\non_error = "drop"')
    other.toml.write_text(other.toml.read_text() + f'release = {{ topic = "{other.name}-out" }}\n')
    other.begin()
    prepare(other.config())
    prepare(made.config())


def test_the_first_claim_counts_and_nonsense_claims_nothing(made):
    topic = made.deployment.pipelines[0].release_topic
    identity = made.cluster.ids([topic])[topic]
    later = encode(owners.Claim(topic, identity, "later"))
    made.write(OWNERS, b"", b"{", b'{"topic": 1}', later)
    prepare(made.config())
    made.recreate(topic, 1)
    with pytest.raises(EngineError, match="without `hush topics`"):
        prepare(made.config())
    made.begin()  # claims the new one
    prepare(made.config())
