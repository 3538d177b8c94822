"""A stated shape as a workload, for a stream without a sample.

Draws come from an expanded hash, so a shape gives the same records on every machine. Nothing here
is private or protects anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..errors import ParameterError
from .columns import F64, I64
from .validate import at_least, non_negative
from .workload import Workload

_MOST = 100_000_000
_TAIL = 5.738  # exponent of activity in the published workload of Zhang et al. (2023)


@dataclass(frozen=True)
class Shape:
    """Numbers that describe one window.

    Raises:
        ParameterError: a number is out of range, or there are fewer records than units.
    """

    users: int  # privacy units
    records: int  # of all units together; at least ``users``
    keys: int  # number of different keys
    zipf: float = 1.0  # the key of rank r is chosen with probability proportional to r^-zipf
    repeat: float = 0.0  # share of a unit's records in one preferred key

    def __post_init__(self) -> None:
        at_least("users", self.users, 1)
        at_least("keys", self.keys, 1)
        at_least("records", self.records, self.users)
        for name in ("users", "records", "keys"):
            if getattr(self, name) > _MOST:
                raise ParameterError(name, getattr(self, name), f"must be at most {_MOST}")
        non_negative("zipf", self.zipf)
        if not 0 <= self.repeat <= 1:
            raise ParameterError("repeat", self.repeat, "must lie between 0 and 1")

    def workload(self) -> Workload:
        """The records of a window, shuffled.

        >>> work = Shape(users=100, records=250, keys=20).workload()
        >>> len(work.unit), len(set(work.unit.tolist())), int(work.key.max()) < 20
        (250, 100, True)
        """
        unit = np.repeat(np.arange(self.users, dtype=np.int32), self._activity())
        popularity = np.arange(1.0, self.keys + 1) ** -self.zipf
        own = draw(popularity, _uniform("own", self.users))
        key = draw(popularity, _uniform("keys", self.records))
        key = np.where(_uniform("repeat", self.records) < self.repeat, own[unit], key)
        order = np.argsort(_uniform("order", self.records), kind="stable")
        return Workload(unit[order], key[order].astype(np.int32), self.users, self.keys)

    def _activity(self) -> I64:
        """(users,) records of each: one, plus a heavy-tailed rest; they add up to `records`."""
        rest = self.records - self.users
        tail = (1 - _uniform("activity", self.users)) ** (-1 / _TAIL) - 1
        low, high = 0.0, (rest + self.users) / max(float(tail.sum()), 1e-9) + 1
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if np.floor(middle * tail).sum() > rest else (middle, high)
        more = np.floor(low * tail).astype(np.int64)
        more[: rest - int(more.sum())] += 1  # at most one each: the rest was rounded down
        return 1 + more


def _uniform(label: str, size: int) -> F64:
    """(size,) numbers in [0, 1)."""
    words = hashlib.shake_256(b"hush shape|" + label.encode()).digest(4 * size)
    return np.frombuffer(words, "<u4") / 2.0**32


def draw(weights: F64, uniform: F64) -> I64:
    """(n,) indices with probability proportional to ``weights``."""
    edges = np.cumsum(weights)
    found = np.searchsorted(edges, uniform * edges[-1], side="right")
    drawn: I64 = np.minimum(found, len(weights) - 1).astype(np.int64)
    return drawn
