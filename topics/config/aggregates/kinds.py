"""All aggregates that a pipeline may release per key, and the columns that several need."""

from __future__ import annotations

from collections.abc import Sequence

from ....formats.events.expressions.exclusive import groups
from ....formats.events.fields import NumericField
from .contract import AnyAggregate
from .distinct import Distinct
from .numbers import Mean, Sum
from .partial import Count
from .spread import Spread, Stddev, Variance

Aggregate = Count | Sum | Mean | Variance | Stddev | Distinct
"""All aggregates; a configuration selects one by its ``kind``."""


def value_columns(aggregates: Sequence[AnyAggregate]) -> list[NumericField]:
    """The distinct value columns of some aggregates, in order of appearance."""
    every = (column for aggregate in aggregates for column in aggregate.columns)
    return list(dict.fromkeys(every))


def apart(columns: Sequence[NumericField]) -> tuple[tuple[int, ...], ...]:
    """Indices of the columns with a condition; mutually exclusive ones form a group."""
    partial = [(place, c.where) for place, c in enumerate(columns) if c.where is not None]
    found = groups([where for _, where in partial])
    return tuple(tuple(partial[member][0] for member in group) for group in found)


def counts_of(aggregates: Sequence[AnyAggregate]) -> dict[str, str]:
    """Map each column whose squares are summed to the column that counts its records.

    Columns without a condition are left out: their records are counted anyway.
    """
    made = (one.columns for one in aggregates if isinstance(one, Spread) and one.where)
    return {values.name: count.name for values, count in made}


def counted_in(aggregates: Sequence[AnyAggregate]) -> str | None:
    """The field whose distinct values a pipeline counts; None if it counts records."""
    found = [one.field for one in aggregates if isinstance(one, Distinct)]
    return found[0] if found else None
