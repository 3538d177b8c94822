"""Topics that a killed `hush topics` leaves behind are found and deleted, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner
from hushstream.agents.clock import genesis as admin
from hushstream.agents.deployment.cluster.topic_specs import TopicSpec, internal_topics
from hushstream.agents.kafka.access.orphans import delete_orphans, left_behind
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.worker.admission import prepare, warnings
from hushstream.cli.group import hush
from hushstream.topics.names import Names, genesis_id, genesis_of

from ...clock.deployed import Deployed, made, unbegun

__all__ = ["made"]


class Interrupted(Cluster):
    """Calls ``then`` once, right after it has created the internal topics."""

    then: Callable[[], None] | None = None

    def create(self, specs: Iterable[TopicSpec], replication: int) -> list[str]:
        specs = list(specs)
        created = super().create(specs, replication)
        then = self.then
        if then is not None and any(spec.name.endswith(".clock") for spec in specs):
            self.then = None
            then()
        return created


class Committing(Cluster):
    """Calls ``then`` before a commit, when everything has been sent."""

    then: Callable[[], object]

    def producer(self, **settings: Any) -> Any:
        made = super().producer(**settings)

        class Slow:
            def __len__(_) -> int:
                return len(made)

            def __getattr__(_, name: str) -> Any:
                if name == "commit_transaction":
                    self.then()
                return getattr(made, name)

        return Slow()


def killed() -> None:
    raise KeyboardInterrupt


def leave(run: Deployed) -> set[str]:
    """Kill a `hush topics` after it has created its topics; return their names."""
    before = run.cluster.topics().keys()
    cluster = Interrupted(run.config().kafka)
    cluster.then = killed
    with pytest.raises(KeyboardInterrupt):
        admin.Beginning(cluster, run.deployment, 1, 1, run.secret).begin()
    return {topic for topic in run.cluster.topics().keys() - before if genesis_of(topic)}


def internal(run: Deployed) -> set[str]:
    return {t for t in run.cluster.topics() if (genesis_of(t) or ("",))[0] == run.name}


def hush_topics(run: Deployed, *words: str) -> str:
    given = ["topics", *words, "-c", str(run.toml), "--bootstrap", run.bootstrap]
    done = CliRunner().invoke(hush, given)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.thorough
def test_the_runbook_finds_and_deletes_what_killed_runs_left(broker, unique, tmp_path):
    """A drill of `docs/operations.md`, orphan topics; one run died with an open transaction."""
    run = unbegun(broker, unique, tmp_path)
    first, second = leave(run), leave(run)
    assert len(first) == len(second) > 5 and not first & second
    (begins,) = [topic for topic in second if topic.endswith(".begins")]
    dead = run.producer(**{"transactional.id": genesis_id(run.name)})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(begins, b"{}", partition=0)
    dead.flush(30)
    said = hush_topics(run)
    assert said.count("which the ledger does not name") == 2 and "--delete-orphans" in said
    assert all(topic in said for topic in first | second)
    plan = prepare(run.config())
    told = [
        text for text in warnings(run.cluster, plan.deployment, plan.names) if "genesis" in text
    ]
    assert len(told) == 2 and all("--delete-orphans" in text for text in told)  # `hush check`
    mine = internal(run) - first - second
    deleted = json.loads(hush_topics(run, "--delete-orphans", "--json"))["deleted"]
    assert set(deleted) == first | second
    run.settle(lambda _: internal(run) == mine)
    assert json.loads(hush_topics(run, "--json"))["left_behind"] == []
    prepare(run.config())


def test_before_there_is_a_ledger_they_can_be_deleted_as_well(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    left = leave(run)
    assert f"{len(left)} topics deleted" in hush_topics(run, "--delete-orphans")
    run.settle(lambda topics: not left & topics.keys())
    assert "0 topics deleted" in hush_topics(run, "--delete-orphans")


def test_topics_of_others_and_those_that_hold_records_are_kept(made, broker, unique, tmp_path):
    """Topics of a lost ledger are the only trace that the deployment had begun."""
    other = unbegun(broker, lambda name: f"{made.name}x", tmp_path / "other")
    theirs = leave(other)
    names, mine = made.names, internal(made)
    made.delete(names.ledger)
    (one,) = left_behind(made.cluster, made.name, "")
    assert one.used and set(one.topics) == mine and "nothing here deletes them" in str(one)
    assert "0 topics deleted" in hush_topics(made, "--delete-orphans")
    assert internal(made) == mine and theirs <= other.cluster.topics().keys()


def test_a_run_that_has_not_committed_is_fenced_before_its_topics_go(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    slow = Committing(run.config().kafka)
    slow.then = lambda: delete_orphans(run.cluster, run.name, lambda: "")
    with pytest.raises(admin.Overtaken):
        admin.Beginning(slow, run.deployment, 1, 1, run.secret).begin()
    run.settle(lambda _: internal(run) == set())
    run.begin()
    prepare(run.config())


def test_a_run_that_begins_later_keeps_its_topics(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    left, fresh = leave(run), Names(run.name, "0123456789")
    specs = internal_topics(run.deployment, fresh)

    def meanwhile() -> str:
        """Read the ledger while another run has created topics but committed nothing."""
        run.cluster.create(specs, 1)
        return ""

    (deleted,) = delete_orphans(run.cluster, run.name, meanwhile)
    assert set(deleted.topics) == left
    run.settle(lambda _: internal(run) == {spec.name for spec in specs})


def test_the_genesis_of_the_ledger_is_no_orphan_even_where_it_holds_nothing(
    broker, unique, tmp_path
):
    run = unbegun(broker, unique, tmp_path)
    left = leave(run)
    (genesis,) = {(genesis_of(topic) or ("", ""))[1] for topic in left}
    assert delete_orphans(run.cluster, run.name, lambda: genesis) == []
    assert internal(run) == left
