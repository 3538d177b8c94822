"""A configuration compiled to a deployment: mechanisms built, hashes taken, names resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...errors import ConfigError, ParameterError
from ...formats.events.fields import NumericField, PipelineFields
from ...formats.events.keys import encode_key
from ...formats.events.types import paths_of, tree_of
from ...mechanisms import catalogue
from ...mechanisms.contract import UNIT, Mechanism, Setting
from ...mechanisms.noise import SAMPLER_VERSION
from ...topics.config import model as config_model
from ...topics.config.aggregates.contract import COUNT, square_of
from ...topics.config.aggregates.kinds import apart, counted_in, counts_of
from ...topics.config.canonical import config_hash, privacy_settings
from ...topics.config.expressions.conditions import every
from ...topics.config.inputs.sessions import FIELDS
from ...topics.config.load import Config
from ...topics.config.pipelines import pipeline as config_pipeline
from ...topics.config.pipelines.schedule import Schedule
from ...topics.names import dead_letter_topic, late_topic, shared
from .compiling.attributes import attributes_of, input_fields, split_key
from .compiling.lifetime import with_caps
from .compiling.lineage import lineage
from .compiling.looked_up import stated_tables
from .compiling.surveys import check_period
from .compiling.views import views_of
from .model import Deployment, Input, Pipeline, Sessions
from .sharing import share_out
from .spread import StatePartitions, spread_of, with_spread

SEMANTICS = "3"
"""Version of the releases for given logs: a change of releases must change it."""


def compile_config(
    config: Config,
    partitions: Mapping[str, int] | None = None,
    numbers: Mapping[str, int] | None = None,
    spread: StatePartitions | None = None,
) -> Deployment:
    """Compile every input and pipeline.

    Args:
        partitions: number of partitions of each raw topic; 1 where the topic is not known.
        numbers: each pipeline's number in the ledger; None: the order in the file.
        spread: partitions of state, if the configuration leaves them open; None: the most.

    Raises:
        ConfigError: a mechanism refuses its parameters; the message names the pipeline.
    """
    inputs, config = [], with_spread(config, spread)
    config, purses = share_out(config, lambda p: _mechanism(config, p))
    follows = {p.name: p.follows for p in config.pipeline if p.follows is not None}
    place = {p.name: i for i, p in enumerate(config.pipeline)}
    for source in config.input:
        pipelines = tuple(
            replace(
                _pipeline(config, source, p, (numbers or place)[p.name]),
                lineage=lineage(p.name, follows),
                purse=purses.get(p.name),
            )
            for p in config.pipeline
            if p.input == source.name
        )
        pipelines = with_caps(config, pipelines)
        inputs.append(_input(config, source, pipelines, partitions or {}))
    made = {p.name: p for one in inputs for p in one.pipelines}
    views = views_of(config, made)
    return Deployment(config.deployment.name, tuple(inputs), views, spread_of(config))


def _input(
    config: Config,
    source: config_model.InputSettings,
    pipelines: Sequence[Pipeline],
    partitions: Mapping[str, int],
) -> Input:
    fields = input_fields(source)
    tree_of(paths_of(fields, [p.fields for p in pipelines]))  # mechanisms' own names of fields too
    return Input(
        source.name,
        source.topic,
        partitions.get(source.topic, 1),
        fields,
        source.partitioner,
        tuple(pipelines),
        source.attributes_of is not None,
        attributes_of(config, source, partitions),
    )


def _pipeline(
    config: Config,
    source: config_model.InputSettings,
    p: config_pipeline.PipelineSettings,
    number: int,
) -> Pipeline:
    schedule, columns, keys = Schedule.of(p), value_columns(p), _public_keys(p)
    mechanism = _mechanism(config, p)
    traits = mechanism.traits
    if schedule.arrival and "time" in traits.inputs:
        raise ConfigError(
            f"pipeline {p.name!r}: {p.mechanism.kind} has slots of event time, which need "
            "window.length; with window.horizon events belong to the trigger at which they arrive"
        )
    if schedule.calendar is not None and not traits.by_record:
        raise ConfigError(
            f"pipeline {p.name!r}: {p.mechanism.kind} needs windows of one length, with the same "
            "number of triggers: set window.length to a duration such as 31d"
        )
    _check_parts(p, mechanism)
    attributed, fields = split_key(_fields(p, mechanism, columns, keys))
    if mechanism.survey is not None:
        slot = (fields.inputs or {})["slot"]
        check_period(p.name, mechanism.survey, slot, input_fields(source), schedule)
    engine, release, (units, cells) = config.engine, p.release, spread_of(config)
    whose = (
        shared(config.deployment.name, source.name) if (config.deployment.shared_topics) else p.name
    )
    return Pipeline(
        name=p.name,
        number=number,
        mechanism=mechanism,
        fields=fields,
        windows=schedule,
        external=p.schedule == "external",
        unit_name=p.unit_name,
        direct=source.partitioner != "none" and p.session is None,
        delay=p.feedback_delay,
        epsilon=Fraction(p.budget.epsilon),
        delta=Fraction(p.budget.delta),
        limit_epsilon=p.budget.limit_epsilon,
        limit_delta=p.budget.limit_delta,
        tables=stated_tables(p),
        config=privacy_settings(config, p),
        config_hash=pinned_hash(config_hash(config, p), mechanism),
        release_topic=p.release_topic,
        latest_topic=p.latest_topic,
        release_partitions=engine.release_partitions,
        cells_partitions=1 if traits.routing == "single" else cells,
        units_partitions=units,
        max_future_skew=engine.max_future_skew,
        late_topic=late_topic(whose) if source.late == "topic" else None,
        dlq_topic=dead_letter_topic(whose) if source.on_error == "dlq" else None,
        dlq_payload=source.dlq_payload,
        fail_on_error=source.on_error == "fail",
        publish_delay=engine.publish_delay,
        full_rows=release.format == "full",
        non_negative=release.display == "non-negative",
        confidence=float(release.confidence_level),
        aggregates=p.aggregate,
        in_parts=catalogue.find(p.mechanism.kind).in_parts,
        until=p.until,
        follows=p.follows,
        own_key=config.secret.ratchet if p.forget_keys else None,
        public_keys=keys if traits.keys.of_record else None,  # others have rows of their own
        key_names=p.key,
        encoding=release.encoding,
        sessions=_sessions(p, mechanism, columns),
        attributed=attributed,
        shared=config.deployment.shared_topics,
    )


def _public_keys(p: config_pipeline.PipelineSettings) -> tuple[bytes, ...] | None:
    """Encoded public keys in canonical order; None: keys are selected."""
    return None if p.public_keys is None else tuple(sorted(encode_key(k) for k in p.public_keys))


def _mechanism(config: Config, p: config_pipeline.PipelineSettings) -> Mechanism:
    shards = spread_of(config).cells
    return build(p, Schedule.of(p), value_columns(p), _public_keys(p), shards)


def _fields(
    p: config_pipeline.PipelineSettings,
    mechanism: Mechanism,
    columns: Sequence[NumericField],
    keys: tuple[bytes, ...] | None,
) -> PipelineFields:
    """The fields read of each record. A report of a value lacks the value itself."""
    read, paths = _numbers(p, mechanism, columns)
    if p.session is not None:
        read, paths = (), {}
    counted = counted_in(p.aggregate)
    if counted is not None:  # the mechanism looks for public keys itself: a record's is longer
        keys = None
    return PipelineFields(
        p.key if counted is None else (*p.key, counted),
        read,
        p.sign,
        paths,
        None if keys is None else frozenset(keys),
        every(p.where),
        {name: derived.meant() for name, derived in p.derive.items() if name not in p.chosen},
        later=p.session is not None,
    )


def _numbers(
    p: config_pipeline.PipelineSettings, mechanism: Mechanism, columns: Sequence[NumericField]
) -> tuple[tuple[NumericField, ...], dict[str, str]]:
    """Value columns, and paths of a mechanism's inputs, of records or sessions."""
    read = tuple(columns) if mechanism.traits.columns or not mechanism.traits.inputs else ()
    if strange := [one.name for one in columns if one.chosen is not None and one not in read]:
        raise ConfigError(
            f"pipeline {p.name!r}: {p.mechanism.kind} sums a field of the record alone, and "
            f"{strange[0]!r} is derived: let the producer write it, or set mechanism.kind = "
            '"histogram"'
        )
    return read, input_paths(p, mechanism, columns)


