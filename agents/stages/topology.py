"""The stages of a deployment, the topics that they read, and their construction.

Worker, replay and simulation build their stages here and nowhere else.

::

    raw ─▶ ingest ─▶ units ─▶ bound ─▶ cells ─▶ aggregate ─▶ releases

A direct pipeline has no units topic: its ingest shards send to the cells topic themselves. If there
are views, a further stage reads the release topic and writes theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...topics.names import Names
from ..clock.log import ClockLog
from ..deployment.model import Deployment, Input, Pipeline, ReleaseView
from .aggregate.secrets import Secrets
from .aggregate.stage import AggregateStage
from .bound.stage import BoundStage
from .feedback import Feedback, feedback_of
from .ingest.attributes import AttributeLog, NoAttributes
from .ingest.beside import Beside
from .ingest.schemas import NoSchemas, SchemaSource
from .ingest.stage import IngestStage
from .step import Stage
from .view.stage import ViewStage

Place = tuple[str, int]  # topic, partition

INGEST, BOUND, AGGREGATE, VIEW = "ingest", "bound", "aggregate", "view"
PUBLISH = "publish"  # in transactional ids, in place of the stage


@dataclass(frozen=True)
class StageSpec:
    """One stage of an input or of one of its pipelines; it has a shard for each partition.

    Topics and partitions are those of the cluster. Within its stage, a shard has a number, counted
    from ``first``.
    """

    stage: str  # "ingest", "bound", "aggregate" or "view"
    source: Input
    pipeline: Pipeline | None  # None for ingest, which serves all pipelines of its input
    topic: str
    partitions: int
    upstreams: int  # number of shards that send barriers to each of its shards; 0 for ingest
    changelog: str
    views: tuple[ReleaseView, ...] = ()  # views that a view stage computes
    first: int = 0  # first partition of this stage in ``topic`` and in the changelog

    @property
    def places(self) -> list[Place]:
        """The partitions that the stage reads."""
        return [(self.topic, self.first + number) for number in range(self.partitions)]


class Topology:
    """All stages of a deployment.

    Attributes:
        specs: stages in the order in which an event passes them.
    """

    def __init__(self, deployment: Deployment, names: Names) -> None:
        self._names = names
        self.specs = tuple(_specs(deployment, names))
        self._by_place = {place: spec for spec in self.specs for place in spec.places}

    def find(self, topic: str, partition: int) -> StageSpec | None:
        """Look up the stage that reads a partition; None if no configured pipeline has one.

        A shared topic keeps the seats of pipelines that are no longer configured.
        """
        return self._by_place.get((topic, partition))

    def of(self, topic: str, partition: int) -> StageSpec:
        """Look up the stage that reads a partition; `KeyError` if none does."""
        return self._by_place[topic, partition]

    def written(self, spec: StageSpec, partition: int) -> tuple[set[Place], set[Place]]:
        """List the partitions that a shard writes: internal ones, and public ones."""
        own, public = dict[str, int](), dict[str, int]()
        if spec.stage == VIEW:
            return {(spec.changelog, partition)}, {(v.release_topic, 0) for v in spec.views}
        for p in [spec.pipeline] if spec.pipeline else spec.source.pipelines:
            if spec.stage == AGGREGATE:
                own |= {self._names.selected(p.name): 1} if p.traits.feedback else {}
                topics = (p.release_topic, p.latest_topic)
                public |= {topic: p.release_partitions for topic in topics if topic}
            elif spec.stage == BOUND or p.direct:
                own[self._names.cells(p.name)] = p.cells_partitions
            else:
                own[self._names.units(p.name)] = p.units_partitions
            if spec.stage == INGEST:
                public |= {topic: 1 for topic in (p.dlq_topic, p.late_topic) if topic}
        place = self._names.place
        places = {place(topic, n) for topic, number in own.items() for n in range(number)}
        places.add((spec.changelog, partition))
        return places, {(topic, n) for topic, many in public.items() for n in range(many)}

    def topics(self, stage: str) -> list[str]:
        """List the topics that stages of one kind read and no earlier kind reads."""
        first: dict[str, str] = {}
        for spec in self.specs:
            first.setdefault(spec.topic, spec.stage)
        return [topic for topic, kind in first.items() if kind == stage]

    def transactional_id(self, spec: StageSpec, partition: int) -> str:
        """Name the transactional id of a shard; a producer that takes it fences all others."""
        return self._names.transactional_id(spec.stage, spec.topic, partition)

    def publishing_id(self, spec: StageSpec, partition: int) -> str:
        """Name the transactional id of a shard's publications; empty if it needs none.

        Steps of a view depend on what is public already.
        """
        if spec.stage != AGGREGATE:
            return ""
        return self._names.transactional_id(PUBLISH, spec.topic, partition)


def _specs(deployment: Deployment, names: Names) -> Iterator[StageSpec]:
    for source in deployment.streams:
        log = names.changelog(INGEST, source.name)
        yield StageSpec(INGEST, source, None, source.topic, source.partitions, 0, log)
        for p in source.pipelines:
            upstreams = source.partitions
            if not p.direct:
                (topic, first), (log, _) = _read(names, names.units(p.name), BOUND, p)
                many = p.units_partitions
                yield StageSpec(BOUND, source, p, topic, many, upstreams, log, first=first)
                upstreams = many
            (topic, first), (log, _) = _read(names, names.cells(p.name), AGGREGATE, p)
            many = p.cells_partitions
            yield StageSpec(AGGREGATE, source, p, topic, many, upstreams, log, first=first)
            if views := _first_views(deployment, p):
                topic, log = p.release_topic, names.changelog(VIEW, p.name)
                yield StageSpec(VIEW, source, p, topic, 1, 1, log, views)


def _read(names: Names, topic: str, stage: str, p: Pipeline) -> tuple[Place, Place]:
    """Find the first partition that a stage reads, and its changelog's, of the same number."""
    return names.place(topic), names.place(names.changelog(stage, p.name))


