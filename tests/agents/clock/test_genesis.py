"""Genesis: the facts that a deployment pins, and those that a worker refuses to start with.

Covers: agents/deployment/cluster/topic_specs.py, agents/worker/setup.py, agents/clock/begins.py
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock.begins import opened
from hushstream.agents.clock.ledger import FORMAT, SHARED, Ledger
from hushstream.agents.kafka.offsets import PartitionOffsets
from hushstream.agents.worker.admission import prepare
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.errors import ConfigError, EngineError, LedgerError
from hushstream.topics.config.access.secret import noise_key
from hushstream.topics.names import ledger_topic

from .deployed import SECOND, Deployed, made, topic_of, unbegun

__all__ = ["made"]  # a fixture


def test_a_deployment_that_has_begun_can_start_and_beginning_again_changes_nothing(made):
    plan = prepare(made.config())
    assert plan.names == made.names and plan.secret == noise_key(made.config())
    ledger = admin.read_ledger(made.cluster, made.name)
    assert [r.kind for r in ledger.records] == ["genesis", "pipeline"]
    topics = made.cluster.topics()
    again = admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret).begin()
    assert again == [] and made.cluster.topics() == topics
    assert admin.read_ledger(made.cluster, made.name).head == ledger.head


def test_a_pipeline_can_be_added_and_must_be_declared_first(made):
    made.toml.write_text(made.toml.read_text() + SECOND.format(name=made.name))
    assert f"{made.name}-q are not declared: run `hush topics`" in made.refused()
    made.begin()
    plan = prepare(made.config())
    assert [p.number for p in plan.deployment.pipelines] == [0, 1]


def ending(made: Deployed, begin: int) -> str:
    """A line that retires the pipeline ``begin`` days after the last boundary.

    Shortly before midnight this waits for midnight, so that the day does not change during the
    test.
    """
    if (left := 86_400 - time.time() % 86_400) < 120:
        time.sleep(left + 1)
    today = int(time.time()) // 86_400 + begin
    return f"until = {time.strftime('%Y-%m-%dT00:00:00Z', time.gmtime(today * 86_400))}"


def test_a_pipeline_is_retired_by_the_ledger_and_its_end_is_never_moved(made):
    plain = made.toml.read_text()

    def configured(more: str) -> None:
        made.toml.write_text(plain.replace('key = ["page"]', f'key = ["page"]\n{more}'))

    configured(ending(made, 0))
    with pytest.raises(LedgerError, match=f"is too early.*{ending(made, 1)[8:]}"):
        made.begin()
    assert "retired" not in [r.kind for r in prepare_plain(made, plain)]
    configured(ending(made, 2))
    assert "run `hush topics`" in made.refused()
    made.begin()
    made.begin()  # a second time, it writes nothing
    plan = prepare(made.config())
    assert [r.kind for r in plan.ledger.records] == ["genesis", "pipeline", "retired"]
    assert plan.ledger.retired[f"{made.name}-p"]["until"] == plan.deployment.pipelines[0].until
    for other in ("", ending(made, 3)):
        configured(other)
        assert "cannot be moved or taken back" in made.refused(ConfigError)
        with pytest.raises(ConfigError, match="cannot be moved"):
            made.begin()


def test_what_the_ledger_would_refuse_is_refused_before_a_topic_is_made(made):
    end = ending(made, 2)
    made.edit('key = ["page"]', f'key = ["page"]\n{end}')
    plain = made.toml.read_text()
    follower = SECOND.format(name=made.name).replace(
        'key = ["page"]', f'key = ["page"]\nfollows = "{made.name}-p"'
    )
    follower = follower.replace('length = "1d"', f'length = "1d", origin = {end[8:]}')
    made.toml.write_text(plain + follower)
    made.begin()
    made.toml.write_text(plain + follower.replace(f"{made.name}-q", f"{made.name}-r"))
    with pytest.raises(LedgerError, match=f"{made.name}-q' already follows '{made.name}-p'"):
        made.begin()
    topics = " ".join(made.cluster.topics())
    assert f"{made.name}-q." in topics and f"{made.name}-r." not in topics


def prepare_plain(made: Deployed, text: str) -> list[Any]:
    """The ledger's records, read under a configuration without an end."""
    made.toml.write_text(text)
    return list(prepare(made.config()).ledger.records)


def test_the_order_of_pipelines_in_the_file_means_nothing(made):
    first = made.toml.read_text()
    made.toml.write_text(first + SECOND.format(name=made.name))
    made.begin()
    head, own = first.split("[[pipeline]]")
    made.toml.write_text(head + SECOND.format(name=made.name) + "[[pipeline]]" + own)
    numbers = {p.name[-1]: p.number for p in prepare(made.config()).deployment.pipelines}
    assert numbers == {"p": 0, "q": 1}


