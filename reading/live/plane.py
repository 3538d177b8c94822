"""Cells of any number of axes on the plane of the first two."""

from __future__ import annotations

import numpy as np

from ...mechanisms.columns import F64

SIDE = 64  # squares along each axis where further axes are added up


def flattened(boxes: F64, column: F64) -> tuple[F64, F64]:
    """Project cells on their first two axes, or return them as they are if there are no more.

    Further axes are added up on a grid: a cell's value is divided among the squares that it covers
    by their share of its area, and variances by the square of that.

    Args:
        boxes: (n, axes, 2) ends of cells.
        column: (n, 4) value, standard deviation and both ends of the interval.

    Returns:
        (m, at most 2, 2) boxes and (m, 4) columns.
    """
    if boxes.shape[1] <= 2 or not len(boxes):
        return boxes, column
    low, high = boxes[:, :2, 0].min(axis=0), boxes[:, :2, 1].max(axis=0)
    edges = [np.linspace(low[axis], high[axis], SIDE + 1) for axis in (0, 1)]
    value, variance, reach = (np.zeros((SIDE, SIDE)) for _ in range(3))
    for box, parts in zip(boxes, column, strict=True):
        if np.isnan(parts[0]):
            continue
        x, y = (_shares(edges[axis], *box[axis]) for axis in (0, 1))
        share = np.outer(x, y)
        value += share * parts[0]
        variance += share**2 * parts[1] ** 2
        reach += share**2 * max(parts[3] - parts[0], parts[0] - parts[2]) ** 2
    stddev, half = np.sqrt(variance).ravel(), np.sqrt(reach).ravel()
    flat = value.ravel()
    least = 0.0 if np.nanmin(column[:, 2]) >= 0 else -np.inf  # what is never negative stays so
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    squares = [
        np.stack([edges[a][place.ravel()], edges[a][place.ravel() + 1]], axis=1)
        for a, place in ((0, x), (1, y))
    ]
    columns: F64 = np.stack(
        [flat, stddev, np.maximum(flat - half, least), np.maximum(flat + half, least)], axis=1
    )
    return np.stack(squares, axis=1), columns


def _shares(edges: F64, low: float, high: float) -> F64:
    """(m,) share of an interval that lies in each of m adjacent ones."""
    inside = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
    shares: F64 = np.maximum(inside, 0) / (high - low)
    return shares
