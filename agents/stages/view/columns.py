"""Released rows as columns, of which conditions are asked as of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....formats.events.expressions.conditions import Condition, Flags

Columns = Mapping[str, Sequence[Any]]


class ReleasedFields:
    """The fields of n rows; a value that is missing is None.

    Args:
        columns: texts, numbers and truth values by column, n of each.
    """

    def __init__(self, columns: Columns, rows: int) -> None:
        self._columns = columns
        self._rows = rows

    def _column(self, path: str) -> Sequence[Any]:
        return self._columns.get(path) or [None] * self._rows

    def numbers(self, path: str) -> NDArray[np.float64]:
        """(n,) numbers of a column; NaN where there is none."""
        found = [_number(one) for one in self._column(path)]
        return np.array(found, np.float64)

    def among(self, path: str, texts: Sequence[str]) -> tuple[Flags, Flags]:
        """(n,) whether a value is one of ``texts``, and whether it holds a text at all."""
        column, known = self._column(path), frozenset(texts)
        there = [isinstance(one, str) for one in column]
        found = [is_text and one in known for is_text, one in zip(there, column, strict=True)]
        return np.array(found, np.bool_), np.array(there, np.bool_)

    def texts(self, path: str, role: str = "text") -> tuple[list[str], NDArray[np.int64]]:
        """Distinct texts of a column, and (n,) which one each row has; -1 where there is none.

        No condition of a view asks for them in another role.
        """
        column = self._column(path)
        places = {
            t: n for n, t in enumerate(dict.fromkeys(t for t in column if isinstance(t, str)))
        }
        place = [places[one] if isinstance(one, str) else -1 for one in column]
        return list(places), np.array(place, np.int64)

    def truths(self, path: str) -> tuple[Flags, Flags]:
        """(n,) whether a value is true, and whether it is false."""
        column = self._column(path)
        found = [np.array([one is truth for one in column], np.bool_) for truth in (True, False)]
        return found[0], found[1]

    def present(self, path: str) -> Flags:
        """(n,) whether there is a value."""
        return np.array([one is not None for one in self._column(path)], np.bool_)


def fulfilling(condition: Condition | None, columns: Columns, rows: int) -> list[int]:
    """Places of the rows that fulfil a condition; None is fulfilled by all."""
    if condition is None:
        return list(range(rows))
    flags: NDArray[np.bool_] = condition.fulfilled(ReleasedFields(columns, rows))
    return np.flatnonzero(flags).tolist()


def _number(value: Any) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if fits else float("nan")