@pytest.mark.parametrize("which", ["raw", "cells", "units", "changelog"])
def test_a_recreated_topic_is_refused(made, which):
    topic = topic_of(made, which)
    made.recreate(topic, made.cluster.topics()[topic])
    said = made.refused()
    assert topic in said and "deleted and created again" in said and "new deployment" in said


@pytest.mark.parametrize("which", ["cells", "units"])
def test_added_partitions_are_refused(made, which):
    topic = topic_of(made, which)
    made.grow(topic, 3)
    said = made.refused()
    assert topic in said and "3 partitions, the ledger pinned 2" in said
    assert "Kafka takes none away again" in said and "'Growing partitions'" in said
    with pytest.raises(EngineError, match="3 partitions, the ledger pinned 2"):
        made.begin()


def test_a_topic_that_is_gone_is_refused(made):
    topic = topic_of(made, "cells")
    made.delete(topic)
    said = made.refused()
    assert topic in said and "is gone" in said and "restore it" in said


@pytest.mark.parametrize(
    "old,new,path",
    [
        ("epsilon = 1.0", "epsilon = 2.0", "epsilon"),
        ('every = "6h"', 'every = "12h"', "triggers"),
        ('key = ["page"]', 'key = ["other"]', "key"),
    ],
)
def test_a_changed_configuration_is_refused_and_the_setting_is_named(made, old, new, path):
    made.edit(old, new)
    said = made.refused()
    assert path in said and "restore the old configuration" in said
    assert "for as long as the pipeline has its name" in said  # with or without an open epoch
    assert ending(made, 1) in said and f'follows = "{made.name}-p"' in said  # the lines to write
    assert f'name = "{made.name}-p-2"' in said


def test_settings_that_change_no_release_may_change(made):
    made.edit("[engine]", '[engine]\nsession_timeout = "20s"')
    prepare(made.config())


@pytest.mark.parametrize(
    "settings,named",
    [
        ({"input.events.partitioner": "murmur2"}, "partitioner"),
        ({"engine.units_partitions": 3}, "units_partitions"),
        ({"engine.cells_partitions": 3}, "cells_partitions"),
        ({"engine.release_partitions": 2}, "release_partitions"),
    ],
)
def test_what_decides_where_state_lies_is_refused_before_anything_is_made(made, settings, named):
    before = made.cluster.topics()
    text = made.toml.read_text()
    for setting, value in settings.items():
        table, name = setting.rsplit(".", 1)
        where = "[engine]" if table == "engine" else f'topic = "{made.name}-raw"'
        lines = [line for line in text.splitlines() if not line.startswith(f"{name} ")]
        text = "\n".join(lines).replace(where, f"{where}\n{name} = {json.dumps(value)}")
    made.toml.write_text(text)
    said = made.refused()
    assert named in said and "cannot change" in said
    with pytest.raises(EngineError, match="cannot change"):
        made.begin()
    assert made.cluster.topics() == before


def test_state_without_a_ledger_is_refused_and_nothing_advises_to_delete(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    state = run.folder / "state" / "worker"
    state.mkdir(parents=True)
    (state / "table").write_text("")
    said = run.refused(LedgerError)
    assert "state in" in said and "restore the ledger topic from its backup" in said
    assert "delete" not in said


def test_no_ledger_and_no_state_says_how_to_begin(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    assert "run `hush topics` to begin" in run.refused(LedgerError)


def test_a_ledger_that_is_gone_is_missed_although_there_is_no_state(made):
    """A new genesis would charge the same epochs again, in a ledger without the old charges."""
    made.delete(ledger_topic(made.name))
    said = made.refused(LedgerError)
    assert made.names_begun.begins in said and "restore the ledger from its backup" in said
    with pytest.raises(LedgerError, match="had begun"):
        admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret).begin()


def test_what_is_wrong_with_a_ledger_is_said_although_there_is_state(made):
    """A broken chain is a different error from a missing ledger."""
    state = made.folder / "state" / "worker"
    state.mkdir(parents=True)
    (state / "table").write_text("")
    made.write(ledger_topic(made.name), b'{"seq": 7}')
    said = made.refused(LedgerError)
    assert "record 2 is not a ledger record" in said and "delete" not in said


def test_a_ledger_of_another_format_is_refused(broker, unique, tmp_path):
    run = unbegun(broker, unique, tmp_path)
    run.client.create_topics([NewTopic(ledger_topic(run.name), 1, 1)])[
        ledger_topic(run.name)
    ].result(120)
    body = {"genesis": "0123456789", "deployment": run.name, "topic_ids": {}, "partitions": {}}
    run.write(ledger_topic(run.name), Ledger().next("genesis", 1, body).encode())
    said = run.refused(LedgerError)
    assert "has format 1, this version of Hushstream reads 2" in said
    with pytest.raises(LedgerError, match="format 1"):
        admin.Beginning(run.cluster, run.deployment, 1, 1, run.secret).begin()


def test_topics_raises_the_format_and_only_then_a_later_version_starts(made, monkeypatch):
    later, settled = SHARED + 1, list[str]()
    begun = admin.read_ledger(made.cluster, made.name)
    assert begun.format == FORMAT == begun.genesis["format"]
    with monkeypatch.context() as patch:
        for module in ("clock.ledger", "clock.genesis", "worker.admission"):
            patch.setattr(f"hushstream.agents.{module}.FORMAT", later)
        said = f"has format {FORMAT}, and workers of this version write {later}: stop all workers"
        assert said in made.refused()
        prepare(made.config(), role="auditor")  # it writes nothing and only compares releases
        settle = PartitionOffsets.settle

        def noted(offsets: PartitionOffsets, topic: str, seconds: float) -> None:
            settled.append(topic)
            settle(offsets, topic, seconds)

        patch.setattr(PartitionOffsets, "settle", noted)
        for _ in range(2):  # the second time writes nothing
            admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret).begin()
        kinds = [r.kind for r in prepare(made.config()).ledger.records]
        assert kinds == ["genesis", "pipeline", "format"]
        assert settled == [ledger_topic(made.name)]  # a worker that starts now can read it
    before = made.cluster.offsets.ends(ledger_topic(made.name), 1)
    assert f"reached format {later}, but this version" in made.refused()
    with pytest.raises(EngineError, match=f"reached format {later}"):
        admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret).begin()
    assert made.cluster.offsets.ends(ledger_topic(made.name), 1) == before


