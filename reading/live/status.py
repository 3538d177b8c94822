"""State of a deployment for its operators: workers, backlog, releases, budget, records set aside.

Counts of raw records and of records set aside are exact functions of raw data, and so is whether
such a share is large. So only those who may read raw topics may see what is collected here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...agents.deployment.model import Deployment, Pipeline
from ...agents.kafka.cluster import Cluster
from ...agents.kafka.groups import Member
from ...agents.kafka.set_aside import Letter, Reasons, letters, reasons
from ...agents.worker.health.losses import CAUSES
from ...agents.worker.health.namesake import Identity
from ...errors import RightError
from ...topics.config.model import Engine
from ...topics.names import Names
from .asked import Losses, losses, page_of, ready, together
from .board import Board
from .health import span

READ_SECONDS = 20.0  # for the newest releases of all pipelines
NEWEST = 10_000  # offsets of each raw partition that the share of dead letters refers to
MOST = 50_000  # newest offsets of a topic of records set aside that are counted
LITTLE = 0.1  # of a limit: less left is a warning
BAD_STATES = ("late", "stopped")
ALARMS = ("late", "misplaced")  # dead letters are counted below; a bound is meant to cut


@dataclass(frozen=True)
class Working:
    """One worker."""

    name: str  # static name, or else client id
    host: str
    since: int | None  # start, seconds since 1970
    partitions: int
    ready: bool | None  # None: its page is not reachable from here


class Untaken(NamedTuple):
    """Records of a raw topic that no worker has taken yet."""

    records: int
    oldest: int | None  # Kafka timestamp of the oldest, milliseconds since 1970
    read: Mapping[int, tuple[int, int]]  # range of the newest offsets taken, by partition


@dataclass
class Aside:
    """Records of one pipeline that were set aside."""

    dead: list[Reasons] = field(default_factory=list)  # by reason and field
    late: int | None = None  # None: they are not kept, or may not be read
    share: float | None = None  # of dead letters among the newest records; None: none yet
    whole: bool = True  # False: there may be more dead letters than were counted
    whole_late: bool = True  # the same of late records
    seen: bool = True  # False: not kept, or this user may not read them


def members(cluster: Cluster, names: Names) -> list[Member] | None:
    """List the workers of a deployment; None: this user may not describe their group."""
    try:
        return sorted(cluster.groups.members(names.group))
    except RightError:
        return None


def working(member: Member, engine: Engine) -> Working:
    """Collect the state that a worker's page shows."""
    told = Identity.read(member.client_id)
    return Working(
        member.instance or member.client_id,
        member.host if told is None else told.host,
        None if told is None else told.started,
        member.partitions,
        ready(member.host, engine.public_port),
    )


def lost(found: Iterable[Member], engine: Engine) -> Losses | None:
    """Ask the workers' operator pages; None: none is reachable from here.

    The processes of one worker are separate members but share a page.
    """
    pages = {page_of(Identity.read(one.client_id), one.host, engine) for one in found}
    told = [losses(page) for page in sorted(one for one in pages if one is not None)]
    return together(one for one in told if one is not None) if any(told) else None


def backlog(cluster: Cluster, names: Names, topic: str) -> Untaken | None:
    """Compute the workers' lag on a raw topic; None: this user may not read it."""
    try:
        number = cluster.partitions(topic, "READ")
        begins, ends = (
            cluster.offsets.begins(topic, number), cluster.offsets.ends(topic, number)
        )  # fmt: skip
        done = cluster.groups.committed(names.group, {topic: number})
        first = {n: max(done.get((topic, n), begins[n]), begins[n]) for n in range(number)}
        waiting = {n: ends[n] - first[n] for n in range(number) if ends[n] > first[n]}
        times = [_time(cluster, topic, n, first[n]) for n in waiting]
        oldest = min((t for t in times if t is not None), default=None)
    except RightError:
        return None
    read = {n: (max(begins[n], first[n] - NEWEST), first[n]) for n in range(number)}
    return Untaken(sum(waiting.values()), oldest, read)


