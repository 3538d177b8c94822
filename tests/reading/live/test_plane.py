"""Cells on the plane of the first two axes: nothing is lost, and errors add up as squares."""

from __future__ import annotations

import numpy as np
from hushstream.reading.live.plane import SIDE, flattened


def test_cells_of_one_or_two_axes_stay_as_they_are() -> None:
    for axes in (1, 2):
        boxes, column = np.ones((3, axes, 2)), np.ones((3, 4))
        kept = flattened(boxes, column)
        assert kept[0] is boxes and kept[1] is column


def test_cells_above_each_other_add_up() -> None:
    """Two layers over the left half, one cell over the right half."""
    boxes = np.array([
        [[0, 1], [0, 1], [0, 5]], [[0, 1], [0, 1], [5, 10]], [[1, 2], [0, 1], [0, 10]],
    ], float)  # fmt: skip
    column = np.array([[10, 3, 4, 16], [20, 4, 12, 28], [7, 1, 5, 9]], float)
    flat, told = flattened(boxes, column)
    assert flat.shape == (SIDE * SIDE, 2, 2) and abs(told[:, 0].sum() - 37) < 1e-9
    left = flat[:, 0, 1] <= 1
    assert left.sum() == SIDE * SIDE // 2
    each = SIDE * SIDE // 2
    assert np.allclose(told[left, 0], 30 / each) and np.allclose(told[~left, 0], 7 / each)
    assert np.allclose(told[left, 1], 5 / each) and np.allclose(told[~left, 1], 1 / each)
    assert np.allclose(told[left, 3] - told[left, 0], 10 / each)  # 6 and 8 as squares
    assert flat[:, :, 0].min(axis=0).tolist() == [0, 0]
    assert flat[:, :, 1].max(axis=0).tolist() == [2, 1]


def test_a_cell_without_a_value_adds_nothing() -> None:
    boxes = np.array([[[0, 1], [0, 1], [0, 1]]] * 2, float)
    column = np.array([[np.nan] * 4, [5, 0, 5, 5]])
    assert abs(flattened(boxes, column)[1][:, 0].sum() - 5) < 1e-9


def test_an_interval_that_is_cut_at_zero_reaches_as_far_as_it_does_upwards() -> None:
    """Two layers of 1 with an error of 3: together 2, and no less than 0."""
    boxes = np.array([[[0, 1], [0, 1], [0, 1]], [[0, 1], [0, 1], [1, 2]]], float)
    cut = np.array([[1, 1.5, 0, 4]] * 2, float)
    told = flattened(boxes, cut)[1] * SIDE * SIDE
    assert np.allclose(told[:, 2], 0) and np.allclose(told[:, 3], 2 + 3 * np.sqrt(2))
    whole = flattened(boxes, np.array([[1, 1.5, -2, 4]] * 2, float))[1] * SIDE * SIDE
    assert np.allclose(whole[:, 2], 2 - 3 * np.sqrt(2))
