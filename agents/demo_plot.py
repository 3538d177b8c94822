"""The demo's picture: private values with error bars, the truth, and what the bound cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .demo_report import Result

SHOWN = {"zones": 52, "boroughs": 5, "clicks": 40}
TRUE, CUT, PRIVATE = "#c9d3df", "#f2b36b", "#1f4e8c"


def draw(results: Sequence[Result], path: Path) -> None:
    """Write one panel per pipeline to ``path``."""
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.add_gridspec(2, 3)
    places = {"zones": grid[0, :], "boroughs": grid[1, 0], "clicks": grid[1, 1:]}
    for result in results:
        _panel(figure.add_subplot(places[result.pipeline.name]), result)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130)


def _panel(axes: Axes, result: Result) -> None:
    p, rows = result.pipeline, result.rows
    keys = list(rows)[: SHOWN[p.name]]
    at = range(len(keys))
    kept = [result.kept.get(key, 0) for key in keys]
    cut = [max(result.truth.get(key, 0) - n, 0) for key, n in zip(keys, kept, strict=True)]
    counts = [rows[key]["values"]["count"] for key in keys]
    reach = [(c["high"] - c["low"]) / 2 for c in counts]
    axes.bar(at, kept, color=TRUE, label="true value: what the contribution bound kept")
    axes.bar(at, cut, bottom=kept, color=CUT, label="true value: what the bound cut off")
    axes.errorbar(
        at, [c["value"] for c in counts], yerr=reach, fmt="o", ms=3.5, lw=1.2, capsize=2,
        color=PRIVATE, label=f"private value, {p.confidence:.0%} error bar of the noise",
    )  # fmt: skip
    axes.set_xticks(list(at), keys, rotation=90 if len(keys) > 8 else 30, fontsize=7)
    axes.set_xlim(-0.8, len(keys) - 0.2)
    axes.set_ylabel("records")
    axes.set_title(_title(result, len(keys)), fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _title(result: Result, shown: int) -> str:
    p = result.pipeline
    budget = f"ε={float(p.epsilon):g}, δ={float(p.delta):g} per {p.unit_name}"
    if p.public_keys is not None:
        return f"{p.name}: public keys\nweek from {result.place[0][:10]}\n{budget}"
    part = f"the {shown} largest of {len(result.rows)} released keys"
    if shown == len(result.rows):
        part = f"{shown} keys released"
    return f"{p.name}: {part}, of {len(result.truth)} with records; {budget}"
