"""Aggregates as a query states them, and which may be combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ..columns import QuerySource
from ..refusal import QueryError


class Aggregated(NamedTuple):
    """An aggregate as a setting.

    Attributes:
        setting: entry of the pipeline's ``aggregate``.
        units: whether it counts units instead of records.
        values: whether it counts distinct values.
        per_group: most records of a unit in a group, if the query bounds a count.
        bounded: whether the query bounds a sum by arguments of the aggregate.
        derive: the still unnamed derived column that it sums; None: it sums a field.
    """

    setting: dict[str, Any]
    units: bool = False
    per_group: int | None = None
    bounded: bool = False
    values: bool = False
    derive: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """Name of the value in releases."""
        of = str(self.setting.get("field", "")).replace(".", "_")
        return str(self.setting.get("name") or f"{self.setting['kind']}_{of}".rstrip("_"))


class Scope(NamedTuple):
    """Names and bounds that an aggregate of a query may refer to.

    Attributes:
        source: the input.
        table: names of the table.
        clip: bounds of fields that the query does not bound.
    """

    source: QuerySource
    table: Sequence[str]
    clip: Mapping[str, Mapping[str, Any]]


def checked(found: Sequence[Aggregated]) -> None:
    """Refuse (`QueryError`) a count of units beside other aggregates: it has its own bound."""
    if len(found) > 1 and any(one.units for one in found):
        raise QueryError(
            "COUNT(DISTINCT ...) counts each unit once in a key, other aggregates count each "
            "record: write a pipeline for each. For HAVING COUNT(DISTINCT ...) >= 50 alone, leave "
            "it out and set mechanism.min_users = 50"
        )
    if len(found) > 1 and any(one.values for one in found):
        raise QueryError(
            "COUNT(DISTINCT ...) of a field stands alone: write a pipeline for each aggregate; "
            "they may share a [[budget]]"
        )
    labels = [one.label for one in found]
    for label in labels:
        if labels.count(label) > 1:
            raise QueryError(f"two columns are named {label}: name one of them otherwise, with AS")


def rounded(aggregates: Sequence[Aggregated]) -> Iterator[str]:
    """Say of which fields the values are rounded to whole numbers."""
    fields = (
        one.setting["field"] for one in aggregates
        if one.derive is None and "low" in one.setting and "grid" not in one.setting
    )  # fmt: skip
    for field in dict.fromkeys(fields):
        yield (
            f"{field}: each value counts as the nearest whole number; for decimals write "
            f"ROUND(CLIP({field}, low, high), 2)"
        )


_SESSION = ("session_length", "session_events")
"""Fields that every session has."""


def left_out(settings: Mapping[str, Any], select: exp.Select) -> Iterator[str]:
    """Say which fields a record must have for other aggregates of a query to count it.

    In SQL, a record without the number is in COUNT(*) and in other sums.
    """
    stated = settings.get("aggregate", ())
    found = [] if isinstance(stated, str) else list(stated)
    where = (one for one in settings.get("where", ()) if one.get("present") is not False)
    asked = {one.get("field") for one in where if "lookup" not in one}
    made = _SESSION if "session" in settings else ()
    there = {None, *asked, *settings.get("derive", {}), *settings.get("key", ()), *made}
    summed = dict.fromkeys(one.get("field") for one in found if "where" not in one)
    for path in (one for one in summed if one not in there):
        if any(one.get("field") != path or "where" in one for one in found):
            yield (
                f"{path}: a record without it is a dead letter, which no aggregate counts; for the "
                f"others to count it, write FILTER (WHERE {path} IS NOT NULL) after that of "
                f"{path}, whose noise may double"
            )
    for path in (one for one in settings.get("inputs", {}).values() if one not in there):
        if select.find(exp.Count) is not None:
            yield f"{path}: a record without it is a dead letter, which COUNT(*) leaves out, too"
