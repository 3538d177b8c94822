"""The minimal rights of each role on the cluster: the source of every list of rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from ....topics.names import LOADS, OWNERS, READ_GROUPS, Names
from ..model import Deployment
from .topic_specs import TRIMMED, internal_topics

Role = Literal[
    "administrator", "remover", "worker", "auditor", "mender", "verifier", "reader", "producer"
]
Kind = Literal["topic", "group", "transactional-id"]
ROLES: tuple[Role, ...] = get_args(Role)
TASKS: Mapping[Role, str] = {
    "administrator": "`hush topics`, `trigger` and `accept-loss`; holds the noise key",
    "remover": "`hush reset`",
    "worker": "`hush worker`, `check` and `status`; holds the noise key",
    "auditor": "`hush replay`, `dead-letters`, and what verifiers do; holds the noise key",
    "mender": "`hush dead-letters --replay`",
    "verifier": "`hush verify`, `live`, `ledger`, and what readers do; may know the load",
    "reader": "`hush releases`, `map`, `points`, `plot`, `sink`, and any client of releases",
    "producer": "applications that write events to the inputs, and `hush produce`",
}
UNKNOWN = "GENESIS"
"""Stands for the genesis id in a list of rights before `hush topics` has made one."""


class Right(NamedTuple):
    """Operations that a role may do on one resource of Kafka."""

    kind: Kind
    name: str  # name of the resource, or with ``prefixed`` its beginning
    prefixed: bool
    operations: tuple[str, ...]  # as Kafka calls them
    why: str

    def covers(self, topic: str) -> bool:
        """Whether the right covers a topic."""
        alike = topic.startswith(self.name) if self.prefixed else topic == self.name
        return self.kind == "topic" and alike


def rights(role: Role, deployment: Deployment, names: Names) -> list[Right]:
    """List all rights that a role needs.

    Args:
        names: names of topics; the genesis is `UNKNOWN` before `hush topics` has made one.
    """
    made = _MAKERS[role](deployment, names)
    if role == "producer":
        return made
    return [*made, Right("group", READ_GROUPS, True, ("DESCRIBE",), _GROUPS)]


_GROUPS = "clients that read name a group, and never join it"


def _administrator(deployment: Deployment, names: Names) -> list[Right]:
    """Internal topics get a genesis id that is not known beforehand, hence rights by prefix."""
    own = f"{deployment.name}."
    every = ("CREATE", "READ", "WRITE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    made = ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS")
    return [
        *_each(_raw(deployment), ("DESCRIBE", "DESCRIBE_CONFIGS"), "ids, first offsets, settings"),
        *_each(_looked_up(deployment), ("READ",), "public tables"),
        Right("topic", own, True, every, "ledger and internal topics"),
        Right("topic", OWNERS, False, ("CREATE", "READ", "WRITE"), "claims of topics"),
        *_each(_public(deployment) + _aside(deployment), made, "to make them"),
        Right("transactional-id", own, True, ("WRITE",), "genesis and declarations"),
    ]


def _remover(deployment: Deployment, names: Names) -> list[Right]:
    own = f"{deployment.name}."
    return [
        Right("topic", own, True, ("READ", "DELETE"), "ledger and internal topics"),
        Right("topic", OWNERS, False, ("READ",), "who writes which topic"),
        *_each(_public(deployment), ("DELETE",), "releases"),
        *_each(_aside(deployment), ("DELETE",), "records set aside"),
        Right("group", own, True, ("DESCRIBE",), "to see that no worker runs"),
    ]


def _worker(deployment: Deployment, names: Names) -> list[Right]:
    trimmed = [
        spec.name
        for spec in internal_topics(deployment, names)
        if TRIMMED.items() <= spec.config.items()
    ]
    return [
        *_each(_raw(deployment), ("READ", "DESCRIBE_CONFIGS"), "events"),
        Right("topic", names.ledger, False, ("READ", "WRITE", "DESCRIBE_CONFIGS"), "charges"),
        Right("topic", OWNERS, False, ("READ",), "who writes which topic"),
        *_each(_public(deployment), ("WRITE", "DESCRIBE_CONFIGS"), "releases"),
        *_each(sorted({p.release_topic for p in deployment.pipelines}), ("READ",), "what is out"),
        *_each(_aside(deployment), ("WRITE",), "records set aside"),
        Right(
            "topic", f"{names.base}.", True, ("READ", "WRITE", "DESCRIBE_CONFIGS"), "internal ones"
        ),
        *_each(trimmed, ("DELETE",), "to delete applied records"),
        Right("group", names.group, False, ("READ",), "to share partitions among workers"),
        Right("transactional-id", f"{names.base}.", True, ("WRITE",), "one for each shard"),
    ]


def _auditor(deployment: Deployment, names: Names) -> list[Right]:
    told = ("READ", "DESCRIBE_CONFIGS")
    return [
        *_each(_raw(deployment), told, "to recompute releases"),
        Right("topic", names.ledger, False, told, "charges"),
        Right("topic", OWNERS, False, ("READ",), "who writes which topic"),
        *_each(_public(deployment), told, "to compare releases"),
        *_each(_aside(deployment), ("READ",), "to compare records set aside"),
        Right("topic", f"{names.base}.", True, told, "clock, units and state"),
    ]


def _mender(deployment: Deployment, names: Names) -> list[Right]:
    dead = sorted({p.dlq_topic for p in deployment.pipelines if p.dlq_topic})
    own = f"{names.base}."
    return [
        *_each(_raw(deployment), ("WRITE",), "records that can be used now"),
        *_each(dead, ("READ", "WRITE"), "dead letters, and which were tried"),
        Right("topic", names.ledger, False, ("READ",), "the genesis"),
        *_tables(deployment, names),
        Right("group", own, True, ("READ",), "how far dead letters were tried"),
        Right("transactional-id", own, True, ("WRITE",), "to send each at most once"),
    ]


def _verifier(deployment: Deployment, names: Names) -> list[Right]:
    """The ledger tells of load: the markers of its transactions bear the moment."""
    charges = Right("topic", names.ledger, False, ("READ",), "charges and declarations")
    return [*_reader(deployment, names), charges, *_tables(deployment, names)]


def _reader(deployment: Deployment, names: Names) -> list[Right]:
    return [
        *_each(_public(deployment), ("READ",), "releases"),
        Right("topic", OWNERS, False, ("READ",), "schemas of releases"),
    ]


def _producer(deployment: Deployment, names: Names) -> list[Right]:
    loads = [f"{LOADS}.{topic}." for topic in _raw(deployment)]
    why = "`hush produce`: how far a file is written"
    return [
        *_each(_raw(deployment), ("WRITE",), "events"),
        *(Right("group", name, True, ("READ",), why) for name in loads),
        *(Right("transactional-id", name, True, ("WRITE",), why) for name in loads),
    ]


_MAKERS = {
    "administrator": _administrator,
    "remover": _remover,
    "worker": _worker,
    "auditor": _auditor,
    "mender": _mender,
    "verifier": _verifier,
    "reader": _reader,
    "producer": _producer,
}


def _each(topics: Iterable[str], operations: tuple[str, ...], why: str) -> list[Right]:
    return [Right("topic", topic, False, operations, why) for topic in topics]


def _raw(deployment: Deployment) -> list[str]:
    return sorted({source.topic for source in deployment.inputs})


def _looked_up(deployment: Deployment) -> list[str]:
    made = (table.origin for p in deployment.pipelines for table in p.tables)
    return sorted({origin.topic for origin in made if origin is not None})


def _tables(deployment: Deployment, names: Names) -> list[Right]:
    return _each([names.tables] if _looked_up(deployment) else [], ("READ",), "public tables")


def _public(deployment: Deployment) -> list[str]:
    named = ((p.release_topic, p.latest_topic) for p in deployment.pipelines)
    views = {v.release_topic for v in deployment.views}
    return sorted(views | {topic for topics in named for topic in topics if topic})


def _aside(deployment: Deployment) -> list[str]:
    named = ((p.dlq_topic, p.late_topic) for p in deployment.pipelines)
    return sorted({topic for topics in named for topic in topics if topic})


def wanted(found: Iterable[Right], topics: Iterable[str]) -> dict[str, list[str]]:
    """Collect the operations that rights allow on topics.

    Returns:
        The operations on each topic, in Kafka's words and without those on which there is no right.
    """
    given: dict[str, list[str]] = {}
    for topic in topics:
        operations = [o for one in found if one.covers(topic) for o in one.operations]
        if operations:
            given[topic] = list(dict.fromkeys(operations))
    return given


def reached(deployment: Deployment) -> str:
    """Say which foreign topics the administrator's rights by prefix cover.

    All other roles have a genesis id in their prefixes.
    """
    own = f"{deployment.name}."
    found = [f"the input {topic}" for topic in _raw(deployment) if topic.startswith(own)]
    if OWNERS.startswith(own):
        found.append("the topics of every deployment of the cluster")
    return " and ".join(found)
