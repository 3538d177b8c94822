"""The filter of units on disk: it never reports an existing row as missing."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.agents.state.units.filter import filter_of, possible
from hushstream.agents.state.units.packed import Digests


def digests(rng: np.random.Generator, n: int) -> Digests:
    """Digests of a range whose units share the first eight bits."""
    words = rng.integers(0, 1 << 63, (2, n)).astype(np.uint64) << np.uint64(1)
    return Digests(words[0] >> np.uint64(8), words[1])


@pytest.mark.parametrize("n", [0, 1, 3, 700, 65_536])
def test_what_is_there_is_possible_and_almost_nothing_else(n: int):
    rng = np.random.default_rng(n)
    there = digests(rng, n)
    words = filter_of(there)
    assert possible(words, there).all()
    assert possible(words, digests(rng, 20_000)).mean() < 0.05
    assert words.nbytes <= max(4 * n, 16)