def _sessions(
    p: config_pipeline.PipelineSettings, mechanism: Mechanism, columns: Sequence[NumericField]
) -> Sessions | None:
    if p.session is None:
        return None
    read, paths = _numbers(p, mechanism, columns)
    if strange := sorted(set(paths.values()) - set(FIELDS)):
        raise ConfigError(
            f"pipeline {p.name!r}: {p.mechanism.kind} reads {strange[0]!r}, and a session has the "
            f'numbers {" and ".join(FIELDS)}: write inputs = {{ value = "{FIELDS[0]}" }}'
        )
    return Sessions(p.session, PipelineFields((), read, inputs=paths))


def input_paths(
    p: config_pipeline.PipelineSettings, mechanism: Mechanism, columns: Sequence[NumericField]
) -> dict[str, str]:
    """Find the path of each numeric input but the event time: as configured, else its own name.

    ``value`` is the value column, and ``time`` the event time, unless configured otherwise.

    Raises:
        ConfigError: the mechanism has no such input, or does not group by key.
    """
    kind, known = p.mechanism.kind, tuple(n for n in mechanism.traits.inputs if n != UNIT)
    if strange := sorted(set(p.inputs) - set(known)):
        there_is = ", ".join(known) or "none, it groups by key"
        raise ConfigError(
            f"pipeline {p.name!r}: inputs: {kind} has no input {strange[0]!r}; there is {there_is}"
        )
    if known and p.key and not mechanism.traits.keys.of_record:
        raise ConfigError(f"pipeline {p.name!r}: key has no effect with {kind}: it has inputs")
    paths = {name: name for name in known if name != "time"}
    if "value" in paths and columns:
        paths["value"] = columns[0].field or ""
    return paths | p.inputs


