"""The name of a worker in its group: a restart is cheap if the worker reads the same topics."""

from __future__ import annotations

from hushstream.agents.stages.topology import Topology
from hushstream.agents.worker.agents import heartbeat_seconds, instance_of

from ...support import NAMES, deployment


def test_a_worker_that_reads_other_topics_is_another_member() -> None:
    """For a known member, the group would keep the old assignment and assign no new topics."""

    def named(member: str, *pipelines: str, cells: int = 2) -> str | None:
        specs = Topology(deployment(pipelines=pipelines, cells=cells), NAMES).specs
        return instance_of(member, specs, NAMES.clock)

    assert named("", "p") is None
    name = named("one", "p")
    assert name is not None and name.startswith("one-") and name == named("one", "p")
    others = {
        named("one", "p", "q"),
        named("one", "q"),
        named("one", "p", cells=3),
        named("two", "p"),
    }
    assert len(others) == 4 and name not in others


def test_a_member_learns_of_a_rebalance_soon_however_patient_its_group_is() -> None:
    """A rebalance waits for the last member to learn of it."""
    assert [heartbeat_seconds(session) for session in (1.0, 2.0, 10.0, 1800.0)] == [
        0.3, 0.4, 0.5, 0.5,
    ]  # fmt: skip
