"""A tree whose threshold changes: each stretch has independent noise at its own scale."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.parts.trees.hierarchy import Chunks
from hushstream.mechanisms.parts.trees.stretches import Stretches

from ....audits.recorder import Recorder

CHUNKS = Chunks(2, 2, Fraction(1))
TREE = Stretches(CHUNKS, 6, (1 << 12, 1 << 14, 1 << 10))


def test_each_stretch_has_the_variance_of_its_threshold() -> None:
    """Each stretch fills a chunk of four blocks and half of the next."""
    parts = [CHUNKS.variance(theta, 0, 6) for theta in TREE.thetas]
    assert TREE.variance(0, 0, 18) == pytest.approx(sum(parts))
    assert TREE.variance(0, 6, 12) == pytest.approx(parts[1])
    assert TREE.variance(0, 5, 7) == pytest.approx(
        CHUNKS.variance(1 << 12, 5, 6) + CHUNKS.variance(1 << 14, 0, 1)
    )
    extra = {5: 0.5, 6: 0.5}
    assert TREE.variance(0, 0, 0, extra) == pytest.approx(
        (CHUNKS.variance(1 << 12, 5, 6) + CHUNKS.variance(1 << 14, 0, 1)) / 4
    )
    moved = TREE.restarted((0, 8))
    assert moved.variance(0, 6, 12) == pytest.approx(
        CHUNKS.variance(1 << 14, 0, 2) + CHUNKS.variance(1 << 14, 0, 4)
    )


def test_the_noise_is_that_of_the_stated_variance() -> None:
    drawn = []
    for number in range(400):
        noise = KeyedNoise(
            b"s" * 32, charge=b"c" * 32, mechanism="m", config=b"", pipeline="p",
            window=str(number), nonces=STEADY,
        )  # fmt: skip
        start, z = TREE.prefix(noise, 0, 9)
        assert start == 6
        drawn.append(float(z))
    assert 0.75 < np.mean(np.square(drawn)) / TREE.variance(0, 6, 9) < 1.33


def test_no_draw_serves_two_thresholds() -> None:
    recorder = Recorder()
    for end in range(1, 19):
        TREE.prefix(recorder, 0, end)
    places = [(one.purpose, one.key, one.index) for one in recorder.asked]
    assert len(places) == len(set(places))
    assert {one.parameter for one in recorder.asked} == {theta * 2 for theta in TREE.thetas}


def test_a_stretch_waits_for_its_threshold() -> None:
    with pytest.raises(ContractError, match="before its threshold is known"):
        TREE.prefix(Recorder(), 0, 19)
