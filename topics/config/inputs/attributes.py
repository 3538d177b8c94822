"""Attributes of units: topics that state them, and settings that contradict such a column.

An attribute is the newest value that a topic states for a record's own unit. So it is the unit's
own data. Its topic must have the same partitions, partitioner and unit as the records: then one
shard sees both, and no record of another unit can change what a record counts for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....formats.events.expressions.conditions import leaves
from ..expressions.conditions import Condition, every
from ..model import Config, InputSettings
from ..pipelines.pipeline import PipelineSettings

_SAME = (
    "a unit's records and its attributes must meet at one worker: let the producers of both use "
    "the unit as the key of the record, and set partitioner to theirs"
)


def stating(config: Config, source: InputSettings) -> InputSettings | None:
    """The input whose topic states attributes of ``source``'s units; None if there is none."""
    return next((one for one in config.input if one.attributes_of == source.name), None)


def asked_of(config: Config, source: InputSettings) -> dict[str, str]:
    """The path of every attribute that an input's pipelines use, in order, with its role.

    An attribute in a key has the role "key"; one used only in conditions may be any "scalar".
    """
    columns = [
        column for pipeline in config.pipeline if pipeline.input == source.name
        for column in pipeline.derive.values()
    ]  # fmt: skip
    found = {path: "scalar" for column in columns for path in column.compared}
    found |= {column.attribute: "key" for column in columns if column.attribute is not None}
    return dict(sorted(found.items()))


def of_inputs(config: Config) -> Iterator[tuple[int, str, str]]:
    """Yield what is wrong with inputs that state attributes: place, setting, and what to do."""
    inputs = {one.name: one for one in config.input}
    for place, one in enumerate(config.input):
        if one.attributes_of is None:
            continue
        source = inputs.get(one.attributes_of)
        if source is None or source.attributes_of is not None:
            known = ", ".join(i.name for i in config.input if i.attributes_of is None)
            why = f'"{one.attributes_of}" is no input with records; there are {known or "none"}'
            yield place, "attributes_of", why
            continue
        if stating(config, source) is not one:
            why = f'"{source.name}" has attributes already: state all of them in one topic'
            yield place, "attributes_of", why
        yield from ((place, *found) for found in _of_topic(config, source, one))


def _of_topic(
    config: Config, source: InputSettings, one: InputSettings
) -> Iterator[tuple[str, str]]:
    if readers := [p.name for p in config.pipeline if p.input == one.name]:
        yield (
            "attributes_of",
            f"is not possible for an input that pipeline {readers[0]!r} reads: two protected "
            "streams are not joined, since a record would count by what others sent",
        )
    if source.partitioner == "none" or one.partitioner != source.partitioner:
        yield (
            "partitioner",
            f'is "{one.partitioner}", and that of {source.name} "{source.partitioner}": {_SAME}',
        )
    if len(one.unit) > 1:
        yield "unit", f"must be one field, the unit of {source.name}"


def _conditions(pipeline: PipelineSettings) -> Iterator[tuple[str, Sequence[Condition]]]:
    yield "where", pipeline.where
    for place, one in enumerate(pipeline.aggregate):
        yield f"aggregate.{place}.where", getattr(one, "where", ())


def objections(
    config: Config, pipeline: PipelineSettings, source: InputSettings
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a pipeline's attributes, each with what to do.

    Its own settings must be valid; ``source`` is its input.
    """
    for name, column in pipeline.derive.items():
        if not column.attributed:
            continue
        at = f"derive.{name}"
        if stating(config, source) is None:
            yield (
                f"{at}.of_unit" if column.of_unit else f"{at}.attribute",
                f"needs a topic of attributes: an [[input]] with unit, partitioner = "
                f'"{source.partitioner}" and attributes_of = "{source.name}"',
            )
        if name not in pipeline.key:
            yield at, "is an attribute, which only a column of key can be"
        for setting, where in _conditions(pipeline):
            if name in [leaf.field for leaf in leaves(every(where))]:
                yield (
                    setting,
                    f"{name} is an attribute of the unit, and a condition looks at the record "
                    f'alone: add a [[view]] of "{pipeline.name}" with this condition as where; it '
                    "keeps released rows, which costs nothing",
                )
        if pipeline.session is not None:
            yield at, "is not possible with session: a session is of several records"
