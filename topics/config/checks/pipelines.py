"""Contradictions within one pipeline."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from ....mechanisms.catalogue import entries, find
from ....mechanisms.entry import Objection
from ..aggregates.distinct import Distinct
from ..aggregates.kinds import counted_in
from ..inputs import attributes, roles, sessions
from ..model import Config
from ..pipelines.budgets import BudgetSettings, SharedBudget
from ..pipelines.pipeline import PipelineSettings
from ..pipelines.views import doubled
from ..toml.read import objections_of
from .listed import of_listed
from .windows import of_schedule, of_until


def of_pipeline(config: Config, pipeline: PipelineSettings) -> list[Objection]:
    found: list[Objection] = []
    inputs = [i.name for i in config.input]
    if pipeline.input not in inputs:
        near = difflib.get_close_matches(pipeline.input, inputs, 1, 0.6)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"known inputs: {', '.join(inputs) or 'none'}"
        )
        found.append(("input", f'"{pipeline.input}" is not an input; {hint}'))
    found += of_schedule(pipeline)
    if not found:
        found += [*of_until(pipeline), *sessions.objections(pipeline)]
    found += ((f"budget.{name}", message) for name, message in of_limits(pipeline.budget))
    found += _keys(pipeline)
    found += _expressions(pipeline)
    if not found:  # else a condition may be meaningless
        source = next(one for one in config.input if one.name == pipeline.input)
        found += of_listed(pipeline)
        found += roles.objections(pipeline, source)
        found += attributes.objections(config, pipeline, source)
    units = [one.unit for one in config.input if one.name == pipeline.input]
    found += _aggregates(pipeline, units)
    found += _mechanism(pipeline)
    if pipeline.forget_keys and pipeline.noise_key_file is not None:
        found.append(("forget_keys", "has the ratchet's keys: leave out noise_key_file"))
    if pipeline.forget_keys and config.secret.ratchet is None:
        found.append(("forget_keys", "needs secret.ratchet, which `hush ratchet new` prints"))
    return found


def of_limits(budget: BudgetSettings | SharedBudget) -> Iterator[tuple[str, str]]:
    if budget.limit_epsilon is not None and budget.limit_epsilon < budget.epsilon:
        yield "limit_epsilon", "is less than epsilon, so no epoch could be charged"
    if budget.limit_delta is not None and budget.limit_delta < budget.delta:
        yield "limit_delta", "is less than delta, so no epoch could be charged"


def _keys(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    by_key = find(pipeline.mechanism.kind).grouped
    if by_key and not pipeline.budget.delta and pipeline.public_keys is None:
        yield (
            "budget.delta",
            (
                "is 0, which cannot hide a key that only one unit has: set it, usually below "
                "1 / (number of units), or list the keys in public_keys"
            ),
        )
    total = pipeline.public_keys == ((),)
    if by_key and not pipeline.key and not pipeline.inputs and not total:
        yield (
            "",
            'needs key (columns to group by), public_keys = "natural" for a total of all records, '
            "or a mechanism with its own inputs",
        )
    if pipeline.public_keys is None:
        return
    if not pipeline.public_keys:
        yield "public_keys", "is empty: leave it out if keys are unknown"
    for place, key in enumerate(pipeline.public_keys):
        if len(key) != len(pipeline.key):
            want = f"{len(pipeline.key)} columns, as key has"
            yield f"public_keys.{place}", f"has {len(key)} columns instead of {want}"
    typed = Counter(tuple((type(v), v) for v in key) for key in pipeline.public_keys)
    double = [", ".join(str(v) for _, v in key) for key, times in typed.items() if times > 1]
    if double:
        yield "public_keys", f"names {double[0]} more than once"


def _expressions(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Conditions, derived columns, and bounds for a query."""
    if pipeline.clip and pipeline.query is None:
        yield "clip", "has an effect only with query: bounds of an aggregate stand in its table"
    yield from objections_of("where", pipeline.where)
    for name, derived in pipeline.derive.items():
        found = list(derived.objections())
        if name in (*pipeline.key, counted_in(pipeline.aggregate)):
            found += [] if found else derived.of_key()
        elif name in [getattr(one, "field", None) for one in pipeline.aggregate]:
            found += [] if found else derived.of_sum()
        else:
            yield f"derive.{name}", "is no column of key, and no field of an aggregate"
        for setting, message in found:
            yield f"derive.{name}.{setting}".rstrip("."), message


def _aggregates(
    pipeline: PipelineSettings, units: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    for place, why in doubled([aggregate.label for aggregate in pipeline.aggregate]):
        yield f"aggregate.{place}", why
    for place, aggregate in enumerate(pipeline.aggregate):
        for setting, message in aggregate.objections():
            yield f"aggregate.{place}.{setting}", message
        if getattr(aggregate, "where", ()) and _in_rounds(pipeline):
            yield f"aggregate.{place}.where", _ROUNDS
    if (field := counted_in(pipeline.aggregate)) is not None:
        place = next(n for n, one in enumerate(pipeline.aggregate) if isinstance(one, Distinct))
        if (field,) in units:
            yield f"aggregate.{place}", _UNITS
        yield from ((f"aggregate.{place}", why) for why in _sets(pipeline, field))


def _in_rounds(pipeline: PipelineSettings) -> bool:
    return getattr(pipeline.mechanism.parameters, "selection", None) == "rounds"


_ROUNDS = (
    'is not possible with selection = "rounds": its noise is set for values of every record, and '
    "conditions of one value would not share it. Leave selection out, or write where of the "
    "pipeline"
)
_UNITS = (
    'is of the privacy unit itself: distinct units per key are { kind = "count" } with mechanism = '
    '{ kind = "histogram", bound = "per-key", per_key = 1 }, with less noise'
)


def _sets(pipeline: PipelineSettings, field: str) -> Iterator[str]:
    if len(pipeline.aggregate) > 1:
        yield (
            'kind = "distinct" stands alone: give other values a pipeline of their own, which '
            "may share a [[budget]] with this one"
        )
    if not find(pipeline.mechanism.kind).distinct:
        able = " or ".join(f'"{one.name}"' for one in entries().values() if one.distinct)
        yield f'kind = "distinct" needs mechanism.kind = {able}'
    if field in pipeline.key:
        yield f"{field!r} is a column of key, so each key has one value of it"
    if pipeline.sign is not None:
        yield (
            "whether others still show a deleted value would have to be known: leave out sign, "
            "and drop deletions with where, to count the values of insertions"
        )


def _mechanism(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Settings of a mechanism that would have no effect in this pipeline."""
    given = pipeline.mechanism
    for setting, message in find(given.kind).objections(given.parameters, pipeline.frame):
        yield f"mechanism.{setting}", message
