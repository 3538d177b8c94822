"""Views of a pipeline: rows, cells, slots or a distribution, and how a figure moved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...agents.worker.lines.visible import visible
from ...errors import ParameterError
from ...mechanisms.columns import F64
from ...topics.config.inputs.places import place_of
from ...topics.cut_share import CutShare, beyond_in_words, in_words
from .declared import MILLI, Declared
from .history import History, Sheet
from .ordinals import ranks

SIDE = 64  # squares along each of two axes after further axes are added up
LINE = 1_024  # pieces of a single axis, likewise
MOST_ROWS = 200  # per page
MOST_POINTS = 1_500  # of a line
MOST_CELLS = 20_000  # of a map; more are added up
MOST_SLOTS = 5_000  # newest slots of a window
SPARK = 40  # releases in the sparkline beside a row
TOTAL = ""
"""In place of a key: the sum over all rows of a release."""


@dataclass(frozen=True)
class Wish:
    """A viewer's choice."""

    window: int | None = None  # start in milliseconds since 1970; None: the newest
    trigger: int | None = None  # last one to include; None: all
    value: str | None = None  # name of a value; None: the first
    search: str = ""  # text that keys contain, ignoring case
    # page, size: of the listed rows; pages from 0 on
    page: int = 0
    size: int = 12
    key: str | None = None  # id of the row whose movement is shown; None: the first listed one

    def __post_init__(self) -> None:
        if self.page < 0:
            raise ParameterError("page", self.page, "must be 0 or more")
        if not 1 <= self.size <= MOST_ROWS:
            raise ParameterError("size", self.size, f"must be from 1 to {MOST_ROWS}")
        if self.key and not _is_id(self.key):
            raise ParameterError("key", self.key[:40], "must be the id of a row, a JSON list")


