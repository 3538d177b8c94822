"""Records to be produced: one at a time, or many as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.keys import Keys, concat

Content = tuple[bytes | None, bytes | None, int | None, Sequence[tuple[str, bytes]]]
"""Key, value, timestamp in milliseconds (None: now) and headers of a record to be produced."""


class RecordColumns(NamedTuple):
    """n records of the time at which they are sent, without headers.

    Attributes:
        keys: of the records.
        values: likewise.
        gone: (n,) which of them have no value, and so delete their key.
    """

    keys: Keys
    values: Keys
    gone: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Mapping[bytes, bytes | None]) -> RecordColumns:
        """Make columns of single rows, in their order."""
        values = list(rows.values())
        gone = np.fromiter((value is None for value in values), np.bool_, len(values))
        return cls(Keys.of(rows), Keys.of(value or b"" for value in values), gone)

    def then(self, other: RecordColumns) -> RecordColumns:
        """Put other records behind these."""
        return RecordColumns(
            concat([self.keys, other.keys]),
            concat([self.values, other.values]),
            np.concatenate([self.gone, other.gone]),
        )

    def contents(self, begun: int) -> list[Content]:
        """List the records from ``begun`` on."""
        rows = zip(self.keys.tolist(), self.values.tolist(), self.gone.tolist(), strict=True)
        return [(key, None if gone else value, None, ()) for key, value, gone in rows][begun:]
