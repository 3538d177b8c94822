"""The fields of records for conditions, from the findings of compiled loops."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scanned import Scanned
from ..types import FALSE, INTEGER, MISSING, NULL, REAL, TEXT, TRUE
from .conditions import Flags

_EMPTY = (MISSING, NULL)


class ScannedFields:
    """`Fields` as compiled loops have found them.

    ``place`` maps each path to its place among the needed fields. A record whose value does not
    suit the condition is removed from ``known``, so that it is decoded by itself. Numbers and texts
    of a path are read once for all conditions: records only ever leave ``known``.
    """

    def __init__(self, found: Scanned, place: Mapping[Any, int], known: Flags) -> None:
        self.known = known
        self._found, self._place = found, place
        self._read: dict[str, NDArray[np.float64]] = {}
        self._texts: dict[tuple[str, str], tuple[list[str], NDArray[np.int64]]] = {}

    def numbers(self, path: str) -> NDArray[np.float64]:
        if path not in self._read:
            self._read[path] = self._numbers(path)
        return self._read[path]

    def _numbers(self, path: str) -> NDArray[np.float64]:
        there = self._holds(path, INTEGER, REAL)
        still = there & self.known
        numbers = self._found.numbers(self._place[path], still)
        self.known &= still | ~there
        return np.where(still, numbers, math.nan)

    def among(self, path: str, texts: Sequence[str]) -> tuple[Flags, Flags]:
        there, place = self._holds(path, TEXT), self._place[path]
        low, high = self._found.low[:, place], self._found.high[:, place]
        out = np.zeros(len(there), bool)
        for text in set(texts):
            wanted = np.frombuffer(text.encode(), np.uint8)
            rows = np.flatnonzero(there & (high - low == len(wanted)))
            held = self._found.data[low[rows][:, None] + np.arange(len(wanted))]
            out[rows[(held == wanted).all(axis=1)]] = True
        return out, there

    def texts(self, path: str, role: str = "text") -> tuple[list[str], NDArray[np.int64]]:
        if (path, role) not in self._texts:
            self._texts[path, role] = self._distinct(path, role)
        return self._texts[path, role]

    def _distinct(self, path: str, role: str) -> tuple[list[str], NDArray[np.int64]]:
        from ..key_scan import numbered

        kinds = (TEXT, INTEGER) if role == "unit" else (TEXT,)
        wanted, place = self._holds(path, *kinds) & self.known, self._place[path]
        low, high = self._found.low[:, place], self._found.high[:, place]
        ends = np.concatenate([[0], np.cumsum(np.where(wanted, high - low, 0))])
        held = np.arange(ends[-1]) + np.repeat((low - ends[:-1])[wanted], (high - low)[wanted])
        data = self._found.data[held]
        first, number = numbered(data, ends, wanted, secrets.randbits(62) | 1)
        begins = [(ends[row], ends[row + 1]) for row in first.tolist()]
        return [data[a:b].tobytes().decode() for a, b in begins], number

    def truths(self, path: str) -> tuple[Flags, Flags]:
        self._holds(path, TRUE, FALSE)
        kind = self._found.kind[:, self._place[path]]
        return kind == TRUE, kind == FALSE

    def present(self, path: str) -> Flags:
        return self._holds(path, TEXT, INTEGER, REAL, TRUE, FALSE)

    def _holds(self, path: str, *kinds: int) -> Flags:
        kind = self._found.kind[:, self._place[path]]
        there = np.isin(kind, kinds)
        self.known &= there | np.isin(kind, _EMPTY)
        return there
