"""Rows as two columns: for the rows of units, which a step changes by the thousand.

An object for each row, in dictionaries and lists, would cost more than all that is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import writeable
from ....errors import EngineError
from ....mechanisms.keys import Keys
from ..layout import DIGEST, UNIT_WIDTH
from ..store import Changes


class RowColumns(NamedTuple):
    """n rows, each key once."""

    keys: Keys  # of the rows
    values: Keys  # likewise; an empty one stands for no row: it was deleted, or never written

    @classmethod
    def of(cls, changes: Changes) -> RowColumns:
        """Make columns of single rows.

        Raises:
            EngineError: a row is empty.
        """
        return cls(Keys.of(changes), column_of(list(changes.values())))

    def changes(self) -> Changes:
        """Make single rows of the columns."""
        return dict(self.pairs())

    def pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        """List keys with their rows; None stands for no row."""
        for key, value in zip(self.keys.tolist(), self.values.tolist(), strict=True):
            yield key, value or None


NO_ROWS = RowColumns(Keys.of([]), Keys.of([]))


def column_of(rows: Sequence[bytes | None]) -> Keys:
    """Make a column of rows, where None stands for no row.

    Raises:
        EngineError: a row is empty; it would be taken for none, and its unit for a new one.
    """
    if b"" in rows:
        raise EngineError("a unit's stored row is damaged: it is empty")
    return Keys.of(row or b"" for row in rows)


class Found(NamedTuple):
    """An answer of a table about keys."""

    values: Keys  # (n,) empty where there is no row, and where the table does not know
    known: NDArray[np.bool_]  # (n,) whether it knows


def pick(keys: Keys, rows: NDArray[np.intp]) -> Keys:
    """Take some of a column of keys of one width."""
    if len(rows) == len(keys):
        return keys
    return Keys.fixed(keys.packed().reshape(len(keys), -1)[rows])


def taken(values: Keys, rows: NDArray[np.intp]) -> Keys:
    """Take some of a column, like `Keys.take`, by a compiled loop."""
    begins = values.offsets[:-1][rows]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(values.offsets[1:][rows] - begins, out=ends[1:])
    return gathered(values.data, begins, ends)


def gathered(data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Keys:
    """Make a column of strings that lie anywhere in ``data``; see `mechanisms.keys.gather`."""
    from .scan import gather

    out = np.empty(int(ends[-1]), np.uint8)
    gather(writeable(data), begins, ends, out)
    return Keys(out, ends)


def by_epoch(keys: Keys) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
    """Group keys of units: all of a key but the digest, and which of them begin with it."""
    if len(keys) == 0:
        return
    heads = keys.packed().reshape(len(keys), UNIT_WIDTH)[:, :-DIGEST]
    if (heads == heads[0]).all():
        yield heads[0].tobytes(), np.arange(len(keys))
        return
    each, place, counts = np.unique(heads, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(place.reshape(-1), kind="stable")
    for head, rows in zip(each, np.split(order, np.cumsum(counts[:-1])), strict=True):
        yield head.tobytes(), rows


def put_in(values: Keys, rows: NDArray[np.intp], found: Keys) -> Keys:
    """Put values into the empty places of a column.

    Args:
        values: (n,) of them.
        rows: increasing numbers of the empty rows.
        found: the new values, in the order of ``rows``.

    Returns:
        (n,) values.
    """
    if len(rows) == len(values):
        return found
    from .scan import merge

    size = int(values.offsets[-1] - values.offsets[0] + found.offsets[-1] - found.offsets[0])
    out, ends = np.empty(size, np.uint8), np.empty(len(values) + 1, np.int64)
    merge(
        writeable(values.data),
        values.offsets,
        rows,
        writeable(found.data),
        found.offsets,
        out,
        ends,
    )
    return Keys(out, ends)
