"""The grid of draws: which word breaks which tie, and bounded chunks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import _grid as grid
from hushstream.mechanisms.noise._prf import Prf
from hushstream.mechanisms.noise._samplers import Sampler
from hushstream.mechanisms.noise._tables import build

SECRET = bytes(range(32))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1)])
def test_ties_take_the_second_word_of_their_own_key_and_index(shape: tuple[int, int]) -> None:
    """The table's only threshold is at the word of one cell, so only that cell is a tie."""
    prf, index = Prf(SECRET), np.arange(shape[1])
    states = prf.states(Keys.of(f"{i}".encode() for i in range(shape[0])))
    words = prf.blocks(states[:, None], index[None], 0)[..., 0]
    row, column = shape[0] - 1, shape[1] - 2 if shape[1] > 1 else 0
    second = int(prf.blocks(states[row], index[column : column + 1], grid.TIE)[0, 0])
    for threshold, expected in ((second, 1), (second + 1, 0)):
        edge = (int(words[row, column]) << 64) | threshold
        table = build(0, [edge, (1 << 128) - edge])
        assert table.thresholds() == [edge]
        drawn = grid.chunk(prf, states, index, Sampler((table,), 1, False, Fraction(0)))
        clear = words > words[row, column]
        clear[row, column] = expected
        np.testing.assert_array_equal(drawn, clear)


@pytest.mark.parametrize("rows", [0, 1, 3, 10])
@pytest.mark.parametrize("columns", [0, 1, 4, 9])
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_chunks_cover_everything_once_and_stay_small(
    rows: int, columns: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "CHUNK", chunk)
    prf, keys = Prf(SECRET), Keys.of(bytes([i]) * i for i in range(rows))
    covered = np.zeros((rows, columns), int)
    for states, down, across in grid._chunks(prf, keys, np.arange(columns)):
        part = covered[down, across]
        assert 0 < part.size <= chunk
        np.testing.assert_array_equal(states, prf.states(keys)[down])
        covered[down, across] += 1
    assert (covered == 1).all()
