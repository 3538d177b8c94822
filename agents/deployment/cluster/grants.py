"""Rights and topics in the formats of administrators' tools: a table, `kafka-acls`, Strimzi."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .rights import TASKS, UNKNOWN, Right, Role
from .topic_specs import TopicSpec

API = "kafka.strimzi.io/v1beta2"
CLUSTER = "kafka"
STRIMZI_KINDS = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


def table(role: Role, given: Sequence[Right]) -> str:
    """List the rights of a role for people, one per line."""
    lines = [f"{role}: {TASKS[role]}"]
    for one in given:
        name = f"{one.name}*" if one.prefixed else one.name
        lines.append(f"  {one.kind:<16} {name}")
        lines.append(f"  {'':<16} {', '.join(one.operations)}  ({one.why})")
    return "\n".join(lines)


def kafka_acls(user: str, given: Sequence[Right]) -> str:
    """Commands of Kafka's own tool; ``$BOOTSTRAP`` and ``$ADMIN`` are the administrator's.

    Rights with the same operations are given by one command.
    """
    alike: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for one in given:
        alike.setdefault((one.kind, one.prefixed, one.operations), []).append(one.name)
    start = 'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" --add'
    lines = []
    for (kind, prefixed, operations), names in alike.items():
        words = [f"--allow-principal {shlex.quote(f'User:{user}')}"]
        words += [f"--operation {operation}" for operation in map(_joined, operations)]
        words += [f"--{kind} {shlex.quote(name)}" for name in names]
        words += ["--resource-pattern-type prefixed"] if prefixed else []
        lines.append(" \\\n    ".join([start, *words]))
    return "\n".join(lines)


def _joined(operation: str) -> str:
    """An operation as Kafka's tools and Strimzi write it: DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.split("_"))


def strimzi_user(user: str, given: Sequence[Right], cluster: str) -> str:
    """Make a ``KafkaUser`` manifest with exactly these rights and sign-in by SCRAM-SHA-512."""
    acls = [
        {
            "resource": {
                "type": STRIMZI_KINDS[one.kind],
                "name": one.name,
                "patternType": "prefix" if one.prefixed else "literal",
            },
            "operations": [_joined(operation) for operation in one.operations],
        }
        for one in given
    ]
    spec = {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": acls},
    }
    return _manifest("KafkaUser", object_name(user), cluster, spec)


def strimzi_topic(spec: TopicSpec, replicas: int, cluster: str) -> str:
    """A ``KafkaTopic`` manifest.

    Args:
        replicas: replicas of each partition; -1 is the cluster's default.
        cluster: name of the ``Kafka`` resource.
    """
    body: dict[str, Any] = {"topicName": spec.name, "partitions": spec.partitions}
    if replicas > 0:
        body["replicas"] = replicas
    body["config"] = dict(sorted(spec.config.items()))
    return _manifest("KafkaTopic", object_name(spec.name), cluster, body)


def object_name(name: str) -> str:
    """Make a name that Kubernetes accepts; one that had to change carries a digest of the old one.

    >>> object_name("shop.ledger.v1")
    'shop.ledger.v1'
    >>> object_name("Shop_2.x")
    'shop-2.x-b8ca6b'
    """
    made = re.sub(r"[^a-z0-9.-]", "-", name.lower()).strip(".-")
    if made == name:
        return made
    return f"{made}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _manifest(kind: str, name: str, cluster: str, spec: Mapping[str, Any]) -> str:
    body = {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": cluster}},
        "spec": spec,
    }
    return "---\n" + "\n".join(_yaml(body)) + "\n"


def _yaml(value: Any, indent: str = "") -> Iterable[str]:
    """Lines of YAML; texts are quoted as in JSON."""
    for name, one in value.items():
        label = f"{indent}{name}:"
        if isinstance(one, Mapping):
            yield label
            yield from _yaml(one, indent + "  ")
        elif isinstance(one, list) and one and isinstance(one[0], Mapping):
            yield label
            for item in one:
                first, *rest = _yaml(item, indent + "    ")
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{label} {json.dumps(one)}"


def missing_genesis(given: Iterable[Right]) -> bool:
    """Whether rights name a genesis id that is not known yet."""
    return any(f".{UNKNOWN}" in one.name for one in given)
