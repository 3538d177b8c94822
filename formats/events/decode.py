"""Decoding of raw records into typed columns, with one reason per bad record and no payloads.

A decoder is built once per input from the union of its pipelines' fields, and decodes each record
once, whatever the number of pipelines: many at once by compiled loops, and those that the loops
leave out one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np

from ...mechanisms.contract import Mechanism, Traits
from ..entries import FORMATS
from ..schemas.schema import Known
from .columns import LEAST, ColumnDecoder, readable
from .fields import InputFields, PipelineFields
from .raw import RawRecord
from .records import RecordDecoder
from .views import Decoded, View, merged

__all__ = ["Decoded", "Decoder", "RawRecord", "View", "utc"]


class KeysAlone:
    """Stands in for a mechanism when a record gives only its key and no number."""

    traits = Traits(horizon=1, outputs=(), row_dtype=np.dtype([]), bound=0)


class Decoder:
    """Decoder of events into typed columns, for the pipelines of an input and their mechanisms."""

    def __init__(
        self,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
    ) -> None:
        kind = FORMATS[fields.format]
        every = zip(pipelines, mechanisms, strict=True)
        read = (cast(Mechanism, KeysAlone()) if p.later else m for p, m in every)
        given = fields, tuple(pipelines), tuple(read)
        self._each = RecordDecoder(*given, kind.reader(fields, pipelines))
        self._columns: ColumnDecoder | None = None
        if readable(*given, kind.parts):
            self._columns = ColumnDecoder(*given, kind.scanner(fields, pipelines))

    def decode(self, records: Sequence[RawRecord], known: Known | None = None) -> Decoded:
        """Decode records of one partition; their content never raises an error.

        ``known`` has schemas by id, for values that carry one; another id makes its record bad.
        """
        known = known or {}
        if self._columns is None or len(records) < LEAST:
            return self._each.decode(records, known)
        found, left = self._columns.decode(records, known)
        if len(left) == 0:
            return found
        return merged(found, self._each.decode([records[n] for n in left.tolist()], known), left)


def utc(microseconds: int) -> str:
    """Format a time as ISO text, for records that people read."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    rest = microseconds % 1_000_000
    return f"{text}.{rest:06d}Z" if rest else f"{text}Z"
