"""Small histograms for tests: calibrated, with keyed noise, fed from rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise

EPSILON, DELTA = Fraction(3), Fraction(1, 10**6)


def made(horizon: int = 6, columns: Any = (), keys: Any = None, count: bool = True,
         **parameters: Any) -> Histogram:  # fmt: skip
    setting = Setting(
        EPSILON, DELTA, horizon, columns=columns, grids=(Fraction(1),) * len(columns), keys=keys,
        count=count,
    )  # fmt: skip
    mechanism = build(HistogramParameters(**parameters), setting)
    assert isinstance(mechanism, Histogram)
    return mechanism


def keyed(window: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"h" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


def trace(rows: list[tuple[int, int, int]], keys: Keys, values: Any = None) -> Trace:
    """(trigger, unit, key) rows."""
    trigger, unit, key = (np.array(column) for column in zip(*rows, strict=True))
    value = np.zeros((len(rows), 0), np.int64) if values is None else np.array(values)
    sign = np.ones(len(rows), np.int8)
    return Trace(trigger.astype(np.intp), unit, keys, key.astype(np.intp), value, sign)


CODES = Keys.of_codes(np.arange(4000, dtype=np.uint64))
