"""Fields that the settings of a pipeline use, each with its role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....formats.events.expressions.conditions import Condition as Meant
from ....formats.events.expressions.conditions import leaves
from ....formats.events.expressions.derived import Band, Cases, TextPart
from ....formats.events.expressions.looked_up import Lookup
from ....formats.events.roles import WORDS, Use, clashes
from ..aggregates.distinct import Distinct
from ..expressions.conditions import Condition
from ..model import InputSettings
from ..pipelines.pipeline import PipelineSettings


def uses(pipeline: PipelineSettings, source: InputSettings | None) -> Iterator[Use]:
    """Every field that a pipeline and its input use."""
    if source is not None:
        if source.time.field is not None and source.time.format != "record":
            yield Use("input.time", source.time.field, _TIMES.get(source.time.format, "number"))
        yield from (Use("input.unit", path, "unit") for path in source.unit)
    for place, path in enumerate(pipeline.key):
        if path not in pipeline.derive:
            yield Use(f"key.{place}", path, "key")
    yield from _of_conditions("where", pipeline.where)
    chosen = pipeline.chosen
    for name, column in pipeline.derive.items():
        setting = f"derive.{name}"
        if name in chosen:
            yield from _leaves(setting, chosen[name].conditions)
            yield from (Use(setting, path, "number") for path in chosen[name].paths)
            continue
        derived = column.meant()
        if isinstance(derived, Band | TextPart | Lookup):
            yield Use(setting, derived.field, derived.role)
        elif isinstance(derived, Cases) and not column.of_unit:  # those read another record
            yield from _leaves(setting, derived.conditions)
    for place, aggregate in enumerate(pipeline.aggregate):
        setting = f"aggregate.{place}"
        if isinstance(aggregate, Distinct):
            if aggregate.field not in pipeline.derive:
                yield Use(setting, aggregate.field, "key")
            continue
        summed = {c.field: None for c in aggregate.columns if c.field is not None}
        yield from (Use(setting, field, "number") for field in summed if field not in chosen)
        yield from _of_conditions(f"{setting}.where", getattr(aggregate, "where", ()))
    yield from (Use(f"inputs.{name}", path, "number") for name, path in pipeline.inputs.items())
    if pipeline.sign is not None:
        yield Use("sign", pipeline.sign, "sign")


_TIMES = {"iso": "text"}


def _of_conditions(setting: str, where: Sequence[Condition]) -> Iterator[Use]:
    for place, condition in enumerate(where):
        yield from _leaves(f"{setting}.{place}", [condition.meant()])


def _leaves(setting: str, conditions: Iterable[Meant]) -> Iterator[Use]:
    return (Use(setting, leaf.field, leaf.role) for one in conditions for leaf in leaves(one))


def objections(
    pipeline: PipelineSettings, source: InputSettings | None
) -> Iterator[tuple[str, str]]:
    """Settings that use a field as another type than an earlier one, and what to do."""
    for use, other in clashes(uses(pipeline, source)):
        yield (
            use.place,
            f'"{use.field}" is {WORDS[use.role]} here, and {WORDS[other.role]} in {other.shown}: '
            "a field has one type, so every record with it would be a dead letter; ask for one "
            "type, or let the producer write two fields",
        )
