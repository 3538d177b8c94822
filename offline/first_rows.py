"""Find rows of a file that cannot become events before any row is written.

The owner of the file reads these messages; they name row, field and types, but quote no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Input
from ..formats.events.decode import Decoded, Decoder, RawRecord
from ..formats.events.times import FACTORS
from ..formats.events.types import paths_of
from ..formats.events.unusable import in_words, unusable
from ..mechanisms.columns import I64

YEARS = 1990, 2100  # years of most data; a wrong unit gives others
UNITS = {"epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds"}


def unfit(source: Input, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Say why most of some rows cannot become events of an input as configured.

    Args:
        source: the input; its values are read as JSON.
        rows: the first rows of a file.

    Returns:
        One sentence with the first such row (from 1), reason, field and remedy; None if at least
        half of the rows can become events, at likely times.
    """
    decoded, good = _decoded(source, rows)
    if good.sum() * 2 >= len(rows):
        return _mistimed(source, decoded.time[good])
    kinds = paths_of(source.fields, [p.fields for p in source.pipelines])
    reasons = in_words(unusable(decoded.bad, rows, kinds))
    return (
        f"row {min(decoded.bad) + 1} is the first that cannot become an event of input "
        f"{source.name!r}; of {len(rows):,} rows: {reasons}.{_hint(source, rows)}"
    )


def mistimed(source: Input, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Say that times of some rows are probably in another unit; None if they are not."""
    decoded, good = _decoded(source, rows)
    return _mistimed(source, decoded.time[good])


def _decoded(source: Input, rows: Sequence[Mapping[str, Any]]) -> tuple[Decoded, NDArray[np.bool_]]:
    """Rows as read by the input, and (n,) whether each becomes an event."""
    decoder = Decoder(
        source.in_json().fields,
        [p.fields for p in source.pipelines],
        [p.mechanism for p in source.pipelines],
    )
    values = [json.dumps(row, default=str).encode() for row in rows]
    decoded = decoder.decode([RawRecord(n, 0, None, one) for n, one in enumerate(values)])
    good = np.ones(len(rows), np.bool_)
    good[list(decoded.bad)] = False
    return decoded, good


def _mistimed(source: Input, times: I64) -> str | None:
    """Hint that times are plausible in another unit; None if they are plausible as configured."""
    how = source.fields.time_format
    if how not in UNITS or not len(times) or _likely(median := int(np.median(times))):
        return None
    raw = median // FACTORS[how]
    other = next((name for name in UNITS if _likely(raw * FACTORS[name])), None)
    if other is None:
        return None
    year = datetime.fromtimestamp(median // 1_000_000, UTC).year
    return (
        f"field {source.fields.time!r} is read as {UNITS[how]}, and its times fall into the year "
        f"{year}: its numbers look like {UNITS[other]}, so set time.format = {other!r}"
    )


def _likely(time: int) -> bool:
    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in YEARS)
    return begin <= time // 1_000_000 < end


def _hint(source: Input, rows: Sequence[Mapping[str, Any]]) -> str:
    """The next step if the event time is at fault."""
    field, how = source.fields.time or "", source.fields.time_format
    first = next((row[field] for row in rows if row.get(field) is not None), None)
    if isinstance(first, str | date):
        iso = how in UNITS
        return f" If {field!r} holds ISO times, set time.format = 'iso'" if iso else ""
    if isinstance(first, bool) or not isinstance(first, int | float):
        return ""
    looks = next((name for name in UNITS if _likely(int(first) * FACTORS[name])), how)
    if looks == how:
        return ""
    return f" Numbers of {field!r} look like {UNITS[looks]}: set time.format = {looks!r}"
