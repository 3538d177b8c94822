"""Smooth maps: leaf sums stay, steps at edges shrink, and points follow the density."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.spatial import smooth
from hushstream.mechanisms.spatial.domain import Domain, bit_level
from hushstream.mechanisms.spatial.pieces import pieces
from hushstream.mechanisms.spatial.smooth import smoothed, spread_points
from hushstream.mechanisms.spatial.synthetic import range_counts

SQUARE = Domain.unit(2, 6, "all")


def tree(domain: Domain, seed: int, leaves: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Leaves of a random tree, in code order, and counts."""
    rng = np.random.default_rng(seed)
    codes = [1]
    while len(codes) < leaves:
        able = [c for c in codes if (c.bit_length() - 1) < domain.bits]
        node = able[rng.integers(len(able))]
        codes.remove(node)
        codes += domain.children(np.array([node], np.uint64))[0].tolist()
    found = np.array(sorted(codes), np.uint64)
    return found, rng.integers(0, 2000, len(found))


def drawn(
    domain: Domain, codes: np.ndarray, counts: np.ndarray, n: int = 5, seed: int = 0
) -> dict[str, np.ndarray]:
    """Points of the smooth map."""
    return spread_points(domain, smoothed(domain, codes, counts), (codes, counts), n, seed)


def ancestor(codes: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """Row of the leaf that holds each code."""
    known = {int(leaf): row for row, leaf in enumerate(leaves)}
    rows = []
    for code in codes.tolist():
        while code not in known:
            code >>= 1
        rows.append(known[code])
    return np.array(rows)


@pytest.mark.parametrize(
    "domain", [SQUARE, Domain.unit(2, 9), Domain.unit(1, 8), Domain.unit(3, 7)]
)
@pytest.mark.parametrize("seed", range(3))
def test_finer_cells_add_up_to_their_leaf(domain: Domain, seed: int) -> None:
    codes, counts = tree(domain, seed)
    fine, held = smoothed(domain, codes, counts)
    assert (np.diff(fine.astype(np.int64)) > 0).all() and (held >= 0).all()
    assert len(fine) > len(codes)
    sums = np.bincount(ancestor(fine, codes), held, len(codes))
    np.testing.assert_allclose(sums, counts, atol=1e-6)
    volume = (0.5 ** bit_level(fine)).sum()
    assert volume == 1.0  # they partition the domain


def test_density_goes_on_across_an_edge() -> None:
    """Density changes gradually across the edge between a dense half and a sparse one."""
    line = Domain.unit(1, 6)
    codes = np.array(
        [3, 4, *range(64 + 16, 64 + 32)], np.uint64
    )  # one quarter has leaves of the grid's depth
    counts = np.array([2400, 400, *[25] * 16])
    fine, held = smoothed(line, codes, counts)
    along = held[np.argsort(fine)]
    steps = np.abs(np.diff(along))
    assert steps.max() < 0.5 * (2400 / 32 - 25)  # uniform leaves have the whole step
    assert (np.diff(along[28:40]) > -1e-9).all()


def test_a_uniform_map_stays_uniform() -> None:
    codes = np.array([5, 6, 7, 16, 17, 18, 19], np.uint64)
    counts = np.array([1024, 1024, 1024, 256, 256, 256, 256])
    for every in smoothed(Domain.unit(2, 4), codes, counts)[1:]:
        np.testing.assert_allclose(every, 256)


def test_leaves_finer_than_the_grid_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth, "MOST_BITS", 4)
    codes, counts = tree(SQUARE, 5, 60)
    deep = bit_level(codes) > 4
    assert deep.any()
    fine, held = smoothed(SQUARE, codes, counts)
    kept = dict(zip(fine.tolist(), held.tolist(), strict=True))
    assert [kept[int(c)] for c in codes[deep]] == counts[deep].tolist()
    assert held.sum() == pytest.approx(counts.sum())


def test_nothing_is_moved_out_of_a_region() -> None:
    domain = Domain(SQUARE.axes, 6, "all", polygon=((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)))
    codes, counts = tree(SQUARE, 7)
    parts = pieces(domain, codes)
    counts = np.where(np.bincount(parts.cell, parts.volume, len(codes)) > 0, counts, 0)
    fine, held = smoothed(domain, codes, counts)
    assert not held[~domain.touches(fine)].any() and held.sum() == pytest.approx(counts.sum())
    points = drawn(domain, codes, counts, 3000)
    assert (points["x1"] + points["x2"] <= 1 + 1e-9).all() and len(points["x1"]) == 3000


def test_it_lowers_the_error_of_a_hill() -> None:
    """Smoothing the exact counts of a Gaussian's coarse leaves improves small boxes."""
    rng = np.random.default_rng(2)
    points = np.clip(rng.normal(0.5, 0.15, (200_000, 2)), 0, 1 - 1e-9)
    finest, each = np.unique(SQUARE.place(points), return_counts=True)
    level = np.arange(64, 128, dtype=np.uint64)  # 8 x 8 cells
    counts = np.bincount((finest >> np.uint64(6)).astype(int) - 64, each, 64)
    # Splitting one leaf down to the grid's depth makes the grid fine.
    codes = np.concatenate([level[1:], np.arange(64 << 6, 65 << 6, dtype=np.uint64)])
    held = np.concatenate([counts[1:], np.full(64, counts[0] / 64)])
    low = rng.random((300, 2)) * 0.9
    high = low + 0.05
    truth = range_counts(SQUARE, finest, each, low, high)
    before = range_counts(SQUARE, codes, held, low, high)
    after = range_counts(SQUARE, *smoothed(SQUARE, codes, held), low, high)
    assert np.abs(after - truth).mean() < 0.75 * np.abs(before - truth).mean()


def test_points_are_spread_as_the_counts_are() -> None:
    codes, counts = tree(SQUARE, 3)
    n = int(counts.sum())
    points = drawn(SQUARE, codes, counts, n, seed=4)
    places = SQUARE.place(np.stack([points["x1"], points["x2"]], axis=1))
    found = np.bincount(ancestor(places, codes), minlength=len(codes))
    assert np.abs(found - counts).max() <= 1
    again, other = (drawn(SQUARE, codes, counts, n, seed=s)["x1"] for s in (4, 5))
    assert (again == points["x1"]).all() and (other != points["x1"]).any()


def test_without_records_points_are_uniform() -> None:
    codes, counts = tree(SQUARE, 3)
    points = drawn(SQUARE, codes, 0 * counts, 2000)
    assert abs(points["x1"].mean() - 0.5) < 0.05 and np.ptp(points["x2"]) > 0.95
    assert len(drawn(SQUARE, codes, counts, 0)["x1"]) == 0


def test_bad_arguments_are_named() -> None:
    codes, counts = tree(SQUARE, 3)
    for name, given in (("n", {"n": -1}), ("seed", {"n": 1, "seed": -1})):
        with pytest.raises(ParameterError) as error:
            drawn(SQUARE, codes, counts, **given)
        assert error.value.name == name
