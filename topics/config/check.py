"""Checks for settings that are valid singly but contradict each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ..calendar import not_a_zone
from ..names import ledger_topic, reserved, set_aside
from . import learn, sharing
from .checks.connections import of_engine, of_kafka, of_registry
from .checks.pipelines import of_limits, of_pipeline
from .inputs import attributes, roles
from .model import Config, InputSettings, Time
from .pipelines import views
from .toml.read import Problem


def contradictions(config: Config) -> Iterator[Problem]:
    """Yield every contradiction of a configuration whose single values are valid."""
    found = list(_contradictions(config))
    yield from found or roles.parts(config)


def _contradictions(config: Config) -> Iterator[Problem]:
    yield from of_kafka(config.kafka)
    yield from of_registry(config)
    yield from of_engine(config.engine)
    yield from _distinct([i.name for i in config.input], "input")
    yield from _distinct([p.name for p in config.pipeline], "pipeline")
    for place, source in enumerate(config.input):
        yield from (Problem.under(("input", place), one) for one in _input(source))
    for place, setting, why in attributes.of_inputs(config):
        yield Problem(("input", place, setting), why)
    made = {learn.activity_of(p.name) for p in config.pipeline if p.learn is not None}
    for place, pipeline in enumerate(config.pipeline):
        found = of_pipeline(config, pipeline)
        if pipeline.name in made:  # it ends with the pipeline that learns, where this is told
            found = [one for one in found if one[0] != "until"]
        yield from (Problem.under(("pipeline", place), one) for one in found)
    for place, shared in enumerate(config.budget):
        yield from (Problem.under(("budget", place), one) for one in of_limits(shared))
    yield from (Problem(path, message) for path, message in sharing.contradictions(config))
    yield from learn.contradictions(config)
    yield from _topics(config)
    yield from _lookups(config)
    topics = [source.topic for source in config.input]
    partitions = config.engine.release_partitions
    yield from views.contradictions(config.view, config.pipeline, topics, partitions)


def _distinct(names: Sequence[Hashable], table: str) -> Iterator[Problem]:
    for place, name in enumerate(names):
        if name in names[:place]:
            yield Problem((table, place, "name"), f'"{name}" is the name of another {table}')


def _input(source: InputSettings) -> Iterator[tuple[str, str]]:
    yield from _time(source.time)
    if source.partitioner != "none" and len(source.unit) > 1:
        yield "partitioner", f"{source.partitioner} needs a unit of one field"
    if source.dlq_payload != "raw" and source.on_error != "dlq" and source.late != "topic":
        nothing = f'on_error = "{source.on_error}" and late = "{source.late}"'
        yield "dlq_payload", f"has no effect with {nothing}"


def _time(time: Time) -> Iterator[tuple[str, str]]:
    if time.format == "record" and time.field is not None:
        yield "time.field", 'has no effect with format = "record"'
    if time.format != "record" and time.field is None:
        yield "time", f'format = "{time.format}" needs field'
    if why := not_a_zone(time.zone):
        yield "time.zone", why
    if time.zone != "UTC" and time.format != "iso":
        yield "time.zone", 'has an effect only with format = "iso"'


def _lookups(config: Config) -> Iterator[Problem]:
    """Mistakes in topics of reference data, which the operator states to be public."""
    raw = {one.topic: f"of input {one.name}" for one in config.input}
    names = [one.name for one in config.input]
    for place, one in enumerate(config.lookup):
        if one.name in names:
            yield Problem(("lookup", place, "name"), f'"{one.name}" is the name of another table')
        names.append(one.name)
        if one.topic in raw:
            message = f'"{one.topic}" holds records {raw[one.topic]}, and a lookup must be public'
            yield Problem(("lookup", place, "topic"), message)
        elif set_aside(one.topic):
            message = f'"{one.topic}" holds records set aside, and a lookup must be public'
            yield Problem(("lookup", place, "topic"), message)
        elif kept := reserved(one.topic):
            yield Problem(("lookup", place, "topic"), f'"{one.topic}" is {kept}')


def _topics(config: Config) -> Iterator[Problem]:
    taken: dict[str, str] = {ledger_topic(config.deployment.name): "the ledger"}
    for place, source in enumerate(config.input):
        if source.topic in taken and taken[source.topic] == "the ledger":
            yield Problem(("input", place, "topic"), f'"{source.topic}" is the topic of the ledger')
        elif kept := reserved(source.topic):
            yield Problem(("input", place, "topic"), f'"{source.topic}" is {kept}')
        elif source.topic in taken:
            # A topic has one owner per partition: a second input would be charged but never read.
            message = (
                f'"{source.topic}" is read by {taken[source.topic]}: add pipelines to that one'
            )
            yield Problem(("input", place, "topic"), message)
        taken.setdefault(source.topic, f"input {source.name}")
    follows = {p.name: p.follows for p in config.pipeline}
    for place, pipeline in enumerate(config.pipeline):
        first = pipeline.name  # the generation whose topics it continues
        while (before := follows.get(first)) is not None:
            first = before
        for topic in filter(None, (pipeline.release_topic, pipeline.latest_topic)):
            owner = taken.setdefault(topic, f"pipeline {first}")
            where = ("pipeline", place, "release", "topic")
            if owner != f"pipeline {first}":
                yield Problem(where, f'"{topic}" is the topic of {owner}')
            elif kept := reserved(topic):
                yield Problem(where, f'"{topic}" is {kept}: one record there would break it')
