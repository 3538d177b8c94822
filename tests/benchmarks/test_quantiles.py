"""The benchmark of quantiles: releases from a broker are judged like those in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import _quantile_rows
    import _quantiles_broker
    import quantiles
finally:
    sys.path.pop(0)

AT = quantiles.AT


def read(truth: quantiles.World, keys: list[int], moved: float = 0.0) -> pa.Table:
    """A release of exact quantiles of some keys, shifted by ``moved``."""
    exact = np.array([[np.quantile(truth.sorted[key], q) for q in AT] for key in keys]) + moved
    columns = {"product": [_quantiles_broker.product(key) for key in keys]}
    for number, q in enumerate(AT):
        name = f"p{round(100 * q)}"
        ends = {"": 0.0, "_low": -0.5, "_high": 0.5}
        columns |= {name + end: exact[:, number] + add for end, add in ends.items()}
    return pa.table(columns)


def test_exact_answers_are_right_in_any_order_of_rows_and_a_missing_key_is_wrong() -> None:
    truth = quantiles.world(3, 1)
    value, ends = _quantiles_broker.columns(read(truth, [2, 0]), 3, AT)
    error, held = quantiles.rank_errors(truth, value), quantiles.held(truth, ends)
    assert error[[0, 2]].max() < 0.005 and held[[0, 2]].all()
    assert error[1].min() >= 0.05 and not held[1].any()


def test_answers_beside_the_truth_are_wrong() -> None:
    truth = quantiles.world(3, 1)
    value, ends = _quantiles_broker.columns(read(truth, [0, 1, 2], moved=3.0), 3, AT)
    assert quantiles.rank_errors(truth, value).min() > 0.01
    assert not quantiles.held(truth, ends).any()


def test_bytes_of_a_key_are_those_of_its_stored_row() -> None:
    made, counts = quantiles.mechanism(None), np.zeros((2, 256), np.int64)
    counts[0, 0], counts[1] = 1, 1 << 62
    # due trigger, count, zeros, first trigger; then the fixed layout
    assert _quantile_rows.size(made, counts[:1]) == 4 + 1 + 3 + 1
    assert _quantile_rows.size(made, counts[1:]) == 4 + 256 * 8 + 4
    assert _quantile_rows.size(made, counts) == (9 + 2056) / 2
