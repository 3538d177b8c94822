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
from ..model import Config, InputSettings
from ..pipelines.pipeline import PipelineSettings
from ..toml.read import Problem


def uses(pipeline: PipelineSettings, source: InputSettings | None) -> Iterator[Use]:
    """Every field that a pipeline and its input use."""
    if source is not None:
        yield from _of_input(source)
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


def _of_input(source: InputSettings) -> Iterator[Use]:
    if source.time.field is not None and source.time.format != "record":
        yield Use("input.time", source.time.field, _TIMES.get(source.time.format, "number"))
    yield from (Use("input.unit", path, "unit") for path in source.unit)


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


def parts(config: Config) -> Iterator[Problem]:
    """Settings whose field is a part of another one of the same records, or the reverse.

    All other settings must be valid.
    """
    for place, source in enumerate(config.input):
        table = ("input", place)
        used = [(table, Use(one.place[6:], *one[1:])) for one in _of_input(source)]
        for number, pipeline in enumerate(config.pipeline):
            found: Iterable[Use] = ()
            if pipeline.input == source.name:
                found = uses(pipeline, None)
            elif pipeline.input == source.attributes_of:
                found = _stated(pipeline)
            used += ((("pipeline", number), one) for one in found)
        yield from _within(used)


def _within(used: Iterable[tuple[tuple[str, int], Use]]) -> Iterator[Problem]:
    before: dict[str, str] = {}  # field -> its first setting
    for table, use in used:
        steps = f"{use.field}."
        for other, shown in before.items():
            if steps.startswith(f"{other}.") != f"{other}.".startswith(steps):
                why = (
                    f'"{use.field}" cannot be read beside "{other}" of {shown}: one is a part of '
                    "the other, and a field is a value or has parts; name one that the records have"
                )
                yield Problem.under(table, (use.place, why))
                break
        before.setdefault(use.field, f"{table[0]}[{table[1]}].{use.shown}")


def _stated(pipeline: PipelineSettings) -> Iterator[Use]:
    """Attributes of units that a pipeline uses: fields of the topic that states them."""
    for name, column in pipeline.derive.items():
        for path in (*column.compared, *filter(None, [column.attribute])):
            yield Use(f"derive.{name}", path, "scalar")
