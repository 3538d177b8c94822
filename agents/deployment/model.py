"""A compiled deployment: all public facts that stages need."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from ...formats.events.decode import Decoder
from ...formats.events.expressions.conditions import Condition
from ...formats.events.expressions.derived import OfUnit
from ...formats.events.expressions.looked_up import PublicTable
from ...formats.events.fields import InputFields, NumericField, PipelineFields
from ...formats.values.codec import JSON, Encoding, ReleaseCodec
from ...mechanisms.accounting.composition import charge_of
from ...mechanisms.contract import Mechanism, Traits
from ...mechanisms.noise import fingerprint
from ...mechanisms.parts.bounds.lifetime import Cap
from ...topics.config.aggregates.contract import AnyAggregate
from ...topics.config.pipelines.schedule import Schedule
from ...topics.config.pipelines.views import Order, ViewValue
from .sharing import Charging, Purse
from .spread import BEFORE, StatePartitions

BESIDE = 1 << 20  # bytes of a record's key and headers, besides its value


@dataclass(frozen=True)
class Lifetime:
    """The most that one unit may lose over all epochs of a period, as compiled.

    Attributes:
        epsilon, delta: cap of all members together.
        period: microseconds; None: for good.
        members: names of the pipelines that share it; one alone has its own name here.
        part: f of `accounting.lifetime`: how many epochs' bounds a unit may spend in a period.
        cap: layout of what is kept of each unit.
    """

    epsilon: Fraction
    delta: Fraction
    period: int | None
    members: tuple[str, ...]
    part: Fraction
    cap: Cap


@dataclass(frozen=True)
class Sessions:
    """Sessions of a unit, which count in place of its records.

    Attributes:
        gap: longest pause within a session, microseconds.
        fields: numbers that the mechanism reads of a session.
    """

    gap: int
    fields: PipelineFields


@dataclass(frozen=True)
class Attributed:
    """Columns of a pipeline's key that are attributes of the unit.

    Attributes:
        columns: columns in order, each with its place in the key.
        sampled: fields of the pipeline where records hold the attributes themselves.
    """

    columns: tuple[tuple[int, OfUnit], ...]
    sampled: PipelineFields


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; ``number`` is its place in the ledger and never changes."""

    name: str
    number: int
    mechanism: Mechanism
    fields: PipelineFields
    windows: Schedule
    external: bool  # triggers come by request instead of the wall clock
    unit_name: str
    # the producer partitions by unit, so ingest also bounds: no units topic is needed; never with
    # sessions
    direct: bool
    delay: int  # triggers from a release to the micro-batch whose bound depends on it
    epsilon: Fraction
    delta: Fraction
    limit_epsilon: Fraction | None
    limit_delta: Fraction | None
    config: dict[str, Any]  # canonical privacy configuration, as charged
    config_hash: str
    release_topic: str
    latest_topic: str | None  # compacted; None: there is none
    release_partitions: int
    cells_partitions: int
    units_partitions: int
    max_future_skew: int  # microseconds
    late_topic: str | None
    dlq_topic: str | None  # None: bad records are dropped
    dlq_payload: str
    fail_on_error: bool
    publish_delay: int  # microseconds after the trigger
    full_rows: bool
    non_negative: bool
    confidence: float
    aggregates: tuple[AnyAggregate, ...]  # made of released columns, where keys are of the record
    in_parts: bool  # whether values are finished from parts that the mechanism releases
    until: int | None = None  # microseconds since 1970: no epoch from then on is served
    follows: str | None = None  # pipeline whose releases this one continues
    lineage: tuple[str, ...] = ()  # all that it follows, the first generation first
    own_key: str | None = None  # public name of a noise key of its own, or of the ratchet
    public_keys: tuple[bytes, ...] | None = None
    key_names: tuple[str, ...] = ()
    encoding: Encoding = "json"  # of released records, as configured
    codec: ReleaseCodec = JSON  # codec of released records, completed from the ledger
    joined: tuple[int, ...] = ()  # last trigger before each raw partition counted; (): all always
    purse: Purse | None = None  # the budget that it shares; None: it has its own
    lifetime: Lifetime | None = None  # what a unit may lose over many epochs; None: no cap
    sessions: Sessions | None = None  # None: records count
    attributed: Attributed | None = None  # columns of the key that ``fields`` lacks; None: none
    tables: tuple[PublicTable, ...] = ()  # that it looks up and topics state, each once
    shared: bool = False  # it has seats in topics that all pipelines of its input share

    @property
    def told(self) -> str:
        """The name in records that it sets aside; empty: their topic is its own."""
        return self.name if self.shared else ""

    @property
    def sampled(self) -> Pipeline:
        """The same pipeline with attributes in each record, as files hold them."""
        if self.attributed is None:
            return self
        return replace(self, fields=self.attributed.sampled, attributed=None)

    @property
    def columns(self) -> tuple[NumericField, ...]:
        """Value columns of what counts: records or sessions."""
        return (self.fields if self.sessions is None else self.sessions.fields).columns

    @cached_property
    def terms(self) -> Charging:
        """The charge of an epoch and its limits: its own, or those of the budget that it shares."""
        if self.purse is not None:
            return Charging(self.purse.one, self.purse.limit_epsilon, self.purse.limit_delta)
        one = charge_of(self.epsilon, self.delta, self.mechanism.cost())
        return Charging(one, self.limit_epsilon, self.limit_delta)

    @property
    def kind(self) -> str:
        """Name of the mechanism."""
        return str(self.config["mechanism"]["kind"])

    @property
    def traits(self) -> Traits:
        """Traits of its mechanism."""
        return self.mechanism.traits


