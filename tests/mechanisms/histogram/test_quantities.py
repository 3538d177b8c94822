"""Released values of a histogram: what a record adds to each, and the noise of each lane."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Memory, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import zero

from .bench import CODES, DELTA, EPSILON, keyed, made, trace


@pytest.mark.parametrize(
    "factorization", ["terminal", "final", "blt", "normalized", "honaker", "tree"]
)
def test_noise_has_the_stated_variance_at_every_trigger(factorization: str) -> None:
    """The test accepts σ and rejects ⅔σ and 1.5σ."""
    mechanism = made(6, keys=tuple(CODES.tolist()), factorization=factorization, budget=400)
    memory = Memory(mechanism, keyed(factorization))
    memory.row_tables[0].store(mechanism.traits.rows(CODES))
    for t in range(1, 7):
        out = memory.trigger()
        assert out.key.tolist() == CODES.tolist()
        ratio = float((out.value[:, 0].astype(float) ** 2).mean() / out.variance[0, 0])
        assert 0.9 < ratio < 1.1  # 4.5 standard errors
        assert not 0.9 < ratio * (3 / 2) ** 2 < 1.1 and not 0.9 < ratio * (2 / 3) ** 2 < 1.1
        np.testing.assert_allclose(mechanism.error(t) ** 2, out.variance[0])


@pytest.mark.parametrize("t", [1, 4, 6])
def test_noise_passes_its_quantile_as_often_as_it_should(t: int) -> None:
    """Thresholds rely on this quantile; the tolerance is four standard errors."""
    process = made(6, budget=100, factorization="toeplitz").selector
    keys = Keys.of_codes(np.arange(9000, dtype=np.uint64))
    noise = process.at(keyed(f"quantile {t}"), keys, t, np.zeros(9000, np.int64)) / 256
    passed = float((noise >= float(process.quantile(t, Fraction(1, 10)))).mean())
    assert passed == pytest.approx(0.1, abs=0.013)


def test_a_process_without_data_so_far_adds_no_noise_that_is_known() -> None:
    mechanism = made(6, adaptive_weight=0.5, budget=100)
    lane = mechanism.quantities[0].lanes[1]
    since = np.repeat([0, 2, 5], 3000)
    keys = Keys.of_codes(np.arange(9000, dtype=np.uint64))
    noise = lane.at(keyed(), keys, 6, since) / 256
    stated = lane.variance_at(6, since)
    assert stated[0] > stated[4000] > stated[7000] > 0
    for group in np.split(np.arange(9000), 3):
        assert 0.88 < float((noise[group] ** 2).mean() / stated[group[0]]) < 1.12


def test_prediction_is_the_noise_that_is_used_later() -> None:
    mechanism = made(6)
    process, keys = mechanism.quantities[0].lanes[0], CODES[:50]
    ahead = process.ahead(keyed(), keys, 2)
    since = np.zeros(50, np.int64)
    for t in range(2, 7):
        np.testing.assert_array_equal(ahead[:, t - 2], process.at(keyed(), keys, t, since))


def test_released_noise_differs_between_columns_lanes_and_keys() -> None:
    mechanism = made(4, columns=(("fare", 0, 9),), adaptive_weight=0.3)
    draws = [
        process.at(keyed(), CODES[:100], 4, np.zeros(100, np.int64)) * scale
        for quantity in mechanism.quantities
        for process in quantity.lanes
        for scale in (1.0,)
    ]
    table = np.corrcoef(np.array(draws))
    assert np.abs(table - np.eye(len(draws))).max() < 0.4


def test_sums_are_clipped_centred_and_shifted_back() -> None:
    columns = (("fare", -20, 181), ("tip", 3, 3))
    mechanism = made(6, columns=columns, keys=(CODES[0],), budget=9)
    assert [column.middle for column in mechanism.summed] == [80, 3]
    assert [column.reach() for column in mechanism.summed] == [101, 1]
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    memory.absorb(trace([(1, 1, 0), (1, 2, 0)], CODES[:1], [[-500, 9], [90, 0]]))
    out = memory.trigger()
    assert out.value.tolist() == [[2, 70, 6]]
    assert out.variance[0, 1] > 80**2 * out.variance[0, 0]
    assert [output.name for output in mechanism.traits.outputs] == ["count", "sum:fare", "sum:tip"]


@pytest.mark.parametrize("selection", ["threshold", "rounds"])
def test_a_value_beyond_its_clip_range_moves_a_sum_no_further_than_its_end(selection: str) -> None:
    setting = Setting(EPSILON, DELTA, 4, columns=(("fare", 0, 100),), grids=(Fraction(1),))
    mechanism = build(HistogramParameters(selection=selection), setting)
    value = np.array([[10**6], [-(10**6)], [30]])
    batch = Batch(
        CODES[:3], np.arange(3), np.arange(3), value, np.ones(3, np.int8), np.zeros(3, np.int32)
    )
    _, part = mechanism.absorb(mechanism.traits.units(3), batch)
    assert part.sums[:3, 1].tolist() == [50, -50, -20]


def test_sums_alone_spend_nothing_on_a_count() -> None:
    columns = (("fare", 0, 100),)
    alone = made(6, columns=columns, keys=(CODES[0],), count=False)
    assert len(alone.quantities) == 1 and alone.summed[0].middle == 0
    assert [output.name for output in alone.traits.outputs] == ["sum:fare"]
