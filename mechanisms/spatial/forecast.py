"""Forecast of a map: the error of the number of records in a region."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..columns import F64, Releases
from ..contract import Mechanism, Noise
from ..forecast import bound_cut, by_key, counted, in_turn, percent, sample_of
from ..noise.trial import noise_of
from ..planner import Forecast, Question
from ..workload import Workload
from .domain import Domain
from .stream import SpatialStream
from .synthetic import range_counts

SCORE = "error of the number of records in a region of a tenth of the space, as a share of it"
_BOXES = 64
_SIZES = (0.1, 0.01)  # of regions, as shares of the space's volume

Lasts = Callable[[Mechanism, Workload, Sequence[Noise]], Iterable[Releases]]


class MapLook(NamedTuple):
    """The figures of one window at its last trigger, for regions of each size."""

    truth: F64  # (sizes, boxes)
    error: F64  # (sizes, boxes)
    cells: int


def forecast(
    question: Question, parameters: Any, mechanism: SpatialStream, plays: range, lasts: Lasts
) -> Forecast:
    """The figures of a candidate; ``lasts`` gives a window's last release under each noise."""
    works = [work for epoch in sample_of(question).epochs for work in epoch]
    turns = list(enumerate(plays or range(1)))
    looks = in_turn([
        _looks(mechanism, work, lasts(mechanism, work, [
            noise_of(question.name, play, turn * len(works) + place) for turn, play in turns
        ]))
        for place, work in enumerate(works)
    ])  # fmt: skip
    cut = bound_cut(question, parameters.bound)
    figures = _figures(looks, cut)
    each = np.array([look.error[0].mean() for look in looks]) / max(figures["large"], 1)
    lost = f"the bound cuts off {cut:.1%} of the records" if cut else "the bound cuts nothing off"
    if cut and parameters.debias:
        lost += "; a private number of all records gives the map the right size"
    return Forecast(
        parameters, figures["score"], "simulation",
        seen(figures["cells"]),
        _off(figures), lost, cut, None, figures,
        each=by_key(each, len(turns)),
    )  # fmt: skip


def _looks(
    mechanism: SpatialStream, work: Workload, lasts: Iterable[Releases]
) -> Iterator[MapLook]:
    """The figures of one window for each of its last releases."""
    domain: Domain = mechanism.domain
    points, sign = _points(domain, work), work.signs(slice(None)).astype(np.float64)
    boxes = [_boxes(domain, points, size) for size in _SIZES]
    exact = np.array([_inside(points, sign, low, high) for low, high in boxes])
    grid = np.float64(mechanism.traits.outputs[0].grid)
    for out in lasts:
        codes, shown = out.key.codes(), out.value[:, 0].astype(np.float64) * grid
        found = np.array([range_counts(domain, codes, shown, low, high) for low, high in boxes])
        yield MapLook(exact, np.abs(found - exact), len(out.key))


def _points(domain: Domain, work: Workload) -> F64:
    """(n, d) coordinates in the axes' units."""
    given = work.columns or {}
    columns = []
    for axis in domain.axes:
        column = np.asarray(given[axis.name], np.float64)
        day = axis.kind == "day"
        columns.append(column % axis.high if day else np.clip(column, axis.low, axis.high))
    return np.stack(columns, axis=1)


def _boxes(domain: Domain, points: F64, size: float) -> tuple[F64, F64]:
    """Boxes with a share ``size`` of the volume around records of the sample."""
    low = np.array([axis.low for axis in domain.axes])
    width = np.array([axis.width for axis in domain.axes])
    words = hashlib.shake_256(b"hush boxes").digest(8 * _BOXES)
    chosen = np.frombuffer(words, "<u8") % max(len(points), 1)
    side = width * size ** (1 / len(width))
    begin = np.clip(points[chosen.astype(int)] - side / 2, low, low + width - side)
    return begin, begin + side


def _inside(points: F64, sign: F64, low: F64, high: F64) -> F64:
    """(boxes,) live records in each box."""
    order = np.argsort(points[:, 0], kind="stable")  # a box holds a contiguous part of these
    points, sign = points[order], sign[order]
    first = np.searchsorted(points[:, 0], low[:, 0])
    end = np.searchsorted(points[:, 0], high[:, 0])
    counts = []
    for begin, stop, a, b in zip(first, end, low[:, 1:], high[:, 1:], strict=True):
        some = points[begin:stop, 1:]
        counts.append(float(sign[begin:stop][((some >= a) & (some < b)).all(axis=1)].sum()))
    return np.array(counts)


def _figures(looks: Sequence[MapLook], cut: float) -> dict[str, float]:
    truth = np.mean([look.truth.mean(axis=1) for look in looks], axis=0)
    error = np.mean([look.error.mean(axis=1) for look in looks], axis=0)
    return {
        "cells": float(np.mean([look.cells for look in looks])),
        "large": float(truth[0]),
        "large_off": float(error[0]),
        "small": float(truth[1]),
        "small_off": float(error[1]),
        "cut": cut,
        "score": float(error[0] / max(truth[0], 1.0)),
    }


def seen(cells: float) -> str:
    """The description of a map with this number of cells."""
    number = f"{cells:,.0f}"
    if number in ("0", "1"):
        return "one cell at each trigger: the number of all records, and not where they are"
    return f"a map of about {number} cells at each trigger, finer where there is more"


def _off(figures: dict[str, float]) -> str:
    parts = []
    for name, size in (("large", "a tenth"), ("small", "a hundredth")):
        off, truth = figures[f"{name}_off"], figures[name]
        parts.append(
            f"the count of a region of {size} of the space is off by {counted(off)} where it is "
            f"{counted(truth)} ({percent(off / max(truth, 1))})"
        )
    return "; ".join(parts)


def first_records(question: Question) -> int:
    """Records of a window's first trigger, on average."""
    works = [work for epoch in sample_of(question).epochs for work in epoch]
    first = [next(work.micro_batches(question.setting.horizon)) for work in works]
    return max(1, round(float(np.mean([rows.stop - rows.start for rows in first]))))


def window_records(question: Question) -> int:
    """Records of a window, on average."""
    sample = sample_of(question)
    return max(1, round(sample.records / max(sample.windows, 1)))
