"""Thresholds without a last trigger: their probabilities add up to δ.

Covers: mechanisms/histogram/endless/settings.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import catalogue, factorization
from hushstream.mechanisms.columns import Closed, Part
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization import endless
from hushstream.mechanisms.histogram.endless.thresholds import share
from hushstream.mechanisms.histogram.entry import build
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import RowTable

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 1 << 24, endless=True)


def made(**given: object) -> Histogram:
    mechanism = build(HistogramParameters(budget=4, **given), SETTING)  # type: ignore[arg-type]
    assert isinstance(mechanism, Histogram)
    return mechanism


def test_all_triggers_together_fail_with_less_than_delta() -> None:
    delta, total = Fraction(1, 100), Fraction(0)
    for octave in range(14):
        first = share(1 << octave, delta)
        assert first == share((2 << octave) - 1, delta) > 0
        total += first * (1 << octave)
        assert total == delta * (1 - Fraction(1, octave + 2))


def test_a_threshold_pays_for_its_share_of_delta_at_every_number_of_records() -> None:
    mechanism = made()
    process = mechanism.selector
    for t in (1, 2, 100, 1500):
        bar = Fraction(mechanism.threshold[t - 1], 256)
        for m in (1, 2):
            beta = share(t, SETTING.delta / 2) * m * m / 4
            assert bar >= m + process.quantile(t, beta)
    assert mechanism.threshold[3:6] == [mechanism.threshold[t] for t in (3, 4, 5)]


def test_no_table_of_all_triggers_is_made_before_they_are_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, make = list[int](), endless.Shifted.made
    monkeypatch.setattr(
        endless.Shifted, "made", lambda horizon: made.append(horizon) or make(horizon)
    )
    factorization.matrix._endless.cache_clear()
    mechanism = catalogue.build("histogram", HistogramParameters(), SETTING)
    assert made == [endless.LEAST]
    assert isinstance(mechanism, Histogram)
    bound = mechanism.error(mechanism.horizon)
    last = mechanism.selector.variance_at(1 << 14, np.zeros(1, np.int64)) ** 0.5
    assert made == [endless.LEAST, 1 << 14]
    assert (last < bound).all() and (bound < 8 * last).all()


@pytest.mark.parametrize(("given", "match"), [
    ({"selection": "rounds", "budget": 4}, "selection"), ({"debias": True}, "debias"),
    ({"adaptive_weight": 0.5}, "adaptive_weight"), ({"last_share": 0.7}, "last_share"),
    ({"factorization": "blt"}, "one of its own"),
])  # fmt: skip
def test_what_needs_a_last_trigger_is_refused(given: dict[str, object], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        build(HistogramParameters(**given), SETTING)  # type: ignore[arg-type]


def test_the_matrix_without_an_end_is_for_windows_without_an_end() -> None:
    with pytest.raises(ParameterError, match=r"window\.endless"):
        build(HistogramParameters(factorization="endless"), Setting(Fraction(1), Fraction(1, 9), 4))


def test_a_hidden_key_is_looked_at_again_before_its_predictions_end() -> None:
    mechanism = build(HistogramParameters(budget=1), replace(SETTING, delta=Fraction(9, 10)))
    assert isinstance(mechanism, Histogram)
    noise = KeyedNoise(
        bytes(32), charge=bytes(32), mechanism="m", config=b"", pipeline="p", window="w",
        nonces=STEADY,
    )  # fmt: skip
    keys = Keys.of_codes(np.arange(2000, dtype=np.uint64))
    table, shown, last = RowTable(mechanism.traits), {}, 150
    for t in range(1, last + 1):
        some = keys if t == 1 else Keys.of([])
        part = Part(
            some, np.zeros(len(some), np.uint8), np.ones((len(some), 1), np.int64),
            np.zeros(0, np.int64),
        )  # fmt: skip
        rows, out = mechanism.release(Closed(table.load(part, t), part, t), noise)
        table.store(rows)
        for key in out.key.tolist():
            shown.setdefault(key, t)
    # A key is shown when its noisy count first reaches the threshold, with data or without.
    ahead = [mechanism.selector.ahead(noise, keys, t) for t in range(1, last + 1, 64)]
    bars = np.array(mechanism.threshold[: 64 * len(ahead)])
    reached = (256 + np.concatenate(ahead, axis=1) >= bars)[:, :last]
    first = {
        key: int(row.argmax()) + 1
        for key, row in zip(keys.tolist(), reached, strict=True)
        if row.any()
    }
    assert shown == first
    assert any(t > 64 for t in shown.values())
