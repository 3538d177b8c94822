"""Topics that a deployment needs: each states its purpose, and their number is known before."""

from __future__ import annotations

from pathlib import Path

from hushstream.agents.deployment.cluster.topic_specs import (
    TopicSpec,
    counted,
    internal_topics,
    public_topics,
)
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import load
from hushstream.topics.names import Names

HEAD = """
[deployment]
name = "d"
shared_topics = {shared}
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "{partitioner}"
on_error = "{on_error}"
time = {{ field = "t", format = "epoch_us" }}
"""
ONE = """
[[pipeline]]
name = "p{n}"
input = "events"
key = ["page"]
window = {{ length = "1d" }}
triggers = {{ every = "12h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
mechanism = {{ kind = "histogram" }}
release = {{ latest = {latest} }}
"""


def specs(folder: Path, pipelines: int, **settings: str) -> list[TopicSpec]:
    chosen = {"partitioner": "none", "on_error": "dlq", "latest": "true", "shared": "false"}
    chosen |= settings
    text = HEAD.format(**chosen) + "".join(ONE.format(n=n, **chosen) for n in range(pipelines))
    (folder / "hush.toml").write_text(text)
    deployment = compile_config(load(folder / "hush.toml"), {"events": 3})
    return [*public_topics(deployment), *internal_topics(deployment, Names("d", "0" * 10))]


def test_the_number_is_that_of_the_topics_and_of_their_partitions(tmp_path):
    every = specs(tmp_path, 7)
    first, *rest = counted(every)
    assert len(every) == len({spec.name for spec in every}) == 6 + 7 * 8
    total = sum(spec.partitions for spec in every)
    assert (
        first.startswith(f"62 topics with {total} partitions") and "6 for the deployment" in first
    )
    assert [line.split(":")[0].strip() for line in rest[:-1]] == [f"p{n}" for n in range(7)]
    assert all(line.split(": ")[1].startswith("8 topics, ") for line in rest[:-1])
    told = sum(int(line.split(" topics, ")[1].split()[0]) for line in rest[:-1])
    assert told == sum(spec.partitions for spec in every if spec.pipeline)


def test_each_way_to_have_fewer_does_what_it_says_and_is_told_no_more(tmp_path):
    most, advice = len(specs(tmp_path, 2)), counted(specs(tmp_path, 2))[-1]
    assert advice.startswith("Fewer: ")
    for way, saved, settings in (
        ("latest = false", 2, {"latest": "false"}),
        ('on_error = "drop"', 2, {"on_error": "drop"}),
        ("partitioner", 4, {"partitioner": "murmur2"}),
        ("shared_topics", 8, {"shared": "true"}),
    ):
        every = specs(tmp_path, 2, **settings)
        assert way in advice and most - len(every) == saved
        assert way not in counted(every)[-1]
    one = {"latest": "false", "on_error": "drop", "partitioner": "murmur2"}
    assert "shared_topics" not in "".join(counted(specs(tmp_path, 1, **one)))
    least = specs(tmp_path, 2, **one, shared="true")
    assert not counted(least)[-1].startswith("Fewer")


def test_no_two_topics_of_a_pipeline_are_for_the_same(tmp_path):
    own = [spec.purpose for spec in specs(tmp_path, 1)]
    assert len(set(own)) == len(own) and all(len(text.split()) >= 2 for text in own)


def test_further_pipelines_of_an_input_add_what_anyone_may_read_and_seats(tmp_path):
    few, many = (specs(tmp_path, number, shared="true") for number in (1, 5))
    names = {spec.name for spec in many} - {spec.name for spec in few}
    assert names == {f"hush.p{n}.{kind}.v1" for n in range(1, 5) for kind in ("releases", "latest")}
    sizes = {spec.name: spec.partitions for spec in many}
    apart = sum(spec.partitions for spec in specs(tmp_path, 5))
    assert sum(sizes.values()) == apart - 4  # the dead letters of an input go to one log
    hidden = [spec for spec in many if spec.internal]
    assert not any(spec.pipeline for spec in hidden)  # no topic that others may read is shared
    assert {spec.name for spec in hidden} & names == set()
