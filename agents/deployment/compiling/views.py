"""Views compiled: what each value is made of, and how the noises of two values depend."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction

import msgspec

from ....errors import ConfigError
from ....topics.config.aggregates.contract import COUNT, sum_of
from ....topics.config.aggregates.numbers import Sum
from ....topics.config.aggregates.partial import Count
from ....topics.config.expressions.conditions import every, pinned
from ....topics.config.model import Config
from ....topics.config.pipelines.pipeline import PipelineSettings
from ....topics.config.pipelines.views import ViewSettings, ViewValue, additive, objections
from ..model import Lead, Pipeline, ReleaseView
from ..published.shapes import floored, value_names

ARITHMETIC, CORRECTED = "1", "2"
"""Versions of what a view makes of the same releases: a change of its bytes must change it."""


def views_of(config: Config, pipelines: Mapping[str, Pipeline]) -> tuple[ReleaseView, ...]:
    """Compile the views of pipelines that are there.

    Raises:
        ConfigError: a view names a value that its source does not release, or adds up values that
            do not add up.
    """
    settings = {p.name: p for p in config.pipeline}
    known = [view for view in config.view if view.source in pipelines]
    return tuple(_view(view, settings[view.source], pipelines[view.source]) for view in known)


def _view(view: ViewSettings, declared: PipelineSettings, source: Pipeline) -> ReleaseView:
    if not source.traits.keys.of_record:
        rule = f"{source.kind} releases cells of a space: read them with `hush map`"
        raise ConfigError(f"view {view.name!r}: source: {rule}")
    for setting, message in objections(view, declared, value_names(source)):
        raise ConfigError(f"view {view.name!r}: {setting}: {message}")
    released = value_names(source)
    values = view.values or tuple(ViewValue(of=name) for name in released)
    leads, added = _leads(source), additive(declared)
    counts = {one.parts[0]: one.label for one in reversed(source.aggregates)
              if isinstance(one, Count) and one.label in added}  # fmt: skip
    told = {
        "arithmetic": CORRECTED if _corrected(values, leads, added, counts) else ARITHMETIC,
        "source": source.name,
        "key": list(view.key if view.key is not None else source.key_names),
        "values": [asdict(one) for one in values],
        "where": pinned(view.where),
        "having": pinned(view.having),
        "order": [asdict(one) for one in view.order],
        "limit": view.limit,
    }
    canonical = msgspec.json.encode(told, enc_hook=str, order="deterministic")
    return ReleaseView(
        name=view.name,
        source=source,
        release_topic=view.release_topic,
        key_names=tuple(view.key if view.key is not None else source.key_names),
        values=values,
        where=every(view.where),
        having=every(view.having),
        order=view.order,
        limit=view.limit,
        leads=leads,
        counts=counts,
        additive=added,
        floored=floored(source),
        digest=hashlib.sha256(canonical).hexdigest(),
    )


def _corrected(
    values: Sequence[ViewValue],
    leads: Mapping[str, Lead | None],
    added: Collection[str],
    counts: Mapping[str, str],
) -> bool:
    """Whether this view took something else for the count once: a sum around 1 that stood first."""
    taken = {
        lead.base: name
        for name, lead in reversed(list(leads.items()))
        if lead is not None and lead.times == 1 and name in added
    }
    return taken != counts and any(one.kind == "ratio" for one in values)


def _leads(p: Pipeline) -> dict[str, Lead | None]:
    """Find how far the noise of a count is in that of each value; see `ReleaseView.leads`.

    A histogram takes sums around the middle of their interval, and the noisy count of the same
    records moves them back.
    """
    found: dict[str, Lead | None] = dict.fromkeys(value_names(p))
    if not p.in_parts:
        return found
    columns = getattr(p.mechanism, "summed", ())
    made = {c.name: c for c in columns}
    for one in p.aggregates:
        if isinstance(one, Count):
            found[one.label] = Lead(one.parts[0], Fraction(1))
        elif isinstance(one, Sum) and (column := one.columns[0]).name in made:
            of = made[column.name]
            count = COUNT if of.counter is None else sum_of(columns[of.counter].name)
            found[one.label] = Lead(count, of.middle * column.grid)
    return found
