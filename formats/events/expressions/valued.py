"""The fields of records for conditions, from Python values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .conditions import Flags


def doubles(values: Sequence[Any]) -> NDArray[np.float64]:
    """(n,) numbers as doubles: NaN for None, infinity for an integer beyond every double."""
    try:
        return np.array([math.nan if v is None else v for v in values], np.float64)
    except OverflowError:
        return np.array([_double(v) for v in values], np.float64)


def _double(value: Any) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class ValueFields:
    """`Fields` of ``size`` records as columns of Python values.

    ``column`` returns the values of a path in a role (None if missing) and notes faults.
    """

    def __init__(self, size: int, column: Callable[[str, str], list[Any]]) -> None:
        self._size, self._column = size, column

    def numbers(self, path: str) -> NDArray[np.float64]:
        return doubles(self._column(path, "number"))

    def among(self, path: str, texts: Sequence[str]) -> tuple[Flags, Flags]:
        values, wanted = self._column(path, "text"), frozenset(texts)
        return self._flags(v in wanted for v in values), self._flags(v is not None for v in values)

    def texts(self, path: str, role: str = "text") -> tuple[list[str], NDArray[np.int64]]:
        values = [v if v is None else str(v) for v in self._column(path, role)]
        distinct = dict.fromkeys(v for v in values if v is not None)
        number = {text: n for n, text in enumerate(distinct)}
        places = [-1 if v is None else number[v] for v in values]
        return list(number), np.array(places, np.int64)

    def truths(self, path: str) -> tuple[Flags, Flags]:
        values = self._column(path, "truth")
        return self._flags(v is True for v in values), self._flags(v is False for v in values)

    def present(self, path: str) -> Flags:
        return self._flags(v is not None for v in self._column(path, "scalar"))

    def _flags(self, values: Any) -> Flags:
        return np.fromiter(values, bool, self._size)
