"""Topics, rights and alerts are printed without a cluster; refusals come before any change."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import yaml
from hushstream.agents.registry import subjects as registering
from hushstream.cli import topics

from ..agents.clock.deployed import Deployed, made
from ..support import deployment
from .bench import free_port, typed

__all__ = ["made"]


def test_topics_are_printed_without_a_cluster(folder):
    code, out, _ = typed("topics", "--print", "--bootstrap", f"127.0.0.1:{free_port()}")
    assert code == 0
    for word in ("hush.ledger.v1", "hush.pages.releases.v1", "hush.pages.dlq", "retention.ms=-1",
                 "cleanup.policy=compact", "transactional-id", "READ", "auditor:"):  # fmt: skip
        assert word in out
    readers = dict(zip(named := out.splitlines(), named[2:], strict=False))
    for topic, whose in (
        ("hush.owners.v1", "anyone"),
        ("hush.pages.releases.v1", "anyone"),
        ("hush.pages.latest.v1", "anyone"),
        ("hush.pages.dlq", "administrator, remover, auditor, mender"),
        ("hush.ledger.v1", "administrator, remover, worker, auditor, mender, verifier"),
    ):
        assert readers[topic].partition("readers: ")[2] == whose
    code, out, _ = typed("topics", "--print", "--json", "--bootstrap", "127.0.0.1:1")
    body = json.loads(out)
    assert set(body) == {"topics", "group", "transactional_ids", "reads", "rights"}
    assert list(body["rights"]) == [
        "administrator", "remover", "worker", "auditor", "mender", "verifier", "reader", "producer"
    ]  # fmt: skip
    assert body["reads"] == ["events"]
    internal = {t["name"]: t["internal"] for t in body["topics"]}
    public = ["hush.owners.v1", "hush.pages.releases.v1", "hush.pages.latest.v1"]
    assert [name for name, hidden in internal.items() if not hidden] == public


def test_it_says_what_the_size_of_inputs_decides_until_the_file_does(folder):
    said = "as many partitions as the largest input topic has when `hush topics` first runs"
    stated = ("--set", "engine.units_partitions=1", "--set", "engine.cells_partitions=1")
    for words in (("topics", "--print"), ("plan",)):
        out = " ".join(typed(*words)[1].split())
        assert "with 26 partitions" in out and f"{said}, at most 4: with one, 14 in all." in out
        out = " ".join(typed(*words, *stated)[1].split())
        assert "with 14 partitions" in out and said not in out
    body = json.loads(typed("plan", "--json")[1])
    assert (body["partitions"], body["least_partitions"]) == (26, 14)


def test_rights_are_printed_for_a_role_in_the_form_of_a_tool(folder):
    code, out, _ = typed("topics", "--format", "kafka-acls", "--role", "reader",
                         "--user", "reader=CN=dash", "--genesis", "0a")  # fmt: skip
    assert code == 0 and "GENESIS" not in out
    assert "--allow-principal User:CN=dash" in out and "--operation Write" not in out
    code, out, _ = typed("topics", "--format", "strimzi", "--cluster", "main")
    bodies = [body for body in yaml.safe_load_all(out) if body]
    assert {b["kind"] for b in bodies} == {"KafkaTopic", "KafkaUser"}
    assert all(b["metadata"]["labels"] == {"strimzi.io/cluster": "main"} for b in bodies)
    assert not any("GENESIS" in b["spec"].get("topicName", "") for b in bodies)
    made = ("topics", "--format", "strimzi", "--genesis", "0a", "--print")
    code, _, err = typed(*made)  # Strimzi would add partitions to those that the inputs decided
    assert code == 2 and "write the numbers that `hush topics` said into the file" in err
    stated = ("--set", "engine.units_partitions=1", "--set", "engine.cells_partitions=1")
    code, out, _ = typed(*made, *stated)
    assert any(b["spec"].get("topicName") == "hush.0a.clock" for b in yaml.safe_load_all(out) if b)
    code, _, err = typed("topics", "--user", "boss=me")
    assert code == 2 and "administrator" in err


def test_alerts_are_yaml_and_know_the_schedule(folder):
    code, out, _ = typed("alerts")
    assert code == 0 and '{pipeline="pages"}[' in out
    assert "> 32400) unless" in out  # 1.5 times six hours
    code, as_json, _ = typed("alerts", "--json")
    assert code == 0 and yaml.safe_load(out) == json.loads(as_json)


@pytest.mark.broker
def test_nothing_is_registered_before_the_ledger_has_been_verified(
    made: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry cannot forget a schema."""
    asked: list[str] = []
    for name in ("register", "verify_numbers"):
        monkeypatch.setattr(registering, name, lambda *_, name=name: asked.append(name))
    made.toml.write_text(
        f'[registry]\nurl = "http://127.0.0.1:1"\n{made.toml.read_text()}'
        'release = { encoding = "avro" }\n'
    )
    words = ("topics", "-c", str(made.toml), "--bootstrap", made.bootstrap)
    code, _, err = typed(*words)
    assert code == 4 and "differs from what the ledger declared" in err and asked == []
    key = made.folder / "hush.key"
    key.chmod(0o600)
    key.write_text(bytes(range(32)).hex())
    code, _, err = typed(*words)
    assert code == 3 and "use that key" in err and asked == []


@pytest.mark.broker
@pytest.mark.parametrize("charged", [0, 3])
@pytest.mark.parametrize("there", [False, True])
def test_whoever_makes_a_topic_of_releases_anew_is_told_what_is_gone(monkeypatch, charged, there):
    made = deployment()
    (topic,) = {p.release_topic for p in made.pipelines}
    ledger = SimpleNamespace(epochs=lambda name: charged)
    monkeypatch.setattr(topics, "read_ledger", lambda *_: ledger)
    cluster = SimpleNamespace(topics=lambda wanted: {one: 1 for one in wanted if there})
    told = list(topics._lost(cluster, made))
    assert len(told) == (charged > 0 and not there)
    assert all(topic in one and "is gone" in one for one in told)


def test_whoever_declares_is_told_what_is_doubtful(made: Deployed) -> None:
    words = ("topics", "-c", str(made.toml), "--bootstrap", made.bootstrap)
    code, _, err = typed(*words, "--set", "engine.log_level=debug")
    assert code == 0 and 'warning: engine.log_level = "debug" logs whole texts' in err
    code, out, err = typed(*words, "--set", "engine.log_level=debug", "--json")
    debug, order = json.loads(out)["warnings"]
    assert code == 0 and "debug" in debug and "warning" not in err
    assert "has 2 partitions and no partitioner is declared" in order
    assert typed(*words)[2].count("warning") == 1
    assert "warning" not in typed(*words, "--set", "input.0.partitioner=murmur2")[2]