@dataclass(frozen=True)
class Attributes:
    """The topic that states attributes of an input's units; it has the input's partitions.

    Attributes:
        fields: fields of the topic's records.
        paths: paths of the kept attributes.
        compared: kept attributes that only conditions use, so that they may be any number.
    """

    topic: str
    fields: InputFields
    paths: tuple[str, ...]
    compared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Input:
    """One raw topic and the pipelines that read it.

    Attributes:
        beside: whether it states attributes, which shards of another input read; it has none.
        attributes: topic that the shards of this input read as well; None: none.
    """

    name: str
    topic: str
    partitions: int
    fields: InputFields
    partitioner: str  # "none", "murmur2" or "crc32"
    pipelines: tuple[Pipeline, ...]
    beside: bool = False
    attributes: Attributes | None = None

    def in_json(self) -> Input:
        """The same input with values in JSON, and attributes in each record, as files hold them."""
        pipelines = tuple(p.sampled for p in self.pipelines)
        fields = replace(self.fields, format="json")
        return replace(self, fields=fields, pipelines=pipelines, attributes=None)

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder of all partitions, which meet the same keys."""
        mechanisms = [p.mechanism for p in self.pipelines]
        return Decoder(self.fields, [p.fields for p in self.pipelines], mechanisms)


class Lead(NamedTuple):
    """The part of a count's noise in the noise of a value.

    Attributes:
        base: column of the count, that of all records or of those of a condition.
        times: 1, or the middle of a sum's interval.
    """

    base: str
    times: Fraction


@dataclass(frozen=True)
class ReleaseView:
    """Arithmetic on the releases of one pipeline.

    Attributes:
        source: the pipeline; its ledger pays for all that a view shows.
        key_names: columns of the source's key that rows are grouped by.
        values: values of the view, all named.
        where, having: conditions on rows of the source and of the view; None: there are none.
        limit: most rows of a release; None: all.
        leads: part of a count's noise in each value that is a count or a sum; other noise is
            independent. None: noises that may depend on each other in any way.
        counts: name of the value that is the count of each `Lead.base`, if there is one.
        additive: values of the source that add up over keys and windows.
        floored: values of the source that cannot truly be negative.
        digest: digest of all that determines its releases, besides those of the source.
    """

    name: str
    source: Pipeline
    release_topic: str
    key_names: tuple[str, ...]
    values: tuple[ViewValue, ...]
    where: Condition | None
    having: Condition | None
    order: tuple[Order, ...]
    limit: int | None
    leads: Mapping[str, Lead | None]
    counts: Mapping[str, str]
    additive: frozenset[str]
    floored: frozenset[str]
    digest: str

    @property
    def whole(self) -> bool:
        """Whether its rows have the source's keys."""
        return self.key_names == self.source.key_names


@dataclass(frozen=True)
class Deployment:
    """All inputs; pipelines have distinct names and numbers, and views other ones."""

    name: str
    inputs: tuple[Input, ...]
    views: tuple[ReleaseView, ...] = ()
    spread: StatePartitions = BEFORE

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """All pipelines, by number."""
        every = [p for i in self.inputs for p in i.pipelines]
        return tuple(sorted(every, key=lambda p: p.number))

    @property
    def shared(self) -> bool:
        """Whether pipelines of one input share topics."""
        return any(p.shared for p in self.pipelines)

    def each(self, change: Callable[[Pipeline], Pipeline]) -> Deployment:
        """Make the same deployment with each pipeline changed by a function."""
        inputs = (replace(i, pipelines=tuple(map(change, i.pipelines))) for i in self.inputs)
        views = (replace(v, source=change(v.source)) for v in self.views)
        return replace(self, inputs=tuple(inputs), views=tuple(views))

    def with_keys(self, own: Mapping[str, bytes]) -> Deployment:
        """Give each pipeline that has a noise key of its own (32 bytes) that key's fingerprint."""
        marks = {name: fingerprint(key) for name, key in own.items()}
        return self.each(lambda p: replace(p, own_key=marks[p.name]) if p.name in marks else p)

    def fingerprints(self, secret: bytes) -> dict[str, str]:
        """List the fingerprint of each pipeline's noise key."""
        common = fingerprint(secret)
        return {p.name: p.own_key or common for p in self.pipelines}

    def only(self, names: Container[str]) -> Deployment:
        """Make the same deployment without pipelines of other names."""
        inputs = (
            replace(i, pipelines=tuple(p for p in i.pipelines if p.name in names))
            for i in self.inputs
        )
        views = tuple(v for v in self.views if v.source.name in names)
        return replace(self, inputs=tuple(inputs), views=views)

    @property
    def streams(self) -> tuple[Input, ...]:
        """Inputs with shards of their own: those that pipelines may read."""
        return tuple(one for one in self.inputs if not one.beside)

    @property
    def framed(self) -> bool:
        """Whether values of an input carry the id of their schema."""
        return any(one.fields.framed for one in self.inputs)

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """Most bytes of a record, by raw topic; no larger one is read from compressed batches."""
        found: dict[str, int] = {}
        for one in self.inputs:
            most = one.fields.max_record_bytes + BESIDE
            found[one.topic] = max(found.get(one.topic, 0), most)
        return found