def _is_id(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def view(pipeline: Declared, history: History, asked: Wish) -> dict[str, Any]:
    """Make the view of one pipeline for the choice ``asked``, as a JSON object.

    Times are in milliseconds; ``{"empty": true}`` if nothing of the window is remembered. An
    unknown value is a `ParameterError`.
    """
    sheet = history.state(asked.window, asked.trigger)
    if sheet is None:
        return {"empty": True}
    value = sheet.names[0] if asked.value is None else asked.value
    if value not in sheet.names:
        raise ParameterError("value", value, f"must be one of {', '.join(sheet.names)}")
    body = _meta(sheet, value) | {"form": pipeline.shows, "most": pipeline.most}
    if pipeline.shows == "cells":
        return body | _cells(sheet, value) | _moved(history, value, TOTAL)
    if pipeline.shows == "slots":
        return body | {"slots": slots(pipeline, sheet, value)}
    if pipeline.shows == "stream":
        first = sheet.ids[0] if len(sheet) else "[]"
        told = [
            s for s in history.sheets() if s.start == sheet.start and s.released <= sheet.released
        ]
        return body | distribution(pipeline, told) | _moved(history, value, first)
    listed = _rows(pipeline, history, sheet, value, asked)
    first = str(listed["rows"][0]["id"]) if listed["rows"] else "[]"
    return body | listed | _moved(history, value, asked.key or first)


def _meta(sheet: Sheet, value: str) -> dict[str, Any]:
    told = sheet.told
    return {
        "start": sheet.start, "end": sheet.end, "trigger": sheet.trigger,
        "triggers": told.triggers, "released": sheet.released, "final": sheet.final,
        "value": value, "values": list(sheet.names), "confidence": told.confidence_level,
        "key_names": list(told.key_names), "number": len(sheet),
        "total": _point(sheet, total(sheet, value)),
        "hops": told.hops, "beyond": told.beyond,
        "cut": None if sheet.cut is None else sheet.cut._asdict(),
    }  # fmt: skip


def cut_off(seen: Mapping[str, Any], unit: str) -> str:
    """State what is known about the records that the contribution bound cut."""
    lost = in_words(None if seen["cut"] is None else CutShare(**seen["cut"]))
    known = "; ".join(filter(None, (lost, beyond_in_words(seen.get("beyond")))))
    if seen["most"] is None:
        return known
    return f"at most {seen['most']:,} of a {unit}'s records count in an epoch; {known}"


def held_hops(seen: Mapping[str, Any]) -> str:
    """Say that a view's window holds only part of its length; empty if it holds all."""
    held, whole = seen.get("hops") or (1, 1)
    return f" (only its last {held} of {whole} hops)" * (held < whole)


def order(sheet: Sheet, value: str) -> NDArray[np.intp]:
    """(n,) row numbers by value, largest first; rows without a value come last."""
    column = sheet.column(value)[:, 0]
    return np.argsort(np.where(np.isnan(column), np.inf, -column), kind="stable")


def shown(text: str) -> str:
    """Write an id as people read it.

    >>> shown('["Queens", 4, true]')
    'Queens / 4 / true'
    """
    parts = (v if isinstance(v, str) else json.dumps(v) for v in json.loads(text))
    return visible(" / ".join(parts))


def _rows(
    pipeline: Declared, history: History, sheet: Sheet, value: str, asked: Wish
) -> dict[str, Any]:
    places = order(sheet, value).tolist()
    ranked = ranks(pipeline.config, sheet.ids)
    if ranked is not None:  # people expect hours and the like in their order
        places.sort(key=ranked.__getitem__)
    if wanted := asked.search.casefold():
        places = [i for i in places if wanted in shown(sheet.ids[i]).casefold()]
    page = places[asked.page * asked.size : (asked.page + 1) * asked.size]
    past = [s for s in history.sheets() if s.start == sheet.start and s.trigger <= sheet.trigger]
    column = sheet.column(value)
    rows = [
        {
            "id": sheet.ids[i],
            "key": shown(sheet.ids[i]),
            "estimate": numbers(column[i]),
            "trigger": int(sheet.of[i]),
            "spark": _spark(past[-SPARK:], value, sheet.ids[i]),
        }
        for i in page
    ]
    return {
        "rows": rows, "matching": len(places), "page": asked.page, "size": asked.size,
        "ordered": ranked is not None,
    }  # fmt: skip


def _spark(past: Sequence[Sheet], value: str, text: str) -> list[list[float]]:
    found = []
    for sheet in past:
        place = sheet.place(text)
        if place is not None and not math.isnan(one := float(sheet.column(value)[place, 0])):
            found.append([sheet.released, one])
    return found


def numbers(parts: F64) -> list[float] | None:
    """Value, standard deviation and both ends of the interval; None if there is no value."""
    return None if math.isnan(parts[0]) else [float(one) for one in parts]


def total(sheet: Sheet, value: str) -> F64:
    """(4,) the sum of a value over all rows: standard deviations add up as squares.

    Cells of a map are not independent (`regrid`).
    """
    column = sheet.column(value)
    whole, stddev = np.nansum(column[:, 0]), math.sqrt(float(np.nansum(column[:, 1] ** 2)))
    reach = NormalDist().inv_cdf((1 + sheet.told.confidence_level) / 2) * stddev
    return np.array([whole, stddev, whole - reach, whole + reach])


def trend(history: History, value: str, key: str) -> Iterator[tuple[Sheet, F64]]:
    """Yield how one figure moved: each release that has it, and its (4,) parts, in order.

    ``key`` is the id of a row; `TOTAL`: the sum over all.
    """
    for sheet in history.sheets():
        if value not in sheet.names:
            continue
        if key == TOTAL:
            yield sheet, total(sheet, value)
        elif (place := sheet.place(key)) is not None:
            parts = sheet.column(value)[place]
            if not math.isnan(parts[0]):
                yield sheet, parts


def _moved(history: History, value: str, key: str) -> dict[str, Any]:
    points = [_point(one, parts) for one, parts in trend(history, value, key)]
    name = TOTAL if key == TOTAL else shown(key)
    return {"trend": {"id": key, "key": name, "points": points[-MOST_POINTS:]}}


def _point(sheet: Sheet, parts: F64) -> dict[str, Any]:
    return {
        "at": sheet.released, "start": sheet.start, "trigger": sheet.trigger,
        "final": sheet.final, "estimate": numbers(parts),
    }  # fmt: skip


def _cells(sheet: Sheet, value: str) -> dict[str, Any]:
    space = json.loads(bytes(sheet.told.space) or b"{}")
    axes = space.get("axes", [])
    boxes, column = flattened(sheet.boxes, sheet.column(value))
    cells = [
        [float(n) for n in (*box.ravel(), *parts)]
        for box, parts in zip(boxes, column, strict=True)
        if not math.isnan(parts[0])
    ]
    return {
        "axes": [[a["name"], a["low"], a["high"] + (a["kind"] == "integer")] for a in axes[:2]],
        "hidden_axes": [a["name"] for a in axes[2:]],
        "rings": _rings(space),
        "cells": cells,
    }


def flattened(boxes: F64, column: F64) -> tuple[F64, F64]:
    """Project cells on the first one or two axes; unchanged if they have no more and are few.

    Further axes, or more than `MOST_CELLS` cells, are added up on a grid: a cell's value is divided
    among the squares that it covers by area, its variance by the squared share.

    Args:
        boxes: (n, axes, 2) ends of cells.
        column: (n, 4) value, standard deviation and both ends of the interval.
    """
    axes = range(min(boxes.shape[1], 2))
    few = boxes.shape[1] == len(axes) and len(boxes) <= MOST_CELLS
    if few or not len(boxes) or not axes:
        return boxes, column
    side = SIDE if len(axes) == 2 else LINE
    low, high = boxes[:, axes, 0].min(axis=0), boxes[:, axes, 1].max(axis=0)
    edges = [np.linspace(low[axis], high[axis], side + 1) for axis in axes]
    value, variance, reach = (np.zeros([side for _ in axes]) for _ in range(3))
    for box, parts in zip(boxes, column, strict=True):
        if np.isnan(parts[0]):
            continue
        shares = [overlaps(edges[axis], box[axis : axis + 1])[0] for axis in axes]
        share = shares[0] if len(axes) == 1 else np.outer(*shares)
        value += share * parts[0]
        variance += share**2 * parts[1] ** 2
        reach += share**2 * max(parts[3] - parts[0], parts[0] - parts[2]) ** 2
    stddev, half = np.sqrt(variance).ravel(), np.sqrt(reach).ravel()
    flat = value.ravel()
    least = 0.0 if np.nanmin(column[:, 2]) >= 0 else -np.inf  # keep nonnegative values nonnegative
    places = np.meshgrid(*(np.arange(side) for _ in axes), indexing="ij")
    squares = [
        np.stack([edges[a][place.ravel()], edges[a][place.ravel() + 1]], axis=1)
        for a, place in enumerate(places)
    ]
    columns: F64 = np.stack(
        [flat, stddev, np.maximum(flat - half, least), np.maximum(flat + half, least)], axis=1
    )
    return np.stack(squares, axis=1), columns


def overlaps(edges: F64, ends: F64) -> F64:
    """(n, m) share of each of n intervals, given by (n, 2) ``ends``, in each of m adjacent ones."""
    low, high = ends[:, :1], ends[:, 1:]
    inside = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
    found: F64 = np.maximum(inside, 0) / (high - low)
    return found


def _rings(space: dict[str, Any]) -> list[Any]:
    """Closed lines around the public region, holes included; none without a region."""
    polygons = space.get("region", {}).get("coordinates", [])
    alone = [space["polygon"]] if space.get("polygon") else []
    return alone + [ring for polygon in polygons for ring in polygon]


def geographic(axes: Sequence[Sequence[Any]]) -> bool:
    """Whether two axes (name and both ends) are longitude and latitude in degrees."""
    (x, west, east), (y, south, north) = axes
    return bool(
        place_of((x, y)) == (x, y) and -180 <= west < east <= 180 and -90 <= south < north <= 90
    )


def slots(pipeline: Declared, sheet: Sheet, value: str) -> list[dict[str, Any]]:
    """List the slots of a window in order, with both ends in milliseconds.

    If slots are not of event time, their ends are numbers instead, and ``dated`` is false.
    """
    length = pipeline.slot
    found = []
    for place, text in enumerate(sheet.ids):
        (slot,) = json.loads(text)
        if length is None:
            begin, end = slot, slot + 1
        else:
            begin, end = (sheet.start + (slot + n) * length // MILLI for n in (0, 1))
        parts = numbers(sheet.column(value)[place])
        if parts is not None:
            found.append({
                "slot": slot, "begin": begin, "end": end, "dated": length is not None,
                "estimate": parts,
            })  # fmt: skip
    return sorted(found, key=lambda one: int(one["slot"]))[-MOST_SLOTS:]


def distribution(pipeline: Declared, told: Sequence[Sheet]) -> dict[str, Any]:
    """Find the newest distribution in the releases of one window; not every release has one.

    Returns:
        ``bins``, each both ends of a bucket and its share, and ``binned``, the time of the release
        in milliseconds; no bins if there is no distribution.
    """
    for sheet in reversed(told):
        public = json.loads(bytes(sheet.told.public) or b"{}")
        if pipeline.reach and (found := pipeline.picture.bins(public, pipeline.reach)):
            return {"bins": found, "binned": sheet.released, "measured": pipeline.measured}
    return {"bins": [], "binned": None, "measured": pipeline.measured}