def test_an_input_that_does_not_exist_is_refused(made):
    made.edit(f'topic = "{made.name}-raw"', 'topic = "nowhere"')
    with pytest.raises(EngineError, match="input topic 'nowhere' does not exist"):
        admin.Beginning(made.cluster, made.deployment, 1, 1, made.secret).begin()


def test_the_first_offsets_of_an_input_are_pinned(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
):
    """A raw topic may have lost its first records long before the deployment began."""
    from confluent_kafka import TopicPartition

    made = Deployed(unique("d"), tmp_path, broker.bootstrap)
    raw = f"{made.name}-raw"
    made.client.create_topics([NewTopic(raw, 2, 1)])[raw].result(120)
    made.publish(raw, [{"n": n} for n in range(9)], 1)
    places = [TopicPartition(raw, 1, 4)]
    for future in made.client.delete_records(places).values():
        future.result(120)
    made.begin()
    plan = prepare(made.config())
    assert [plan.begin_of(plan.deployment.inputs[0], n) for n in (0, 1)] == [0, 4]
    # Offsets count earlier records, and the ledger may be public: it holds only a keyed hash.
    (body,) = plan.ledger.pipelines.values()
    assert re.fullmatch("[0-9a-f]{64}", body["begins"])
    (value,) = (m.value() for m in made.cluster.read(plan.names.begins))
    with pytest.raises(LedgerError, match="as the ledger sealed it"):
        opened([value.replace(b"4", b"3")], plan.names, plan.ledger, plan.secret)
    with pytest.raises(LedgerError, match="as the ledger sealed it"):
        opened([value], plan.names, plan.ledger, bytes(32))


def test_a_clock_made_anew_is_refused(made):
    """A new clock would fire charged triggers again: the same noise on other content."""
    made.recreate(made.names.clock, 1)
    said = made.refused()
    assert made.names.clock in said and "deleted and created again" in said
    made.delete(made.names.requests)
    assert made.names.requests in (said := made.refused()) and "is gone" in said


def test_release_topics_carry_scheduled_times_and_the_clock_those_of_the_broker(made):
    kind = "message.timestamp.type"
    (p,) = made.deployment.pipelines
    stamped = made.cluster.settings([p.release_topic, made.names.clock])
    assert stamped[p.release_topic][kind] == "CreateTime"
    assert stamped[made.names.clock][kind] == "LogAppendTime"


def test_check_finds_topics_that_are_stamped_by_the_wrong_side(made, capsys):
    command = ["check", "-c", str(made.toml), "--bootstrap", made.bootstrap, "--json"]
    assert hush.main(command, standalone_mode=False) is None
    kind = "message.timestamp.type"

    def setting(run: Deployed, topic: str) -> str:
        return str(run.cluster.settings([topic])[topic][kind])

    (p,) = made.deployment.pipelines
    for topic, wrong in ((p.release_topic, "LogAppendTime"), (made.names.clock, "CreateTime")):
        entry = ConfigEntry(kind, wrong, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        made.client.incremental_alter_configs([resource])[resource].result(120)
        made.settle(lambda _, at=(topic, wrong): setting(made, at[0]) == at[1])
    capsys.readouterr()
    assert hush.main(command, standalone_mode=False) == 4
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    failed = [f["text"] for f in found if f["level"] == "fail"]
    assert any(p.release_topic in text and kind in text for text in failed)
    assert any(made.names.clock in text and kind in text for text in failed)
