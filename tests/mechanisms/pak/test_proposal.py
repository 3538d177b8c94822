"""Advice on PAK: predictions against streams with the assumed tail, and when B is better.

Covers: mechanisms/pak/planner.py
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.pak import proposal as pak_proposal
from hushstream.mechanisms.pak.settings import PakParameters, build

TOP, SCALE, EACH = 3000, 100, 600
propose = cache(pak_proposal.propose)
SETTING = Setting(Fraction(1), Fraction(1, 10**6), 18, columns=(("x", 0, TOP),))
GIVEN = PakParameters(expected=EACH, warmup=4, excess=SCALE)


def measured(parameters: PakParameters, draws: int) -> float:
    """Mean absolute error of the last prefix sum over streams of exponential values."""
    mechanism, errors = build(parameters, SETTING), []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        time = np.sort(rng.integers(0, 18, 18 * EACH))
        value = np.minimum(rng.exponential(SCALE, len(time)), TOP)
        coded = mechanism.encode({"time": time, "value": value})
        trace = Trace(
            mechanism.slots.closing(time), np.arange(len(time)), coded.keys, coded.key,
            coded.value, np.ones(len(time), np.int8),
        )  # fmt: skip
        noise = KeyedNoise(
            b"b" * 32, charge=bytes(32), mechanism="pak", config=b"", pipeline="p",
            window=str(seed), nonces=STEADY,
        )  # fmt: skip
        *_, last = run(Memory(mechanism, noise), trace)  # type: ignore[arg-type]
        shown = float(last.value[-1, 1]) / mechanism.counter.steps
        errors.append(abs(shown - float(value.sum())))
    return float(np.mean(errors))


@pytest.mark.thorough
def test_predicted_errors_are_those_of_such_streams() -> None:
    """Within the spread of a few streams, and of the counter's noise over a window."""
    found = propose(GIVEN, SETTING)
    assert found.clip and found.configured is not None
    assert found.error <= found.configured < found.top
    for parameters, predicted in (
        (found.parameters, found.error),
        (replace(GIVEN, threshold="top", warmup=1), found.top),
    ):
        real = measured(parameters, 12)
        assert 0.65 * predicted < real < 1.35 * predicted
    assert 2 * measured(found.parameters, 8) < measured(replace(GIVEN, threshold="top"), 8)


def test_what_was_configured_badly_is_seen() -> None:
    poor = replace(GIVEN, tail=0.5, safety=1.0, factor=1.0)
    found = propose(poor, SETTING)
    assert found.configured is not None and found.configured > 5 * found.error
    assert found.error <= propose(GIVEN, SETTING).error
    assert propose(found.parameters, SETTING).configured == pytest.approx(found.error)


@pytest.mark.thorough
def test_the_largest_value_is_better_where_values_fill_the_range() -> None:
    found = propose(GIVEN, SETTING, scale=2000)
    assert not found.clip and found.parameters.threshold == "top" and found.error == found.top
    assert found.parameters.warmup == 1  # there is nothing to learn
    assert build(found.parameters, SETTING).chooser is None
    for scale in (20, 300):  # a threshold wins up to 0.8 times the stated break-even
        one = propose(GIVEN, SETTING, scale=scale)
        even = one.break_even / -math.log(one.tail)
        assert one.clip and one.break_even <= TOP
        assert propose(GIVEN, SETTING, scale=0.8 * even).clip
    assert propose(found.parameters, SETTING).configured == pytest.approx(found.top)
    again = propose(replace(GIVEN, threshold="top"), SETTING)
    assert again.clip and again.parameters.threshold == "auto"


@pytest.mark.thorough
def test_more_records_are_another_stream() -> None:
    few, many = propose(GIVEN, SETTING, 1800), propose(GIVEN, SETTING, 1_800_000)
    assert (few.records, many.records) == (1800, 1_800_000)
    assert (few.parameters.expected, many.parameters.expected) == (100, 100_000)
    assert few.configured == few.error  # the configuration is already best for few records
    assert many.configured is not None and many.error < 0.97 * many.configured
    ranks = replace(GIVEN, threshold="noisy-max")
    assert propose(ranks, SETTING, 1800).choice is None  # with few records, ranks are noise
    assert propose(ranks, SETTING, 1_800_000).choice is not None


def test_what_is_published_stays_as_it_is() -> None:
    found = propose(replace(GIVEN, publish_warmup=False), SETTING)
    assert found.parameters.warmup == 4 and found.choice is None
    assert not found.parameters.publish_warmup
    build(found.parameters, SETTING)


def test_the_smooth_threshold_is_never_proposed() -> None:
    found = propose(replace(GIVEN, threshold="smooth"), SETTING)
    assert found.parameters.threshold == "auto" and found.clip
    assert found.configured is not None


def test_no_threshold_can_come_of_too_short_a_warmup() -> None:
    with pytest.raises(ParameterError, match="records"):
        propose(GIVEN, SETTING, 1)
    with pytest.raises(ParameterError, match="excess"):
        propose(GIVEN, SETTING, scale=float("nan"))
    # rank 1 of 1 expected record exists, however noisy it is
    assert propose(replace(GIVEN, expected=1, warmup=1), SETTING).configured is not None
    rank = replace(GIVEN, expected=1, warmup=1, tail=1.0, safety=1.0)
    assert propose(rank, SETTING).configured is None  # one record has no second largest
