"""Releases of one pipeline as a picture: the same figures as on the live page, drawn once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ...agents.worker.lines.visible import visible
from ...errors import needs
from .views import cut_off, geographic, held_hops

with needs("plot"):
    from matplotlib import dates
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

DATES: Any = dates  # its functions have no types

MOST_KEYS = 30
BAR, LINE, WHISKER, SOFT = "#94b8de", "#1d5fa8", "#0f3f75", "#55606e"
HATCH = "#8b97a6"
FEW = 8  # a colour bar with a range up to this factor gets marks at equal steps
KINDS = (".png", ".svg", ".pdf")


def draw(name: str, told: dict[str, Any], view: dict[str, Any], path: Path) -> None:
    """Draw a pipeline's view, made by `views.view` and not empty.

    ``told`` has ``unit``, ``mechanism`` and ``measured`` of the pipeline. The suffix of ``path``,
    one of `KINDS`, decides the file type.
    """
    seen = {k: visible(text) if isinstance(text, str) else text for k, text in told.items()}
    figure = _figure(visible(name), seen, view | {"value": visible(view["value"])})
    FigureCanvasAgg(figure)
    meta = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, dpi=130, metadata=meta)


def _figure(name: str, told: dict[str, Any], view: dict[str, Any]) -> Figure:
    shows, points = view["form"], (view.get("trend") or {}).get("points", [])
    upper = _size(shows, view)
    if shows == "slots" or not points:
        figure = Figure(figsize=(9, upper), layout="constrained")
        axes = [figure.add_subplot()]
    elif shows == "stream" and not view["bins"]:
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        axes = [figure.add_subplot()]
    else:
        figure = Figure(figsize=(9, upper + 2.8), layout="constrained")
        grid: Any = figure.add_gridspec(2, 1, height_ratios=(upper, 2.8))
        axes = [figure.add_subplot(grid[0]), figure.add_subplot(grid[1])]
    figure.suptitle(_title(name, told, view), x=0.01, ha="left", fontsize=10)
    if shows == "slots":
        _slots(axes[0], told, view)
        return figure
    if len(axes) == 2:
        {"keys": _keys, "cells": _cells, "stream": _bins}[shows](axes[0], told, view)
    elif shows == "keys":
        _keys(axes[0], told, view)
        return figure
    _trend(axes[-1], told, view, points)
    return figure


def _size(shows: str, view: dict[str, Any]) -> float:
    """Height of the first part, in inches."""
    if shows == "keys":
        return 0.9 + 0.24 * min(max(len(view["rows"]), 1), MOST_KEYS)
    return 4.6 if shows == "cells" and len(view["axes"]) > 1 else 3.6


def _title(name: str, told: dict[str, Any], view: dict[str, Any]) -> str:
    last = ", the window's last" if view["final"] else ""
    window = f"window {_date(view['start'])} to {_date(view['end'])}"
    window += held_hops(view)
    return (
        f"{name}: release {view['trigger']} of {view['triggers']}{last}, "
        f"{_date(view['released'])} UTC\n{window}; {told['mechanism']}; unit: {told['unit']}; "
        f"error bars cover the noise, {view['confidence']:.0%} of the time\n"
        + cut_off(view, told["unit"])
    )


def _date(time: int) -> str:
    at = datetime.fromtimestamp(time / 1000, UTC)
    return f"{at:%Y-%m-%d}" if time % 86_400_000 == 0 else f"{at:%Y-%m-%d %H:%M}"


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="#e3e7ec", lw=0.8)
    axes.set_axisbelow(True)


def _reaches(parts: Sequence[Sequence[float]]) -> Any:
    """(2, n) lengths of each value's interval below and above the value."""
    found = np.array(parts, np.float64).reshape(-1, 4)
    reach = np.stack([found[:, 0] - found[:, 2], found[:, 3] - found[:, 0]])
    return np.maximum(reach, 0)


