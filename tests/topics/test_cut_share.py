"""The share that was cut: within [0, 1], with an interval that covers as often as stated."""

from __future__ import annotations

import math
from random import Random

import pytest
from hushstream.topics.cut_share import cut_share
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.floats(-1e6, 1e12)
SPREADS = st.floats(0.1, 1e5)
Z95 = 1.959963984540054
LOOKS = 4000
FALSE_ALARM = 5.0  # standard deviations of the number of intervals that cover: below 10^-6


@given(COUNTS, SPREADS, COUNTS, SPREADS, st.floats(0.1, 4))
def test_share_and_interval_are_shares_and_in_order(arrived, one, accepted, other, z) -> None:
    found = cut_share(arrived, one, accepted, other, z)
    assert 0 <= found.low <= found.high <= 1
    if found.share is None:
        assert (found.low, found.high) == (0, 1) and arrived <= z * one * (1 + 1e-9)
    else:
        assert found.low <= found.share <= found.high
        assert math.isclose(found.share, min(max(1 - accepted / arrived, 0), 1), abs_tol=1e-5)


@pytest.mark.parametrize("accepted", [1.0, 0.9, 0.5, 0.1, 0.0])
@pytest.mark.parametrize("noise", [0.003, 0.1, 0.4, 3.0])
def test_the_interval_covers_the_exact_share_as_often_as_it_says(accepted, noise) -> None:
    """With Gaussian noise of another generator; ``noise`` is relative to arrived records."""
    draw, arrived = Random(f"{accepted} {noise}"), 10_000
    spread, truth = noise * arrived, 1 - accepted
    covered = 0
    for _ in range(LOOKS):
        seen = draw.gauss(arrived, spread), spread, draw.gauss(accepted * arrived, spread), spread
        found = cut_share(*seen, Z95)
        covered += found.low - 1e-9 <= truth <= found.high + 1e-9
    least = 0.95 * LOOKS - FALSE_ALARM * math.sqrt(0.95 * 0.05 * LOOKS)
    most = 0.95 * LOOKS + FALSE_ALARM * math.sqrt(0.95 * 0.05 * LOOKS)
    assert covered >= least
    if noise < 0.2 and 0 < accepted < 1:  # else the interval is cut at 0 or 1 and covers more
        assert covered <= most
