"""Growth: partitions that are added to a raw topic count from the next trigger on.

Only inputs whose units are re-partitioned here can grow. If the producers' partitioner is declared,
the partitions are fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....errors import EngineError
from ....topics.names import Names
from ..model import Deployment, Input


@dataclass(frozen=True)
class Growth:
    """Partitions of one raw topic that the ledger does not count yet."""

    topic: str
    changelog: str  # changelog of the shards that read it, which needs as many partitions
    before: int  # partitions that count so far
    after: int  # partitions that exist

    @property
    def layout(self) -> dict[str, int]:
        """Partitions of both topics, once they count."""
        return {self.topic: self.after, self.changelog: self.after}

    def body(self, triggers: Mapping[str, int]) -> dict[str, Any]:
        """Make the body of the ledger record, with the last triggers of pipelines of the topic."""
        return {
            "topic": self.topic,
            "changelog": self.changelog,
            "from": self.before,
            "to": self.after,
            "triggers": dict(triggers),
        }

    def proposal(self) -> str:
        """Say what to do."""
        return (
            f"topic {self.topic} has {self.after} partitions, the ledger pinned {self.before}: "
            "stop all workers, run `hush topics --grow`, which counts the added ones from the next "
            "trigger on, for ever, and start the workers again"
        )


def growth(
    source: Input,
    names: Names,
    counted: Mapping[str, Mapping[str, int]],
    fixed: Collection[str],
) -> Growth | None:
    """Find the growth of an input; None if it has not grown.

    Args:
        counted: counted partitions, by declared pipeline that reads the topic.
        fixed: those of these pipelines whose units are kept by the raw partition.

    Raises:
        EngineError: the partitions of this input decide where units are kept.
    """
    before = max((layout[source.topic] for layout in counted.values()), default=0)
    if not before or source.partitions <= before:
        return None
    if fixed or source.partitioner != "none":
        raise EngineError(
            f"topic {source.topic} has {source.partitions} partitions, the ledger pinned {before}; "
            "its producers' partitioner decides where the bound of a unit is kept, so partitions "
            "cannot be added to a running deployment, and Kafka takes none away again: begin a new "
            "one (another deployment.name), with charges of its own; docs/operations.md, 'Growing "
            "partitions', says in which order"
        )
    return Growth(source.topic, names.changelog("ingest", source.name), before, source.partitions)


def keyed(declared: Mapping[str, Any]) -> bool:
    """Whether the raw partition of a unit decides where its bound is kept."""
    return bool(declared.get("placement", {}).get("partitioner") != "none")


def refused(
    body: Mapping[str, Any], layouts: Mapping[str, Mapping[str, int]], fixed: Sequence[str]
) -> str | None:
    """Say what is wrong with the body of a growth's record; None if nothing is.

    Args:
        layouts: partitions counted before it, by declared pipeline that reads the topic.
        fixed: those of these pipelines whose units are kept by the raw partition.
    """
    topic, before, after = body["topic"], body["from"], body["to"]
    known = {layout[each] for layout in layouts.values() for each in (topic, body["changelog"])}
    if known != {before} or after <= before:
        held = ", ".join(map(str, sorted(known))) or "no"
        return f"from {before} to {after} partitions, and it had {held}"
    if fixed:
        return f"whose partitions decide where pipeline {fixed[0]!r} keeps its units"
    if set(body["triggers"]) != set(layouts) or min(body["triggers"].values()) < 0:
        return "and names the last triggers of other pipelines than those that read it"
    return None


def extended(pinned: Mapping[str, int], grown: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Compute the partitions of the topics of a declaration, including growth."""
    found = dict(pinned)
    for body in grown:
        for topic in found.keys() & {body["topic"], body["changelog"]}:
            found[topic] = max(found[topic], body["to"])
    return found


def joined(pipeline: str, grown: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Look up the last trigger before each raw partition counted; () if all always counted."""
    found: list[int] = []
    for body in grown:
        if pipeline in body["triggers"]:
            found = found or [0] * body["from"]
            found += [body["triggers"][pipeline]] * (body["to"] - len(found))
    return tuple(found)


def with_joined(deployment: Deployment, since: Mapping[str, tuple[int, ...]]) -> Deployment:
    """Give each pipeline the triggers after which raw partitions count.

    Args:
        since: last triggers before each raw partition counted, by pipeline; () if all always
            counted.
    """
    return deployment.each(lambda p: replace(p, joined=since.get(p.name, ())))
