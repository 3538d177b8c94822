"""Rights and topics in the form that an administrator's tools read; nothing is lost or added."""

from __future__ import annotations

import shlex
from itertools import pairwise

import pytest
import yaml
from hushstream.agents.deployment.cluster.grants import (
    kafka_acls,
    missing_genesis,
    object_name,
    strimzi_topic,
    strimzi_user,
    table,
)
from hushstream.agents.deployment.cluster.rights import ROLES, UNKNOWN, Right, rights
from hushstream.agents.deployment.cluster.topic_specs import internal_topics, public_topics
from hushstream.topics.names import Names

from ....support import deployment

MADE = deployment(pipelines=("p", "q"))
NAMES = Names(MADE.name, "0123456789")
Plain = tuple[str, str, bool, str]


def plain(given: list[Right]) -> set[Plain]:
    return {(r.kind, r.name, r.prefixed, o) for r in given for o in r.operations}


def word(operation: str) -> str:
    return "".join(f"_{c}" if c.isupper() else c for c in operation).strip("_").upper()


@pytest.mark.parametrize("role", ROLES)
def test_commands_grant_exactly_the_rights(role: str) -> None:
    given = rights(role, MADE, NAMES)  # type: ignore[arg-type]
    found: set[Plain] = set()
    for line in kafka_acls("me", given).replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        assert words[0] == "kafka-acls.sh" and "--add" in words
        pairs = list(pairwise(words))
        assert ("--allow-principal", "User:me") in pairs
        prefixed = ("--resource-pattern-type", "prefixed") in pairs
        operations = [word(b) for a, b in pairs if a == "--operation"]
        named = [(a[2:], b) for a, b in pairs if a in ("--topic", "--group", "--transactional-id")]
        found |= {(kind, name, prefixed, o) for kind, name in named for o in operations}
    assert found == plain(given)


@pytest.mark.parametrize("role", ROLES)
def test_manifests_of_users_grant_exactly_the_rights(role: str) -> None:
    given = rights(role, MADE, NAMES)  # type: ignore[arg-type]
    (body,) = yaml.safe_load_all(strimzi_user("me", given, "kafka"))
    assert (body["kind"], body["metadata"]["name"]) == ("KafkaUser", "me")
    assert body["metadata"]["labels"] == {"strimzi.io/cluster": "kafka"}
    assert body["spec"]["authorization"]["type"] == "simple"
    kinds = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
    found = {
        (kinds[a["resource"]["type"]], a["resource"]["name"],
         a["resource"]["patternType"] == "prefix", word(o))
        for a in body["spec"]["authorization"]["acls"] for o in a["operations"]
    }  # fmt: skip
    assert found == plain(given)


def test_manifests_of_topics_hold_their_settings() -> None:
    specs = [*public_topics(MADE), *internal_topics(MADE, NAMES)]
    bodies = [yaml.safe_load(strimzi_topic(spec, 3, "kafka")) for spec in specs]
    assert len({body["metadata"]["name"] for body in bodies}) == len(specs)
    for spec, body in zip(specs, bodies, strict=True):
        assert body["kind"] == "KafkaTopic" and body["spec"]["topicName"] == spec.name
        assert body["spec"]["partitions"] == spec.partitions and body["spec"]["replicas"] == 3
        assert body["spec"]["config"] == dict(spec.config)
    assert "replicas" not in yaml.safe_load(strimzi_topic(specs[0], -1, "kafka"))["spec"]


def test_names_of_objects_are_what_kubernetes_takes_and_stay_apart() -> None:
    assert object_name("shop.ledger.v1") == "shop.ledger.v1"
    assert object_name("Shop") != object_name("shop") and object_name("a_b") != object_name("a-b")
    assert all(c.islower() or c.isdigit() or c in "-." for c in object_name("Shop_X.y"))


def test_names_that_a_shell_would_take_apart_are_quoted() -> None:
    text = kafka_acls("CN=me, O=x y", [Right("topic", "t", False, ("READ",), "")])
    assert "'User:CN=me, O=x y'" in text


def test_the_table_names_every_resource_and_operation() -> None:
    given = rights("worker", MADE, NAMES)
    text = table("worker", given)
    for one in given:
        assert one.name + "*" * one.prefixed in text and ", ".join(one.operations) in text


def test_a_genesis_that_is_not_known_is_noticed() -> None:
    unknown = Names(MADE.name, UNKNOWN)
    assert missing_genesis(rights("worker", MADE, unknown))
    assert not missing_genesis(rights("worker", MADE, NAMES))
    assert not missing_genesis(rights("reader", MADE, unknown))