def _first_views(deployment: Deployment, p: Pipeline) -> tuple[ReleaseView, ...]:
    """List the views of a release topic for the first pipeline that writes it; none for others."""
    views = [v for v in deployment.views if v.source.release_topic == p.release_topic]
    writers = [one for one in deployment.pipelines if one.release_topic == p.release_topic]
    return tuple(views) if writers[0].name == p.name else ()


class StageFactory:
    """Makes the stages of one process; they share its clock log and its feedback.

    Args:
        step_records: raw records of one ingest step; None: the default.
        schemas: source of schemas by id; None: no input needs schemas.
        stated: reader of attribute topics.

    Attributes:
        feedback: feedback by pipeline, fed by the reader of the selected topics.
    """

    def __init__(
        self,
        deployment: Deployment,
        names: Names,
        secrets: Secrets,
        clock: ClockLog,
        step_records: int | None = None,
        schemas: SchemaSource | None = None,
        stated: AttributeLog | None = None,
    ) -> None:
        self._names = names
        self._secrets = secrets
        self._clock = clock
        self._step_records = step_records
        self.feedback: Mapping[str, Feedback] = feedback_of(deployment)
        self._beside = Beside(self.feedback, schemas or NoSchemas(), stated or NoAttributes())

    def make(self, spec: StageSpec, partition: int, begin: int = 0) -> Stage:
        """Make the stage of one shard, given the partition that it reads.

        ``begin`` is the first offset of the log that a view reads.
        """
        partition -= spec.first
        if spec.pipeline is None:
            return self.ingest(spec, partition)
        if spec.stage == VIEW:
            return ViewStage(spec.views, begin)
        if spec.stage == BOUND:
            return BoundStage(
                spec.pipeline, partition, self._names, spec.upstreams, self._clock, self.feedback,
                spec.source.topic,
            )  # fmt: skip
        return AggregateStage(
            spec.pipeline, partition, self._names, self._secrets, spec.upstreams, self._clock
        )

    def ingest(self, spec: StageSpec, partition: int) -> IngestStage:
        """Make the ingest stage of one shard; the offline engine reads its `clock_position`."""
        return IngestStage(
            spec.source,
            partition,
            self._names,
            self._secrets.root,
            self._clock,
            self._beside,
            self._step_records,
        )
