"""What is asked of a reader of single records, whatever their format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..schemas.schema import Known
from .reasons import Bad


class Readable(Protocol):
    """The values of records, as one reader sees them."""

    @property
    def size(self) -> int:
        """Number of records."""

    def column(self, path: str, role: str) -> tuple[list[Any], Bad]:
        """Values of a path by row, None where there is none; faults by row."""


class RecordReader(Protocol):
    """A reader of one format."""

    def read(
        self, values: Sequence[bytes | None], offsets: Sequence[int], known: Known
    ) -> Sequence[tuple[Readable, Bad]]:
        """Read values: first as the input itself sees them, then as each pipeline does.

        Args:
            values: of records.
            offsets: of these records.
            known: what ids of schemas stand for, where values begin with one.
        """
