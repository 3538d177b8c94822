"""Views: arithmetic on the releases of one pipeline, which costs nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from ....mechanisms.catalogue import find
from ...names import latest_topic, releases_topic
from ..aggregates.numbers import Sum
from ..aggregates.partial import Count
from ..expressions.conditions import Condition
from ..toml.read import Problem, objections_of
from ..toml.values import Name, Paths, TopicName, ValueName, within
from .pipeline import PipelineSettings

MOST = 100_000
"""Most rows per release of a view with a limit, and most windows that a value looks back."""
PARTS = ("", "_stddev", "_low", "_high")
"""Suffixes of a value that a condition or an order may use, as in columns of `hush releases`."""
FIXED = (
    "release_id", "pipeline", "window_start", "window_end", "trigger", "released", "final",
)  # fmt: skip
"""Columns that every table of releases has."""

_HISTORY = ("lag", "change", "running")
_ARITHMETIC = ("ratio", "change", "running")
_NO_SUM = "is not a count or sum of a histogram without debias: only their errors combine"
_TAKES = {
    "value": (), "ratio": ("over",), "lag": ("windows",), "change": ("windows",),
    "running": ("windows",),
}  # fmt: skip


@dataclass(frozen=True)
class ViewValue:
    """One value of a view.

    Attributes:
        kind: `value` passes it on (where `key` leaves columns out, the sum over what they were);
            `ratio` divides it by `over`; `lag` is the same key's value some windows before, null
            where that window did not release it; `change` is the difference to that; `running` is
            the sum over windows, this one included.
        of: a value of the source.
        over: the value that a `ratio` is divided by.
        windows: number of windows: how many before with `lag` and `change`, default 1; how many are
            added up with `running`, default: all.
        name: name of the value in releases; default: made of the kind and `of`.
    """

    of: str
    kind: Literal["value", "ratio", "lag", "change", "running"] = "value"
    over: str | None = None
    windows: Annotated[int, within(1, MOST)] | None = None
    name: ValueName | None = None

    @property
    def label(self) -> str:
        """Name of the value in releases."""
        if self.name is not None or self.kind == "value":
            return self.name or self.of
        return f"{self.of}_per_{self.over}" if self.kind == "ratio" else f"{self.kind}_{self.of}"

    @property
    def historic(self) -> bool:
        """Whether it uses earlier windows."""
        return self.kind in _HISTORY


@dataclass(frozen=True)
class Order:
    """One step of the order of a view's rows.

    Attributes:
        by: a column of the key, a value, or `<value>_stddev`, `<value>_low`, `<value>_high`.
        descending: whether the largest comes first; rows without the value come last.
    """

    by: str
    descending: bool = False


@dataclass(frozen=True)
class ViewSettings:
    """Releases made of the releases of one pipeline, at no cost: the guarantee is that pipeline's.

    Attributes:
        name: name in topics and releases; no pipeline has it.
        source: name of the pipeline.
        key: columns of the source's key that rows are grouped by; default: all of them.
        values: released values; default: all of the source's.
        where: conditions on the source's rows, all of which a row must fulfil.
        having: conditions on the view's rows.
        order: columns that rows are sorted by; ties, and all without it, by key.
        limit: rows of one release at the most: the first ones.
        topic: release topic; default `hush.<view>.releases.v1`.
    """

    name: Name
    source: Name
    key: Paths | None = None
    values: tuple[ViewValue, ...] = ()
    where: tuple[Condition, ...] = ()
    having: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    limit: Annotated[int, within(1, MOST)] | None = None
    topic: TopicName | None = None

    @property
    def release_topic(self) -> str:
        """Release topic, by default named after the view."""
        return self.topic or releases_topic(self.name)


def additive(source: PipelineSettings) -> frozenset[str]:
    """Values that can be added over keys and windows: their noise is normal and independent."""
    mechanism = source.mechanism
    scaled = getattr(mechanism.parameters, "debias", False)  # by one noisy factor for all keys
    if scaled or not find(mechanism.kind).in_parts:
        return frozenset()
    return frozenset(one.label for one in source.aggregate if isinstance(one, Count | Sum))


def contradictions(
    views: Sequence[ViewSettings],
    known: Sequence[PipelineSettings],
    inputs: Collection[str],
    partitions: int,
) -> Iterator[Problem]:
    """Yield every contradiction of views whose single values are valid.

    Args:
        known: pipelines of the configuration.
        inputs: raw topics.
        partitions: number of partitions of each release topic.
    """
    pipelines = {p.name: p for p in known}
    names = [*pipelines, *(v.name for v in views)]
    taken = {t for p in known for t in (p.release_topic, p.latest_topic)} | set(inputs)
    for place, view in enumerate(views):
        where = ("view", place)
        if names.index(view.name) < len(pipelines) + place:
            yield Problem(
                (*where, "name"), f'"{view.name}" is the name of another view or pipeline'
            )
        elif view.release_topic in taken:
            yield Problem((*where, "topic"), f'"{view.release_topic}" has another purpose here')
        taken |= {view.release_topic, latest_topic(view.name)}
        source = pipelines.get(view.source)
        if source is None:
            yield Problem((*where, "source"), _unknown(view.source, list(pipelines), "a pipeline"))
            continue
        if partitions > 1:
            rule = "needs engine.release_partitions = 1: it reads the release topic in its order"
            yield Problem((*where, "source"), rule)
        yield from (Problem.under(where, one) for one in objections(view, source))


def _unknown(name: str, known: Sequence[str], what: str) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
    return f'"{name}" is not {what}; {hint}'


def objections(
    view: ViewSettings, source: PipelineSettings, released: Sequence[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Settings of a view that contradict its source, each with its dotted place.

    Args:
        released: names of the source's values; None if unknown, apart from its aggregates.
    """
    if not source.aggregate:
        yield "source", f'"{source.name}" releases keys alone: a view needs values'
        return
    for place, name in enumerate(view.key or ()):
        if name not in source.key:
            yield f"key.{place}", _unknown(name, source.key, f"a column of {source.name}'s key")
    for place, why in doubled([one.label for one in view.values]):
        yield f"values.{place}", why
    for place, one in enumerate(view.values):
        yield from ((f"values.{place}.{s}".rstrip("."), m) for s, m in _of_value(one))
    for name in ("where", "having"):
        yield from objections_of(name, getattr(view, name))
    if view.order and view.limit is None:
        yield "order", "needs limit: rows of a topic that is read by key have no order"
    if released is None and find(source.mechanism.kind).in_parts:
        released = [one.label for one in source.aggregate]
    if released is not None:
        yield from _Names(view, source, released).objections()


