"""The group of each privacy unit; reports that claim another group are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...client.survey import Survey
from ..columns import I64

KNOWN = 150_000  # number of units whose group is cached


def user_of(unit: Any) -> str:
    """The user name that a device gives its client, from the unit in a record.

    A text stays as it is, an integer becomes decimal digits, several fields become a JSON list.

    >>> user_of(("alice", 3))
    '["alice", 3]'
    """
    return str(unit) if isinstance(unit, str | int) else json.dumps(unit)


class Groups(dict[Any, int]):
    """Groups of recent units: a cache of bounded size, not state."""

    def __init__(self, survey: Survey, most: int = KNOWN) -> None:
        super().__init__()
        self._survey = survey
        self._most = most

    def __missing__(self, unit: Any) -> int:
        """Hash a unit that is not in the cache."""
        found = self[unit] = self._survey.group(user_of(unit))
        return found

    def of(self, units: NDArray[Any]) -> I64:
        """(n,) `RANGE` or `VALUE` of (n,) units."""
        if len(self) > self._most:
            self.clear()
        return np.fromiter(map(self.__getitem__, units.tolist()), np.int64, len(units))
