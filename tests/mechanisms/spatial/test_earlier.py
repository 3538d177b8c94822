"""An earlier map inside a newer one: sums stay, and shares are adopted as far as the maps agree."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.spatial.domain import Domain, bit_level
from hushstream.mechanisms.spatial.earlier import LeafCounts, Mass, agreement, divided

from .test_smooth import ancestor, tree

SQUARE = Domain.unit(2, 5, "all")
DOMAINS = [SQUARE, Domain.unit(2, 9), Domain.unit(1, 8), Domain.unit(3, 7)]


def grown(domain: Domain, seed: int, leaves: int = 40) -> LeafCounts:
    codes, counts = tree(domain, seed, leaves)
    return LeafCounts(codes, counts.astype(float))


def cells(domain: Domain, weight: np.ndarray, depth: int, records: float) -> LeafCounts:
    """All cells of a depth; records are shared among them by the weights of their finest cells."""
    finest = np.arange(1 << domain.bits, 2 << domain.bits, dtype=np.uint64)
    drop = (domain.depth - depth) * domain.step
    codes, place = np.unique(finest >> np.uint64(drop), return_inverse=True)
    return LeafCounts(codes, np.bincount(place, weight / weight.sum() * records))


def hills(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).pareto(1.0, 1 << SQUARE.bits)


def rough(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, 1.0, 1 << SQUARE.bits)


def inside(domain: Domain, leaves: LeafCounts, node: int) -> float:
    """Records in a node, added up leaf by leaf."""
    found = 0.0
    for code, count in zip(leaves.code.tolist(), leaves.held.tolist(), strict=True):
        up = code.bit_length() - node.bit_length()
        if up >= 0 and code >> up == node:
            found += count
        elif up < 0 and node >> -up == code:
            found += count * 2.0**up
    return found


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("seed", range(3))
def test_finer_cells_add_up_to_their_leaf(domain: Domain, seed: int) -> None:
    newer, earlier = grown(domain, seed, 12), grown(domain, seed + 9, 80)
    fine, held = divided(domain, newer, earlier, 50.0)
    assert (np.diff(fine.astype(np.int64)) > 0).all() and (held >= 0).all()
    assert len(fine) > len(newer.code)
    sums = np.bincount(ancestor(fine, newer.code), held, len(newer.code))
    np.testing.assert_allclose(sums, newer.held, atol=1e-6)
    assert (0.5 ** bit_level(fine)).sum() == 1.0  # they partition the domain


@pytest.mark.parametrize("domain", DOMAINS)
def test_records_of_a_node_are_those_of_its_leaves(domain: Domain) -> None:
    leaves = grown(domain, 4, 50)
    draw = np.random.default_rng(1)
    levels = draw.integers(0, domain.depth + 1, 60) * domain.step
    nodes = [int((1 << n) + draw.integers(1 << n)) for n in levels]
    found = Mass(domain, leaves).of(np.array(nodes, np.uint64))
    np.testing.assert_allclose(found, [inside(domain, leaves, node) for node in nodes])


def test_maps_of_one_law_are_divided_alike() -> None:
    law = hills(3)
    newer, earlier = cells(SQUARE, law, 3, 50_000.0), cells(SQUARE, law, 5, 400_000.0)
    agreed = agreement(SQUARE, newer, earlier, 20.0)
    assert len(agreed.slope) == 3 and min(agreed.slope) > 0.98
    fine, held = divided(SQUARE, newer, earlier, 20.0)
    truth = cells(SQUARE, law, 5, 50_000.0)
    blind = newer.held[ancestor(truth.code, newer.code)] / 16
    assert fine.tolist() == truth.code.tolist()
    assert np.abs(held - truth.held).sum() < 0.1 * np.abs(blind - truth.held).sum()


def test_maps_without_anything_in_common_are_divided_nearly_evenly() -> None:
    """Of twenty pairs of laws some agree a little by chance; on average little is lost."""
    lost, slopes = [], []
    for seed in range(20):
        newer = cells(SQUARE, rough(seed), 4, 50_000.0)
        earlier = cells(SQUARE, rough(seed + 100), 5, 400_000.0)
        slopes.append(agreement(SQUARE, newer, earlier, 20.0).slope[-1])
        _, held = divided(SQUARE, newer, earlier, 20.0)
        truth = cells(SQUARE, rough(seed), 5, 50_000.0)
        blind = newer.held[ancestor(truth.code, newer.code)] / 4
        lost.append(np.abs(held - truth.held).sum() / np.abs(blind - truth.held).sum())
    assert np.mean(slopes) < 0.15 and np.mean(lost) < 1.05 and max(lost) < 1.15


def test_a_map_that_is_upside_down_is_not_turned_over() -> None:
    """If shares oppose the earlier ones, the agreement is zero, never negative."""
    law = hills(3)
    newer, earlier = cells(SQUARE, 1 / law, 4, 50_000.0), cells(SQUARE, law, 5, 400_000.0)
    slope = agreement(SQUARE, newer, earlier, 20.0).slope
    assert min(slope) >= 0.0 and slope[-1] < 0.05


def test_noise_hides_agreement_and_half_is_assumed() -> None:
    newer, earlier = cells(SQUARE, hills(3), 1, 10.0), cells(SQUARE, hills(3), 5, 400_000.0)
    (slope,) = agreement(SQUARE, newer, earlier, 1e9).slope
    assert slope == pytest.approx(0.5, abs=1e-3)
    one = LeafCounts(np.ones(1, np.uint64), np.array([100.0]))
    assert agreement(SQUARE, one, earlier, 1.0).at(1) == 0.5


def test_leaves_without_records_stay_whole() -> None:
    newer = LeafCounts(np.array([4, 5, 6, 7], np.uint64), np.array([0.0, 1.0, 40.0, 0.5]))
    fine, held = divided(SQUARE, newer, cells(SQUARE, hills(3), 5, 1e5), 4.0)
    level = SQUARE.level(fine)
    assert sorted(fine[level == 1].tolist()) == [4, 5, 7]
    assert held[level > 1].sum() == pytest.approx(40.0)


def test_nothing_goes_outside_the_region() -> None:
    part = Domain(SQUARE.axes, 5, "all", cells=(4, 20, 24))
    leaves = [code for code in (4, 5, 6) if part.touches(np.array([code], np.uint64))[0]]
    newer = LeafCounts(np.array(leaves, np.uint64), np.full(len(leaves), 300.0))
    kept = cells(SQUARE, hills(3), 5, 1e5)
    alive = part.touches(kept.code)
    earlier = LeafCounts(kept.code[alive], kept.held[alive])
    fine, held = divided(part, newer, earlier, 4.0)
    assert part.touches(fine).all()
    assert held.sum() == pytest.approx(newer.held.sum())


def test_arguments_are_checked() -> None:
    some, none = grown(SQUARE, 1), LeafCounts(np.empty(0, np.uint64), np.empty(0))
    for pair in ((some, none), (none, some), (some._replace(held=some.held[1:]), some)):
        with pytest.raises(ContractError, match="every leaf one count"):
            divided(SQUARE, *pair, 1.0)