def _time(cluster: Cluster, topic: str, partition: int, start: int) -> int | None:
    """Kafka timestamp of the first record at or after an offset."""
    found = cluster.each(topic, partition, start)
    try:
        return next((int(message.timestamp()[1]) for message in found), None)
    finally:
        found.close()  # type: ignore[attr-defined]


def aside(cluster: Cluster, pipeline: Pipeline, read: Mapping[int, tuple[int, int]]) -> Aside:
    """Count the records that a pipeline set aside.

    Args:
        read: newest offsets taken of its raw topic, which the share refers to.
    """
    found = Aside(seen=pipeline.dlq_topic is not None)
    try:
        if pipeline.dlq_topic is not None:
            dead = list(letters(cluster, pipeline.dlq_topic, 0, MOST, pipeline.told))
            found.whole, found.dead = _whole(cluster, pipeline.dlq_topic), reasons(dead)
            found.share = _share(dead, read)
        if pipeline.late_topic is not None:
            late = letters(cluster, pipeline.late_topic, 0, MOST, pipeline.told)
            found.late = sum(1 for _ in late)
            found.whole_late = _whole(cluster, pipeline.late_topic)
    except RightError:
        found.seen = False
    return found


def _whole(cluster: Cluster, topic: str) -> bool:
    """Whether a topic has no more than its newest `MOST` offsets; it may be missing."""
    if not cluster.partitions(topic, "READ"):
        return True
    (begin,), (end,) = cluster.offsets.begins(topic, 1), cluster.offsets.ends(topic, 1)
    return end - begin <= MOST


def _share(dead: Iterable[Letter], read: Mapping[int, tuple[int, int]]) -> float | None:
    total = sum(end - begin for begin, end in read.values())
    inside = {
        (one.partition, one.offset)
        for one in dead
        if one.partition in read and read[one.partition][0] <= one.offset < read[one.partition][1]
    }
    return len(inside) / total if total else None


def released(board: Board) -> dict[str, Any]:
    """Wait at most `READ_SECONDS` for the newest releases; return `Board.summary`."""
    until, version = time.monotonic() + READ_SECONDS, 0
    while True:
        told = board.summary()
        reading = [one for one in told["pipelines"] if one["health"]["state"] == "waiting"]
        if told["link"]["read"] and not any("Reading" in p["health"]["words"] for p in reading):
            return told
        if time.monotonic() > until:
            return told
        version = board.wait(version, 0.5)


