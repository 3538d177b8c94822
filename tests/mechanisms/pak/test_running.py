"""Further columns of running totals, and counters of stretches: values, errors, draws.

Covers: mechanisms/pak/succession.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Memory, run
from hushstream.mechanisms.pak.mechanism import Pak
from hushstream.mechanisms.pak.running import FINE, Past, Running
from hushstream.mechanisms.pak.settings import PakParameters, build

from ...audits.recorder import Recorder
from ...oracles.pak_views import (
    average_weights,
    counter_variance,
    decayed_weights,
    sliding_weights,
)
from .test_mechanism import stream

SETTING = Setting(Fraction(1), Fraction(1, 10**4), 20, columns=(("x", 0, 50),))
BOTH = PakParameters(warmup=4, expected=50, counter="tree", tail=0.05, sliding=3, decay=0.5)


def outputs(running: Running, sums: list[int], cut: int) -> np.ndarray:
    """Columns of slots with the released sums ``sums``, in two calls that meet at ``cut``."""
    prefix = [7, *(7 + np.cumsum(sums)).tolist()]
    past, first = running.after(running.begin(7), prefix[: cut + 1], 0)
    past = running.unpack(np.array([*running.pack(past), 99], np.int64))
    _, second = running.after(past, prefix[cut:], cut)
    return np.concatenate([first, second])


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_columns_are_those_of_the_sums_wherever_a_trigger_ends(cut: int) -> None:
    sums = [4, -1, 6, 9, 0, 2, 8]
    out = outputs(Running(3, Fraction(1, 2)), sums, cut)
    for end, row in enumerate(out.tolist(), 1):
        last = sums[max(0, end - 3) : end]
        assert row[0] == sum(last)
        assert abs(row[1] - FINE * sum(last) / len(last)) <= 0.5
        decayed = sum(x * 0.5 ** (end - 1 - i) for i, x in enumerate(sums[:end]))
        assert abs(row[2] - FINE * decayed) <= 1  # halves are rounded at each slot
    assert outputs(Running(3), sums, cut).shape == (7, 2)
    assert outputs(Running(0, Fraction(1, 2)), sums, cut)[:, 0].tolist() == out[:, 2].tolist()


@pytest.mark.parametrize("counter", ["tree", "hierarchy", "matrix"])
def test_stated_errors_are_those_of_the_weights(counter: str) -> None:
    """The oracle derives errors from prefix sums, the stream from slots."""
    made: Pak = build(replace(BOTH, counter=counter), SETTING)
    pieces = made._pieces((20,), (0,))
    for end in (1, 2, 3, 9, 16):
        stated = made.running.variances(pieces, end)
        for place, weights in enumerate(
            (sliding_weights(end, 3), average_weights(end, 3), decayed_weights(end, Fraction(1, 2)))
        ):
            variance = counter_variance(made.counter, 20, weights)
            scale = (1, FINE**2, FINE**2)[place]
            assert stated[place] == pytest.approx(variance * scale, rel=1e-5)


def test_columns_are_released_with_their_own_grids() -> None:
    made = build(BOTH, SETTING)
    outputs = made.traits.outputs
    assert [one.name for one in outputs] == ["sum", "prefix", "sliding", "average", "decayed"]
    assert [one.grid for one in outputs] == [1, 1, 1, Fraction(1, 64), Fraction(1, 64)]
    assert len(made.error(9)) == 5 and (made.error(9) > 0).all()
    out = list(run(Memory(made, Recorder()), stream(made, [0, 5, 6, 7, 8], [9.0] * 5)))
    assert [one.value.shape for one in out[3:6]] == [(1, 5)] * 3
    assert out[3].value[0, 2:].tolist() == [0, 0, 0] == out[3].variance[0, 2:].tolist()
    less = build(replace(BOTH, sliding=0), SETTING).traits.outputs
    assert [one.name for one in less[2:]] == ["decayed"]


@pytest.mark.parametrize("counter", ["tree", "hierarchy", "matrix"])
def test_no_draw_serves_two_stretches(counter: str) -> None:
    """Labels differ from stretch to stretch, and so do their scales."""
    made = build(replace(BOTH, counter=counter, relearn=4), SETTING)
    recorder = Recorder()
    shift = [8, 9, 10] * 30 + [3] * 50
    list(run(Memory(made, recorder), stream(made, shift, [40.0] * 90 + [2.0] * 50)))
    labels = [(one.purpose, one.key, one.index) for one in recorder.asked]
    assert len(labels) == len(set(labels))
    purposes = {purpose.split(".")[0] for purpose, _, _ in labels}
    for number in (1, 2, 3):
        assert any(purpose.endswith(f".{number}") for purpose, _, _ in labels)
    assert purposes == {"threshold", "sum", {"hierarchy": "node"}.get(counter, counter)}


def test_errors_add_up_over_stretches() -> None:
    made = build(replace(BOTH, relearn=4), SETTING)
    pieces = made._pieces((10, 40), (0, 6))
    one, other = (made._pieces((theta,), (0,)) for theta in (10, 40))
    assert pieces.variance(0, 8) == pytest.approx(one.variance(0, 4) + other.variance(0, 4))
    assert pieces.variance(3, 6) == pytest.approx(one.variance(3, 4) + other.variance(0, 2))
    assert pieces.weighted({3: 2.0, 4: 1.0}) == pytest.approx(
        4 * one.variance(3, 4) + other.variance(0, 1)
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"sliding": -1}, "sliding"),
        ({"sliding": 5000}, "sliding"),
        ({"decay": -0.5}, "decay"),
        ({"decay": 0.9999}, "decay"),
    ],
)
def test_views_out_of_range_are_named(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        build(replace(BOTH, **given), SETTING)


def test_numbers_beyond_64_bits_are_held() -> None:
    running = Running(2, Fraction(1, 2))
    past = Past((-(1 << 62),), 1 << 62)
    again, row = running.after(past, [-(1 << 62), 1 << 62], 1)
    assert row.max() <= 1 << 62 and running.pack(again)[-1] == row[0, -1]
