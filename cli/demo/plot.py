"""The demo's plot: private values with error bars, the truth, and the records cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import needs
from .report import Result

with needs("plot"):
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

MOST = 60  # keys in one panel
TRUE, CUT, PRIVATE = "#c3cfdd", "#e08a2e", "#1f4e8c"


def draw(results: Sequence[Result], path: Path) -> None:
    """Write a PNG with one panel for each pipeline to ``path``."""
    figure = Figure(figsize=(13, 11), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.add_gridspec(3, 4, height_ratios=(4, 3.2, 1.2))
    places = {"zones": grid[0, :], "boroughs": grid[1:, 0], "clicks": grid[1, 1:]}
    for result in results:
        axes = figure.add_subplot(places[result.pipeline.name])
        keys = _spread(list(result.rows))
        _values(axes, result, keys)
        if result.cut > 0:
            axes.tick_params(labelbottom=False)
            _cut(figure.add_subplot(grid[2, 1:], sharex=axes), result, keys)
    entries = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {name: one for group in entries for one, name in zip(*group, strict=True)}
    figure.legend(named.values(), named, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)


def _spread(keys: list[str]) -> list[str]:
    """Return all keys, or a selection whose ranks grow by equal ratios."""
    if len(keys) <= MOST:
        return keys
    ranks = np.unique(np.geomspace(1, len(keys), MOST).astype(int)) - 1
    return [keys[rank] for rank in ranks.tolist()]


def _values(axes: Axes, result: Result, keys: list[str]) -> None:
    at = range(len(keys))
    counts = [result.rows[key]["values"]["count"] for key in keys]
    ends = [(c["value"] - c["low"], c["high"] - c["value"]) for c in counts]
    reach = np.maximum(np.array(ends, float).reshape(-1, 2).T, 0)  # an interval may be cut at 0
    truth = [result.truth.get(key, 0) for key in keys]
    axes.bar(at, truth, color=TRUE, label="true value")
    percent = f"{result.pipeline.confidence:.0%}"
    axes.errorbar(
        at, [c["value"] for c in counts], yerr=reach, fmt="o", ms=3.5, lw=1.2, capsize=2,
        color=PRIVATE, label=f"private value, {percent} error bar of the noise",
    )  # fmt: skip
    _name_keys(axes, keys)
    axes.set_ylabel("records")
    if len(keys) < len(result.rows):
        axes.set_yscale("log")
        axes.set_ylabel("records (logarithmic)")
    axes.set_title(_title(result, len(keys)), fontsize=10, loc="left")


def _cut(axes: Axes, result: Result, keys: list[str]) -> None:
    """Share of each key's records that the contribution bound refused: a bias, not noise."""
    truth = [max(result.truth.get(key, 0), 1) for key in keys]
    kept = [result.kept.get(key, 0) for key in keys]
    share = [100 * (1 - n / total) for n, total in zip(kept, truth, strict=True)]
    axes.bar(range(len(keys)), share, color=CUT, label="cut off by the contribution bound")
    _name_keys(axes, keys)
    axes.set_ylabel("cut off, %")


def _name_keys(axes: Axes, keys: list[str]) -> None:
    axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=7)
    axes.set_xlim(-0.8, len(keys) - 0.2)
    axes.spines[["top", "right"]].set_visible(False)


def _title(result: Result, shown: int) -> str:
    p, released = result.pipeline, len(result.rows)
    budget = f"ε={float(p.epsilon):g}, δ={float(p.delta):g} per {p.unit_name}"
    if p.public_keys is not None:
        return f"{p.name}: public keys,\nweek from {result.place[0][:10]};\n{budget}"
    some = f", {shown} of them shown" if shown < released else ""
    return f"{p.name}: {released} of {len(result.truth)} keys released{some}; {budget}"
