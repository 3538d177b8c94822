"""Relearnt thresholds: what a record pays, which draws each stretch uses, and refusals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.noise import zero
from hushstream.mechanisms.pak.settings import PakParameters
from hushstream.mechanisms.slots.relearning import Exceedance, Learnt, Relearning
from hushstream.mechanisms.tops.settings import TopsParameters

from ...audits.recorder import Recorder

SETTING = Setting(Fraction(2), Fraction(1, 10**6), 20, columns=(("x", 0, 50),))
TOPS = TopsParameters(warmup=4, relearn=4, relearn_share=0.25, watch=0.125)
PAK = PakParameters(warmup=4, relearn=4, relearn_share=0.25, watch=0.125, counter="tree")
FOUR = Relearning(Exceedance(Fraction(1), (0, 1, 9)), every=4, warmup=2, horizon=12)
CANDIDATES = (5, 10, 20)


def build(given: Any, setting: Setting = SETTING) -> Any:
    return find("pak" if isinstance(given, PakParameters) else "tops").build(given, setting)


@pytest.mark.parametrize("bound", [1, 3])
def test_shares_of_epsilon_add_up(bound: int) -> None:
    """After the warm-up, the draws that cover a record add up to the whole ε."""
    each = Fraction(2, bound)
    tops = build(replace(TOPS, bound=bound))
    assert tops.relearning.chooser.epsilon == each / 4
    assert tops.watch + tops.relearning.chooser.epsilon + tops.tree.epsilon == each
    assert tops.cost().epsilon == 2
    pak = build(replace(PAK, bound=bound))
    assert pak.watch + pak.relearning.chooser.epsilon + pak.counter.epsilon == each
    assert pak.counter.horizon == 4 and pak.cost().epsilon == 2


def test_counts_of_a_stretch_choose_the_threshold_of_the_next() -> None:
    counts, learnt = np.array([0, 3, 1]), FOUR.unpack(FOUR.begin(10, 3), 3, 3)
    for t in range(3, 6):
        learnt = FOUR.after(learnt, counts, CANDIDATES, zero, t)
        learnt = FOUR.unpack(FOUR.pack(learnt), t + 1, 3)
        assert learnt.thresholds == (10,)
    assert learnt.histogram.tolist() == [0, 9, 3]
    learnt = FOUR.after(learnt, counts, CANDIDATES, zero, 6)
    # Over four triggers 16, 4, 0 values exceed 5, 10, 20; with the penalty 10 is best.
    assert learnt.thresholds == (10, 10) and not learnt.histogram.any()
    for t in range(7, 11):
        learnt = FOUR.after(learnt, counts * 5, CANDIDATES, zero, t)
    assert learnt.thresholds == (10, 10, 20)  # 20 values above 10 outweigh the saved penalty
    for t in (11, 12):
        learnt = FOUR.after(learnt, counts, CANDIDATES, zero, t)
    assert len(learnt.thresholds) == FOUR.stretches == 3  # nothing is chosen at the end of a window


def test_each_stretch_chooses_with_draws_of_its_own() -> None:
    recorder, learnt = Recorder(), Learnt((10,), np.zeros(3, np.int64))
    for t in range(3, 13):
        learnt = FOUR.after(learnt, np.ones(3, np.int64), CANDIDATES, recorder, t)
    assert {one.purpose for one in recorder.asked} == {"threshold.1", "threshold.2"}
    assert {(one.purpose, t) for one, t in recorder.asked.items()} == {
        ("threshold.1", 6),
        ("threshold.2", 10),
    }
    assert {one.parameter for one in recorder.asked} == {Fraction(1)}


def test_a_lost_threshold_stops_the_stream() -> None:
    with pytest.raises(ContractError, match="threshold of a stretch is missing"):
        FOUR.unpack(FOUR.begin(10, 3), 7, 3)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (replace(TOPS, relearn=-1), "relearn"),
        (replace(TOPS, relearn=16), "relearn"),
        (replace(TOPS, relearn_share=0.0), "relearn_share"),
        (replace(TOPS, relearn_share=0.9), "relearn_share"),
        (replace(TOPS, stream="infinite"), "relearn"),
        (replace(TOPS, skip=3, fanout=2), "skip"),
        (replace(PAK, threshold="top"), "relearn"),
        (replace(PAK, threshold="smooth"), "relearn"),
    ],
)
def test_settings_that_clash_are_named(given: Any, name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        build(given)


def test_too_many_stretches_are_refused() -> None:
    with pytest.raises(ParameterError, match="256 stretches"):
        build(replace(TOPS, relearn=1), replace(SETTING, horizon=300))


def test_what_is_not_used_is_not_charged() -> None:
    """If a stream keeps its threshold, its charged configuration omits the unused settings."""
    plain = TopsParameters(warmup=4).pinned()
    assert not {"relearn", "relearn_share"} & plain.keys() and plain["watch"] == 0.0
    assert TOPS.pinned()["relearn"] == 4 and TOPS.pinned()["relearn_share"] == 0.25
    assert not {"sliding", "decay", "relearn"} & PakParameters().pinned().keys()
    assert replace(PAK, decay=0.5).pinned()["decay"] == 0.5
