"""Records to be produced: one at a time, or many as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.keys import Keys, concat

Content = tuple[bytes | None, bytes | None, int | None, Sequence[tuple[str, bytes]]]
"""Key, value, timestamp in milliseconds (None: now) and headers of a record to be produced."""


@dataclass(frozen=True)
class RecordColumns:
    """n records without headers, stamped with the time of sending."""

    keys: Keys
    values: Keys
    gone: NDArray[np.bool_]  # (n,) mask of records without a value, which delete their key

    @classmethod
    def of(cls, rows: Mapping[bytes, bytes | None]) -> RecordColumns:
        """Make columns from rows, in order."""
        values = list(rows.values())
        gone = np.fromiter([value is None for value in values], np.bool_, len(values))
        return cls(Keys.of(rows), Keys.of([value or b"" for value in values]), gone)

    def then(self, other: RecordColumns) -> RecordColumns:
        """Append other records."""
        if len(self.gone) == 0:
            return other
        return RecordColumns(
            concat([self.keys, other.keys]),
            concat([self.values, other.values]),
            np.concatenate([self.gone, other.gone]),
        )

    @cached_property
    def contents(self) -> Sequence[Content]:
        """List the records as single ones."""
        rows = zip(self.keys.tolist(), self.values.tolist(), self.gone.tolist(), strict=True)
        return [(key, None if gone else value, None, ()) for key, value, gone in rows]