def _keys(axes: Axes, told: dict[str, Any], view: dict[str, Any]) -> None:
    rows = [row for row in view["rows"][:MOST_KEYS] if row["estimate"]]
    parts = [row["estimate"] for row in rows]
    at = np.arange(len(rows))
    values = [part[0] for part in parts]
    axes.barh(at, values, color=BAR, height=0.62)
    axes.errorbar(values, at, xerr=_reaches(parts), fmt="|", color=WHISKER, capsize=2.5, lw=1.3)
    axes.set_yticks(at, [_short(row["key"]) for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    _plain(axes)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color="#e3e7ec", lw=0.8)
    axes.axvline(0, color=SOFT, lw=0.8)
    more = f"; {len(rows)} of {view['number']:,} keys" if len(rows) < view["number"] else ""
    axes.set_xlabel(f"{view['value']}{more}", fontsize=9)
    if not rows:
        axes.text(0.5, 0.5, "no key has been released", ha="center", transform=axes.transAxes)


def _short(key: str) -> str:
    """A key that matplotlib does not take for a formula; at most forty characters."""
    text = key if len(key) <= 40 else f"{key[:39]}…"
    return visible(text).replace("$", r"\$")


def _cells(axes: Axes, told: dict[str, Any], view: dict[str, Any]) -> None:
    cells = np.array(view["cells"], np.float64)
    if not len(cells):
        axes.text(0.5, 0.5, "no cell has a value", ha="center", transform=axes.transAxes)
        return
    if len(view["axes"]) == 1:
        _profile(axes, view, cells)
        return
    (x, west, east), (y, south, north) = view["axes"]
    area = (cells[:, 1] - cells[:, 0]) * (cells[:, 3] - cells[:, 2])
    density = cells[:, 4] / area * (east - west) * (north - south) / 100
    corners = cells[:, [0, 2, 1, 2, 1, 3, 0, 3]].reshape(-1, 4, 2)
    full, unsure = density > 0, cells[:, 6] <= 0
    if full.any():
        low, high = np.quantile(density[full], (0.02, 1.0))
        drawn = PolyCollection(
            list(corners[full]), array=density[full], cmap="Blues", edgecolor="white", lw=0.3,
            norm=LogNorm(max(low, high / 1e4), max(high, low * 1.01)),
        )  # fmt: skip
        axes.add_collection(drawn)
        bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.85, pad=0.02)
        bar.set_label(f"{view['value']} in a hundredth of the area", fontsize=8)
        bar.ax.tick_params(labelsize=8)
        _marks(bar)
    if unsure.any():
        axes.add_collection(PolyCollection(
            list(corners[unsure]), facecolor="none", edgecolor=HATCH, lw=0, hatch="/////", alpha=0.5
        ))  # fmt: skip
    for ring in view["rings"]:
        axes.plot(*zip(*ring, ring[0], strict=True), color=SOFT, lw=1)
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    if geographic(view["axes"]):
        axes.set_aspect(1 / max(math.cos(math.radians((south + north) / 2)), 0.2))
    note = "hatched: may be empty, the interval reaches 0" if unsure.any() else ""
    more = "".join(f"; added up over {name}" for name in view["hidden_axes"])
    axes.set_xlabel(f"{x}\n{note}{more}", fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def _marks(bar: Any) -> None:
    """Mark a logarithmic colour bar with plain numbers: powers of ten alone are too coarse."""
    low, high = bar.vmin, bar.vmax
    found = MaxNLocator(5) if high < FEW * low else LogLocator(subs=(1, 2, 5))
    bar.set_ticks([one for one in found.tick_values(low, high) if low <= one <= high])
    bar.minorticks_off()
    bar.formatter = FuncFormatter(lambda value, _: f"{value:,.10g}")
    bar.update_ticks()


def _profile(axes: Axes, view: dict[str, Any], cells: Any) -> None:
    """Cells of one axis; heights are densities because cells differ in width."""
    name, low, high = view["axes"][0]
    width = cells[:, 1] - cells[:, 0]
    parts = cells[:, 2:] / (width / (high - low) * 100)[:, None]
    middle = cells[:, :2].mean(axis=1)
    axes.bar(middle, parts[:, 0], width=width * 0.94, color=BAR)
    axes.errorbar(middle, parts[:, 0], yerr=_reaches(parts), fmt="none", color=WHISKER, lw=1.1)
    axes.axhline(0, color=SOFT, lw=0.8)
    axes.set_xlim(low, high)
    _plain(axes)
    axes.set_xlabel(name, fontsize=9)
    axes.set_ylabel(f"{view['value']} in a hundredth of the range", fontsize=8)


def _bins(axes: Axes, told: dict[str, Any], view: dict[str, Any]) -> None:
    found = np.array(view["bins"])
    width = found[:, 1] - found[:, 0]
    axes.bar(found[:, 0] + width / 2, 100 * found[:, 2], width=width * 0.94, color=BAR)
    axes.set_xlim(found[0, 0], found[-1, 1])
    _plain(axes)
    axes.set_xlabel(f"{view['measured']}, estimated from the reports; no error bars", fontsize=9)
    axes.set_ylabel("share, %", fontsize=9)


def _slots(axes: Axes, told: dict[str, Any], view: dict[str, Any]) -> None:
    found = view["slots"]
    if not found:
        axes.text(0.5, 0.5, "no slot has been released", ha="center", transform=axes.transAxes)
        return
    dated = found[0]["dated"]
    edges = np.array([[one["begin"], one["end"]] for one in found], np.float64)
    ends = edges / 86_400_000 if dated else edges  # days since 1970, as matplotlib has them
    parts = [one["estimate"] for one in found]
    if view["value"] == "prefix":
        _band(axes, ends[:, 1], parts)
    else:
        width = ends[:, 1] - ends[:, 0]
        axes.bar(ends.mean(axis=1), [p[0] for p in parts], width=width * 0.92, color=BAR)
        axes.errorbar(
            ends.mean(axis=1), [p[0] for p in parts], yerr=_reaches(parts), fmt="none",
            color=WHISKER, capsize=2.5, lw=1.2,
        )  # fmt: skip
        axes.axhline(0, color=SOFT, lw=0.8)
    if dated:
        _dates(axes)
    _plain(axes)
    field = f" of {told['measured']}" if told["measured"] else ""
    kind = "running total" if view["value"] == "prefix" else "sum in each slot"
    axes.set_ylabel(f"{kind}{field}", fontsize=9)
    axes.set_xlabel("time of the slot, UTC" if dated else "slot", fontsize=9)


def _band(axes: Axes, at: Any, parts: Sequence[Sequence[float]]) -> None:
    found = np.array(parts, np.float64)
    axes.fill_between(at, found[:, 2], found[:, 3], color=LINE, alpha=0.16, lw=0)
    axes.errorbar(
        at, found[:, 0], yerr=_reaches(parts), color=LINE, ecolor=WHISKER, elinewidth=1,
        fmt="o-", ms=3.2, lw=1.6, capsize=2,
    )  # fmt: skip


def _trend(
    axes: Axes, told: dict[str, Any], view: dict[str, Any], points: list[dict[str, Any]]
) -> None:
    starts = sorted({point["start"] for point in points})
    groups = [[p for p in points if p["start"] == start] for start in starts]
    if len(groups) == len(points):  # one release a window: draw one line through all
        groups = [points]
    for group in groups:
        at = DATES.date2num([datetime.fromtimestamp(p["at"] / 1000, UTC) for p in group])
        _band(axes, at, [p["estimate"] for p in group])
    _dates(axes)
    _plain(axes)
    of = {"cells": "over all cells", "stream": told["measured"]}.get(view["form"])
    named = of or _short(view["trend"]["key"])
    axes.set_title(f"How it moved: {view['value']}, {named}", fontsize=9, loc="left")
    axes.set_xlabel("scheduled time of the release, UTC", fontsize=9)


def _dates(axes: Axes) -> None:
    locator = DATES.AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DATES.ConciseDateFormatter(locator, tz=UTC))