def _check_parts(p: config_pipeline.PipelineSettings, mechanism: Mechanism) -> None:
    """Refuse an aggregate that is made of a column which the mechanism does not release."""
    if not catalogue.find(p.mechanism.kind).in_parts:
        return
    released = {output.name for output in mechanism.traits.outputs}
    for aggregate in p.aggregate:
        if missing := set(aggregate.parts) - released:
            raise ConfigError(
                f"pipeline {p.name!r}: aggregate {aggregate.label!r} needs {min(missing)!r}, "
                f"which {p.mechanism.kind} does not release"
            )


def value_columns(p: config_pipeline.PipelineSettings) -> list[NumericField]:
    """List the distinct numeric columns that a pipeline sums, in order of appearance.

    Raises:
        ConfigError: two aggregates of one field differ in bounds or grid.
    """
    found: dict[str, NumericField] = {}
    for column in (one for aggregate in p.aggregate for one in aggregate.columns):
        if (chosen := p.chosen.get(column.field or "")) is not None:
            column = replace(column, chosen=chosen)
        if found.setdefault(column.name, column) != column:
            raise ConfigError(
                f"pipeline {p.name!r}: field {column.field!r} has two different bounds or grids; "
                "all aggregates of one field share them"
            )
    return list(found.values())


def build(
    p: config_pipeline.PipelineSettings,
    schedule: Schedule,
    columns: Sequence[NumericField],
    keys: tuple[bytes, ...] | None,
    shards: int,
) -> Mechanism:
    """Build the mechanism of a pipeline.

    Args:
        keys: encoded public keys in canonical order; None: keys are selected.

    Raises:
        ConfigError: the mechanism refuses a setting, which the message names.
    """
    if p.mechanism.kind != catalogue.DEFAULT and any(c.where is not None for c in columns):
        raise ConfigError(
            f"pipeline {p.name!r}: aggregate: {p.mechanism.kind} has no conditions of "
            "one aggregate; write where of the pipeline, and a pipeline for each"
        )
    try:
        return catalogue.build(
            p.mechanism.kind, parameters_of(p), setting_of(p, schedule, columns, keys, shards)
        )
    except ParameterError as error:
        raise ConfigError(f"pipeline {p.name!r}: {error}") from error


def setting_of(
    p: config_pipeline.PipelineSettings,
    schedule: Schedule,
    columns: Sequence[NumericField],
    keys: tuple[bytes, ...] | None,
    shards: int,
) -> Setting:
    """Collect the pipeline's configuration around its mechanism; arguments as for `build`."""
    parts = {part for aggregate in p.aggregate for part in aggregate.parts}
    counts, place = counts_of(p.aggregate), {c.name: at for at, c in enumerate(columns)}
    return Setting(
        epsilon=Fraction(p.budget.epsilon),
        delta=Fraction(p.budget.delta),
        horizon=schedule.horizon,
        windows=schedule.per_epoch,
        columns=tuple((c.name, *(c.interval if c.name in counts else c.reach)) for c in columns),
        grids=tuple(c.grid for c in columns),
        keys=keys,
        count=COUNT in parts,
        shards=shards,
        distinct=counted_in(p.aggregate) is not None,
        squares=tuple(c.name for c in columns if square_of(c.name) in parts),
        apart=apart(columns),
        within=tuple((place[name], place[count]) for name, count in counts.items()),
        hops=schedule.hops,
        endless=schedule.endless,
        confidence=p.release.confidence_level,
    )


def parameters_of(p: config_pipeline.PipelineSettings) -> Any:
    """Complete the mechanism's parameters by the pipeline's own settings of the same things.

    Raises:
        ParameterError: the two contradict each other.
    """
    return catalogue.find(p.mechanism.kind).framed(p.mechanism.parameters, p.frame)


def pinned_hash(configured: str, mechanism: Mechanism) -> str:
    """Hash the configuration together with digests of tables that this machine computed from it.

    Factorisations are computed in floating point before they are rounded. If a machine rounds one
    entry otherwise, its hash differs from the charged one, and it stops. So does a version of this
    code that would draw or count otherwise.
    """
    factors = sorted(set(mechanism.digests()))
    versions = [SEMANTICS, SAMPLER_VERSION]
    return hashlib.sha256("|".join([configured, *versions, *factors]).encode()).hexdigest()