@dataclass
class Status:
    """All that is known of a deployment at one time."""

    deployment: str
    now: int  # milliseconds since 1970
    link: Mapping[str, Any]  # connection, from `Board.summary`
    workers: list[Working] | None
    lost: Losses | None  # from all worker pages that answer; None: none does
    backlogs: dict[str, Untaken | None]  # by raw topic
    pipelines: list[Mapping[str, Any]]  # from `Board.summary`
    aside: dict[str, Aside]  # by pipeline
    inputs: dict[str, str]  # raw topic of each pipeline
    limits: dict[str, float | None]  # on ε of all epochs of each pipeline
    views: dict[str, str] = field(default_factory=dict)  # source of each view; not looked at
    misfit: str = ""  # why topics or configuration let no worker start; empty: they do

    @classmethod
    def of(cls, cluster: Cluster, board: Board, deployment: Deployment, names: Names,
           engine: Engine, misfit: str = "") -> Status:  # fmt: skip
        """Collect it.

        Args:
            misfit: what the check of a start says; empty: nothing.

        Raises:
            OutageError: the cluster does not answer.
        """
        told = released(board)
        inputs = {p.name: one.topic for one in deployment.inputs for p in one.pipelines}
        behind = {topic: backlog(cluster, names, topic) for topic in sorted(set(inputs.values()))}
        group, set_aside = members(cluster, names), {}
        for p in deployment.pipelines:
            found = behind[inputs[p.name]]
            set_aside[p.name] = aside(cluster, p, {} if found is None else found.read)
        return cls(
            deployment.name, told["now"], told["link"],
            None if group is None else [working(one, engine) for one in group],
            lost(group or (), engine), behind, told["pipelines"], set_aside, inputs,
            {p.name: None if p.limit_epsilon is None else float(p.limit_epsilon)
             for p in deployment.pipelines},
            {view.name: view.source.name for view in deployment.views}, misfit,
        )  # fmt: skip

    @property
    def wrong(self) -> list[str]:
        """List what is wrong and what to do about it; empty: nothing."""
        found = [] if self.link["good"] else [str(self.link["words"])]
        found += [f"No worker can start: {self.misfit}."] if self.misfit else []
        found += self._wrong_workers()
        for one in self.pipelines:
            found += _wrong_pipeline(one, self.aside.get(one["name"]), self.left(one))
            found += [
                f"{one['name']}: too many of its newest records {CAUSES[cause]}."
                for cause in ALARMS
                if self.lost is not None and (one["name"], cause) in self.lost.alarms
            ]
        return found

    def left(self, one: Mapping[str, Any]) -> float | None:
        """Compute what is left of a pipeline's limit on ε; None: it has no limit of its own."""
        limit = self.limits.get(one["name"])
        return None if limit is None else max(limit - one["budget"]["total"], 0.0)

    def late(self, name: str) -> int | None:
        """Count the late records of a pipeline; None: unknown here.

        If late records are not kept, it is the workers' count since their start.
        """
        kept = self.aside.get(name)
        if kept is not None and kept.late is not None:
            return kept.late
        return None if self.lost is None else self.lost.late.get(name)

    def _wrong_workers(self) -> list[str]:
        if self.workers is None:
            return []
        if not self.workers:
            return [] if self.misfit else ["No worker runs: start one with `hush worker`."]
        return [
            f"Worker {one.name} on {one.host} is not ready: its log says what it waits for."
            for one in self.workers
            if one.ready is False
        ]

    def body(self) -> dict[str, Any]:
        """Make a JSON object of it; times are in milliseconds since 1970."""
        return {
            "schema": "hush.status/1",
            "deployment": self.deployment,
            "now": self.now,
            "wrong": self.wrong,
            "workers": None if self.workers is None else [vars(one) for one in self.workers],
            "inputs": {
                topic: None if one is None else {"waiting": one.records, "oldest": one.oldest}
                for topic, one in self.backlogs.items()
            },
            "lost": None if self.lost is None else self.lost.body(),
            "pipelines": [self._pipeline(one) for one in self.pipelines],
            "views": self.views,
        }

    def _pipeline(self, one: Mapping[str, Any]) -> dict[str, Any]:
        budget = {"spent": one["budget"]["total"], "limit": self.limits.get(one["name"]),
                  "left": self.left(one), "refused": one["budget"]["refused"]}  # fmt: skip
        told = {"name": one["name"], "input": self.inputs.get(one["name"]),
                "health": one["health"], "budget": budget,
                "late": self.late(one["name"])}  # fmt: skip
        found = self.aside.get(one["name"])
        if found is None or not found.seen:
            return told | {"dead": None, "dead_share": None}
        dead = [{"reason": r.reason, "field": r.field, "records": r.records} for r in found.dead]
        return told | {"dead": dead, "dead_share": found.share}


def _wrong_pipeline(one: Mapping[str, Any], found: Aside | None, left: float | None) -> list[str]:
    name, told = one["name"], []
    if one["health"]["state"] in BAD_STATES:
        told.append(f"{name}: {one['health']['words']}")
    if left is not None and left < LITTLE * (left + one["budget"]["total"]):
        told.append(
            f"{name}: ε {left:.3g} of {left + one['budget']['total']:.3g} is left: let it end, or "
            "raise budget.limit_epsilon, which weakens the promise."
        )
    if found is not None and found.share is not None and found.share > LITTLE:
        worst = found.dead[0]
        where = f" {worst.field}" if worst.field else ""
        told.append(
            f"{name}: {found.share:.0%} of the newest records cannot be used, most often for "
            f"{worst.reason}{where}: see `hush dead-letters {name}`."
        )
    return told


def behind(now: int, one: Untaken) -> str:
    """Describe a backlog in words.

    >>> behind(0, Untaken(0, None, {}))
    'up to date'
    """
    if not one.records:
        return "up to date"
    age = "" if one.oldest is None else f", the oldest for {span((now - one.oldest) * 1_000)}"
    return f"{one.records:,} offsets wait{age}"
