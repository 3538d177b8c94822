"""Dense tables give what the runner's general tables give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch, Closed, Units, merge
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.dense_units import DenseRows, DenseUnits
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters, build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.testing import Memory, Trace, UnitTable, run

T, UNITS, KEYS = 7, 300, 40


def made(**parameters: object) -> Histogram:
    setting = Setting(Fraction(4), Fraction(1, 10**5), T)
    mechanism = build(HistogramParameters(delay=0, **parameters), setting)  # type: ignore[arg-type]
    assert isinstance(mechanism, Histogram)
    return mechanism


@pytest.mark.parametrize("debias", [False, True])
def test_a_run_over_dense_tables_equals_the_runner(debias: bool) -> None:
    mechanism = made(budget=5, debias=debias)
    rng = np.random.default_rng(2)
    n = 4000
    key = np.minimum(rng.geometric(0.15, n), KEYS) - 1
    trace = Trace(
        np.sort(rng.integers(1, T + 1, n)), rng.integers(0, UNITS, n),
        Keys.of_codes(np.arange(KEYS, dtype=np.uint64)), key, np.zeros((n, 0), np.int64),
        np.ones(n, np.int8),
    )  # fmt: skip
    noise = KeyedNoise(
        bytes(32),
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="p",
        window="w",
        nonces=STEADY,
    )
    units, rows = DenseUnits(mechanism, UNITS), DenseRows(mechanism, KEYS)
    first = np.zeros(KEYS, np.int32)
    for t, want in enumerate(run(Memory(mechanism, noise, delay=0), trace), 1):
        parts = []
        for some in np.array_split(np.flatnonzero(trace.trigger == t), 3):
            ids, unit = np.unique(trace.unit[some], return_inverse=True)
            batch = Batch(
                trace.keys, trace.key[some], unit, trace.value[some], trace.sign[some], first
            )
            stored, part = mechanism.absorb(units.load(ids), batch)
            units.store(ids, stored)
            parts.append(part)
        whole = merge(parts)
        written, got = mechanism.release(Closed(rows.load(whole, t), whole, t), noise)
        rows.store(written)
        codes = got.key.codes().astype(np.int64)
        first = first.copy()
        first[codes] = got.status
        assert got.key.tolist() == want.key.tolist()
        np.testing.assert_array_equal(got.value, want.value)
    assert (first > 0).sum() > 3


def test_units_survive_any_order_of_loads_and_compactions() -> None:
    mechanism = made()
    dense, plain = DenseUnits(mechanism, 50), UnitTable(mechanism)
    rng = np.random.default_rng(5)
    for step in range(300):
        ids = np.sort(rng.choice(50, rng.integers(0, 20), replace=False)).astype(np.int64)
        widths = rng.integers(0, 12, len(ids))
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])
        pairs = int(start[-1])
        units = Units(
            rng.integers(0, 99, len(ids)), start, rng.integers(0, 99, pairs).astype(np.uint32),
            rng.integers(0, 9, (pairs, mechanism.lanes)).astype(np.uint16),
        )  # fmt: skip
        dense.store(ids, units)
        plain.store(ids, units)
        if step % 20 == 0:
            every = plain.ids
            for one, other in zip(dense.load(every), plain.load(every), strict=True):
                np.testing.assert_array_equal(one, other)
    assert len(dense.pair) < 20_000  # it was compacted, and often
