"""Views compiled: what each value is made of, and how the noises of two values depend."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from fractions import Fraction

import msgspec

from ...errors import ConfigError
from ...formats.events.expressions.conditions import leaves
from ...topics.config.aggregates import Count, Sum
from ...topics.config.expressions.conditions import every, pinned
from ...topics.config.model import Config
from ...topics.config.views import PARTS, ViewSettings, ViewValue, adds
from .model import Pipeline, ReleaseView
from .shapes import floored, value_names

ARITHMETIC = "1"
"""Version of what a view makes of the same releases: a change of its bytes must change it."""


def views_of(config: Config, pipelines: Mapping[str, Pipeline]) -> tuple[ReleaseView, ...]:
    """Compile the views of pipelines that are there.

    Raises:
        ConfigError: a view names a value that its source does not release, or adds up values that
            do not add up.
    """
    known = [view for view in config.view if view.source in pipelines]
    return tuple(_view(view, pipelines[view.source]) for view in known)


def _view(view: ViewSettings, source: Pipeline) -> ReleaseView:
    for message in _objections(view, source):
        raise ConfigError(f"view {view.name!r}: {message}")
    released = value_names(source)
    values = view.values or tuple(ViewValue(of=name) for name in released)
    told = {
        "arithmetic": ARITHMETIC,
        "source": source.name,
        "key": list(view.key if view.key is not None else source.key_names),
        "values": [asdict(one) for one in values],
        "where": pinned(view.where),
        "having": pinned(view.having),
        "order": [asdict(one) for one in view.order],
        "limit": view.limit,
    }
    canonical = msgspec.json.encode(told, enc_hook=str, order="deterministic")
    additive = source.aggregates if source.mechanism.in_parts else ()
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
        leads=_leads(source),
        additive=frozenset(one.label for one in additive if adds(one)),
        floored=floored(source),
        digest=hashlib.sha256(canonical).hexdigest(),
    )


def _leads(p: Pipeline) -> dict[str, Fraction | None]:
    """Find how far the noise of the count is in that of each value; see `ReleaseView.leads`.

    A histogram takes sums around the middle of their interval, and the noisy count moves them back.
    """
    found: dict[str, Fraction | None] = dict.fromkeys(value_names(p))
    if not p.mechanism.in_parts:
        return found
    middles = {c.name: c.middle for c in getattr(p.mechanism, "summed", ())}
    for one in p.aggregates:
        if isinstance(one, Count):
            found[one.label] = Fraction(0 if one.where else 1)
        elif isinstance(one, Sum) and (column := one.columns[0]).name in middles:
            found[one.label] = middles[column.name] * column.grid
    return found


def _objections(view: ViewSettings, source: Pipeline) -> Iterator[str]:
    """Mistakes that show once the source is compiled."""
    if not source.mechanism.keys.of_record:
        yield f"source: {source.kind} releases cells of a space: read them with `hush map`"
        return
    released = value_names(source)
    values = view.values or tuple(ViewValue(of=name) for name in released)
    for place, one in enumerate(values):
        for name in filter(None, (one.of, one.over)):
            if name not in released:
                yield f"values[{place}]: {_hint(name, released)}"
    additive = {a.label for a in source.aggregates if source.mechanism.in_parts and adds(a)}
    fewer = view.key is not None and set(view.key) != set(source.key_names)
    for one in values:
        summed = fewer or one.kind == "running"
        for name in filter(None, (one.of, one.over)):
            if summed and name in released and name not in additive:
                over = "windows" if one.kind == "running" else "keys"
                yield f"{name} of several {over} is not the sum of theirs: add counts and sums up"
    columns = [*(view.key if view.key is not None else source.key_names)]
    shown = [name for name in released if not fewer or name in additive]
    columns += [n + part for n in (*shown, *(v.label for v in values)) for part in PARTS]
    finer = [*source.key_names, *(n + part for n in released for part in PARTS)]
    for setting, given, there in (
        ("where", every(view.where), finer), ("having", every(view.having), columns),
    ):  # fmt: skip
        for leaf in leaves(given):
            if leaf.field not in there:
                yield f"{setting}: {_hint(leaf.field, there)}"
    for order in view.order:
        if order.by not in columns:
            yield f"order: {_hint(order.by, columns)}"


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    plain = [one for one in known if not one.endswith(PARTS[1:])]
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(plain)}"
    return f"{name!r} is not released; {hint}"
