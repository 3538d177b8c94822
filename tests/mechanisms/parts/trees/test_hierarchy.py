"""Chunks and the infinite tree: scales, variances, choices, and the published flaw of the scale."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import I64
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.parts.trees.hierarchy import (
    Chunks,
    InfiniteTree,
    choose_height,
    laplace_variance,
)


def keyed(window: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"h" * 32,
        charge=b"c" * 32,
        mechanism="m",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


class Recorder:
    """Zero noise that records which draws it was asked for. Not hashable, hence never cached."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.asked: dict[tuple[str, bytes, int], Fraction] = {}

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        for k in key:
            self.asked |= {(purpose, k, int(i)): scale for i in index}
        return np.zeros((len(key), len(index)), np.int64)


def test_the_least_height_that_holds_a_window() -> None:
    assert [choose_height(16, n) for n in (1, 17, 2**20)] == [1, 2, 5]


@pytest.mark.parametrize("theta", [1, 40])
def test_a_record_pays_epsilon_over_its_path(theta: int) -> None:
    """Σ θ/scale over the nodes above any block is ε; if the scale ignored θ, it would be θε."""
    epsilon = Fraction(1, 3)
    chunks, recorder = Chunks(4, 3, epsilon), Recorder()
    chunks.prefix(recorder, theta, 1)  # type: ignore[arg-type]
    assert len(recorder.asked) == 64 + 16 + 4  # the whole chunk, no root
    for block in range(64):
        path = [("node.0", block), ("node.1", block // 4), ("node.2", block // 16)]
        key = (0).to_bytes(8, "big")
        spent = sum(Fraction(theta) / recorder.asked[p, key, i] for p, i in path)
        assert spent == epsilon
        flawed = sum(Fraction(theta) / Fraction(3) * epsilon for _ in path)
        assert (flawed > epsilon) == (theta > 1)


def test_a_record_pays_epsilon_in_the_infinite_tree() -> None:
    tree = InfiniteTree(2, Fraction(1, 2))
    spent = [sum(Fraction(7) / tree.scale(7, j) for j in range(1, n)) for n in (2, 5, 200)]
    assert spent == [Fraction(1, 2) * (1 - Fraction(1, n)) for n in (2, 5, 200)]
    for end in range(1, 70):
        covered = [i for level, index in tree.nodes(end) for i in span(level, index)]
        assert sorted(covered) == list(range(end))


@pytest.mark.parametrize("fanout,blocks", [(2, 1), (2, 7), (2, 8), (16, 15), (16, 16), (16, 5000)])
def test_an_infinite_tree_with_an_end_spends_all_of_epsilon(fanout: int, blocks: int) -> None:
    """A block pays exactly ε over the levels that prefixes use; blocks past the end are refused."""
    epsilon = Fraction(1, 2)
    tree, recorder = InfiniteTree(fanout, epsilon, blocks=blocks), Recorder()
    for end in range(1, blocks + 1) if blocks < 100 else (blocks, 256, 4096):
        tree.prefix(recorder, 7, end)  # type: ignore[arg-type]
    used = {purpose: scale for (purpose, _, _), scale in recorder.asked.items()}
    assert sum(Fraction(7) / scale for scale in used.values()) == epsilon
    plain = InfiniteTree(fanout, epsilon)
    assert tree.scale(7, 1) < plain.scale(7, 1)
    with pytest.raises(ContractError, match="beyond"):
        tree.prefix(recorder, 7, blocks + 1)  # type: ignore[arg-type]


def span(level: int, index: int) -> range:
    return range(index * 2 ** (level - 1), (index + 1) * 2 ** (level - 1))


def test_each_chunk_and_purpose_has_noise_of_its_own() -> None:
    chunks, recorder = Chunks(2, 2, Fraction(1)), Recorder()
    for end in (1, 4, 5, 8, 9):
        start, _ = chunks.prefix(recorder, 3, end)  # type: ignore[arg-type]
        assert start == (end - 1) // 4 * 4
    assert len(recorder.asked) == 3 * 6
    noise = keyed()
    first, other = Chunks(2, 2, Fraction(1)), Chunks(2, 2, Fraction(1), "warmup")
    assert first.draw(noise, 50, 0)[0].tolist() != other.draw(noise, 50, 0)[0].tolist()
    assert first.prefix(noise, 50, 3) == first.prefix(keyed(), 50, 3)
    assert first.prefix(noise, 0, 3) == (3, 0)


@pytest.mark.spread(9)
@pytest.mark.parametrize("tree", [Chunks(4, 2, Fraction(1, 2)), InfiniteTree(4, Fraction(1, 2))])
@pytest.mark.parametrize("first,end", [(0, 3), (0, 16), (3, 14), (5, 39)])
def test_measured_variance_of_ranges(tree: Chunks | InfiniteTree, first: int, end: int) -> None:
    """The test accepts σ and rejects ⅔σ and 1.5σ."""
    draws = []
    for run in range(400):
        noise, total = keyed(str(run)), Fraction(0)
        for low, high in edges(tree, first, end):
            total += tree.prefix(noise, 6, high)[1]
            total -= tree.prefix(noise, 6, low)[1] if low > tree.prefix(noise, 6, high)[0] else 0
        draws.append(float(total))
    ratio = np.var(draws) / tree.variance(6, first, end)
    assert 0.7 < ratio < 1.4
    assert not 0.7 < ratio * 9 / 4 < 1.4 and not 0.7 < ratio * 4 / 9 < 1.4


def edges(tree: Chunks | InfiniteTree, first: int, end: int) -> list[tuple[int, int]]:
    """The range cut at chunk boundaries."""
    if isinstance(tree, InfiniteTree):
        return [(first, end)]
    cuts = [first, *range(first // tree.blocks * tree.blocks + tree.blocks, end, tree.blocks), end]
    return list(itertools.pairwise(cuts))


def test_variance_adds_up_over_chunks() -> None:
    chunks = Chunks(2, 2, Fraction(1))
    whole = chunks.variance(5, 0, 4)
    assert chunks.variance(5, 0, 12) == pytest.approx(3 * whole)
    expected = chunks.variance(5, 2, 4) + 2 * whole + chunks.variance(5, 0, 1)
    assert chunks.variance(5, 2, 13) == pytest.approx(expected)
    mixed = chunks.variance(5, 0, 8, {1: -1.0, 9: 2.0})
    parts = chunks.variance(5, 0, 4, {1: -1.0}) + whole + 4 * chunks.variance(5, 0, 1)
    assert mixed == pytest.approx(parts)


@pytest.mark.parametrize("scale", [0.1, 0.5, 3, 9, 10, 11, 1000])
def test_the_variance_of_discrete_laplace(scale: float) -> None:
    a = math.exp(-1 / scale)
    expected = 2 * a / (1 - a) ** 2
    assert laplace_variance(Fraction(scale)) == pytest.approx(expected, rel=1e-8)
    assert laplace_variance(Fraction(0)) == 0


def test_no_noise_without_a_noise() -> None:
    assert Chunks(2, 3, Fraction(1)).prefix(zero, 5, 7) == (0, 0)
    assert InfiniteTree(2, Fraction(1)).prefix(zero, 5, 7) == (0, 0)
