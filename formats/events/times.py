"""Event times as microseconds since 1970: ISO texts with zones, or scaled numbers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np

from ...mechanisms.columns import I64

LATEST = 253_402_300_800_000_000  # microseconds: the year 10000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FACTORS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1, "record": 1_000}


def fits(convert: Callable[[Any], int], value: Any, out: I64, row: int) -> bool:
    """Convert one value into its row; False if it is not a time between 1970 and 9999."""
    try:
        out[row] = convert(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return bool(0 <= out[row] < LATEST)


def iso(zone: tzinfo) -> Callable[[Any], int]:
    """A converter of ISO texts; ``zone`` applies to texts without an offset."""
    parse = datetime.fromisoformat

    def convert(value: Any) -> int:
        moment = parse(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        since = moment - EPOCH  # in integers: doubles lose the microseconds of later centuries
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    return convert


def scaled(factor: int) -> Callable[[Any], int]:
    """A converter of numbers; integers are exact."""

    def convert(value: Any) -> int:
        return value * factor if type(value) is int else round(value * factor)

    return convert


def scale(values: list[Any], factor: int) -> I64 | None:
    """Convert all times at once if every one is an integer in range; else return None."""
    try:
        times = np.array(values)
    except (ValueError, OverflowError):
        return None
    if times.dtype != np.int64 or (times < 0).any() or (times >= LATEST // factor).any():
        return None
    return times * factor