def _of_value(one: ViewValue) -> Iterator[tuple[str, str]]:
    for name in ("over", "windows"):
        if getattr(one, name) is not None and name not in _TAKES[one.kind]:
            yield name, f'has no effect with kind = "{one.kind}"'
    if one.kind == "ratio" and one.over is None:
        yield "", 'kind = "ratio" needs over, the value that it is divided by'
    if one.kind == "ratio" and one.over == one.of:
        yield "over", "is the value itself: the ratio is 1"


def doubled(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the places of values that would share a column of a table of releases, and why."""
    taken = dict.fromkeys(FIXED, "of every release")
    for place, name in enumerate(names):
        own = {f"{name}{part}": f'of the value "{name}"' for part in PARTS}
        if name in names[:place]:
            yield place, f'"{name}" exists already: set another name'
        elif both := [column for column in own if column in taken]:
            yield (
                place,
                f'"{name}" has a column {both[0]} in tables, and so has that {taken[both[0]]}: '
                "set another name",
            )
        taken = own | taken


class _Names:
    """The names in a view, and what may be computed from their values."""

    def __init__(
        self, view: ViewSettings, source: PipelineSettings, released: Sequence[str]
    ) -> None:
        self._view, self._source, self._released = view, source, released
        self._additive = additive(source)
        self._fewer = view.key is not None and set(view.key) != set(source.key)

    def objections(self) -> Iterator[tuple[str, str]]:
        yield from self._of_values()
        finer = [*self._source.key, *self._columns(self._released)]
        summed = [n for n in self._released if not self._fewer or n in self._additive]
        key = self._source.key if self._view.key is None else self._view.key
        labels = [one.label for one in self._view.values]
        own = [*key, *self._columns(dict.fromkeys([*summed, *labels]))]
        for setting, given, there in (
            ("where", self._view.where, finer), ("having", self._view.having, own),
        ):  # fmt: skip
            for place, condition in enumerate(given):
                for name in _fields(condition):
                    if name not in there:
                        yield f"{setting}.{place}", _unknown(name, there, "released")
        for place, order in enumerate(self._view.order):
            if order.by not in own:
                yield f"order.{place}.by", _unknown(order.by, own, "released")

    def _of_values(self) -> Iterator[tuple[str, str]]:
        if self._fewer and not self._view.values:
            for name in self._released:
                if name not in self._additive:
                    yield "key", f"leaves columns out, and {name} {_NO_SUM}: list values without it"
        for place, one in enumerate(self._view.values):
            named = {"of": one.of} | ({} if one.over is None else {"over": one.over})
            for setting, name in named.items():
                if name not in self._released:
                    yield f"values.{place}.{setting}", _unknown(name, self._released, "released")
                elif name not in self._additive and (self._fewer or one.kind in _ARITHMETIC):
                    yield f"values.{place}.{setting}", f"{name} {_NO_SUM}"
            if self._source.window.hop is not None and one.kind in ("change", "running"):
                rule = "is not possible with window.hop: noises of windows that overlap depend"
                yield f"values.{place}.kind", rule

    @staticmethod
    def _columns(names: Iterable[str]) -> list[str]:
        return [name + part for name in names for part in PARTS]


def _fields(condition: Condition) -> Iterator[str]:
    """The fields that a condition uses."""
    if condition.field is not None:
        yield condition.field
    for part in (*(condition.any or ()), *(condition.all or ())):
        yield from _fields(part)
