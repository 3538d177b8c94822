"""Rows as two columns, for rows of units, which a step changes by the thousand.

One object per row, in dictionaries and lists, would cost more than the work on the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.columns import writeable
from ....mechanisms.keys import Keys
from ..layout import DIGEST, UNIT_WIDTH
from ..store import Changes


class RowColumns(NamedTuple):
    """n rows with distinct keys."""

    keys: Keys  # (n,) keys
    values: Keys  # (n,) rows; an empty row means none: deleted, or never written

    @classmethod
    def of(cls, changes: Changes) -> RowColumns:
        """Make columns from single rows.

        Raises:
            EngineError: a row is empty.
        """
        return cls(Keys.of(changes), column_of(list(changes.values())))

    def changes(self) -> Changes:
        """Make single rows from the columns."""
        return dict(self.pairs())

    def pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys with their rows; None means no row."""
        for key, value in zip(self.keys.tolist(), self.values.tolist(), strict=True):
            yield key, value or None


NO_ROWS = RowColumns(Keys.of([]), Keys.of([]))


def column_of(rows: Sequence[bytes | None]) -> Keys:
    """Make a column of rows, where None means no row.

    Raises:
        EngineError: a row is empty, which would mean no row, so that its unit would look new.
    """
    if b"" in rows:
        raise EngineError("a unit's stored row is damaged: it is empty")
    return Keys.of(row or b"" for row in rows)


class Found(NamedTuple):
    """A table's rows for some keys."""

    values: Keys  # (n,) rows; empty if there is none, or the table does not know
    known: NDArray[np.bool_]  # (n,) whether the table knows the key


def pick(keys: Keys, rows: NDArray[np.intp]) -> Keys:
    """Take some keys of a column of keys of one width."""
    if len(rows) == len(keys):
        return keys
    return Keys.fixed(keys.packed().reshape(len(keys), -1)[rows])


def taken(values: Keys, rows: NDArray[np.intp]) -> Keys:
    """Take some values of a column, like `Keys.take`, in a compiled loop."""
    begins = values.offsets[:-1][rows]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(values.offsets[1:][rows] - begins, out=ends[1:])
    return gathered(values.data, begins, ends)


def gathered(data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Keys:
    """Make a column from strings anywhere in ``data``; see `mechanisms.keys.gather`."""
    from .scan import gather

    out = np.empty(int(ends[-1]), np.uint8)
    gather(writeable(data), begins, ends, out)
    return Keys(out, ends)


def by_epoch(keys: Keys) -> Iterator[tuple[bytes, NDArray[np.intp]]]:
    """Group keys of units by their prefix before the digest; yield prefix and indices."""
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
        values: (n,) column.
        rows: increasing indices of the empty places.
        found: new values, in the order of ``rows``.

    Returns:
        The filled (n,) column.
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
