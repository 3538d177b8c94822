"""Generations: which pipeline follows which, from configuration and ledger."""

from __future__ import annotations

from hushstream.agents.deployment.cluster.topic_specs import public_topics
from hushstream.agents.deployment.compiling.lineage import (
    followed,
    generations,
    lineage,
    with_lineage,
)

from ....support import deployment

END = "until = 2019-03-02"
PAIR = {'schedule = "external"\n': ""}


def test_a_lineage_begins_with_the_first_generation() -> None:
    follows = {"b": "a", "c": "b", "x": "y"}
    assert [lineage(name, follows) for name in "abcx"] == [(), ("a",), ("a", "b"), ("y",)]


def test_the_ledger_knows_generations_that_left_the_file() -> None:
    bodies = {"a": {"config": {}}, "b": {"config": {"follows": "a"}},
              "p": {"config": {"follows": "b"}}, "alone": {"config": {}}}  # fmt: skip
    assert followed(bodies) == {"b": "a", "p": "b"}
    assert generations(bodies) == [("a", "b", "p")]
    (p,) = with_lineage(deployment(), bodies).pipelines
    assert p.lineage == ()  # in its own configuration, it follows no pipeline


def test_topics_that_are_shared_are_made_once() -> None:
    made = deployment(pipelines=("p",), more=END, swap=PAIR | {"[[pipeline]]": SECOND})
    new, old = made.pipelines
    assert (old.lineage, new.lineage) == ((), ("p",))
    assert new.windows.origin == old.until and new.release_topic == old.release_topic
    names = [spec.name for spec in public_topics(made)]
    assert len(names) == len(set(names)) and "hush.p.latest.v1" in names


SECOND = """[[pipeline]]
name = "q"
follows = "p"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "2d" }
triggers = { every = "1d" }
budget = { epsilon = 1.0, delta = 1e-4 }
[[pipeline]]"""
