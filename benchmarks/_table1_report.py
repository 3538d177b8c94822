"""Output of `table1.py`: tables, pictures, and the object of ``--json``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from _table1_designs import DEPLOYMENTS
from _workload import Errors
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "paper": "#b23a48", "sound_paper": "#8d99ae", "repeated": "#c9ada7", "incremental": "#9a8c98",
    "one_shot": "#2b2d42",
}  # fmt: skip


class Result(NamedTuple):
    """One design with one noise key, scaled to the full workload."""

    errors: Errors
    seconds: float  # of processor time
    slowest: float
    private: bool

    def row(self) -> dict[str, Any]:
        return self.errors._asdict() | {"seconds": self.seconds, "slowest_trigger": self.slowest}


Results = Mapping[str, Sequence[Result]]


def fields(name: str, runs: Sequence[Result]) -> dict[str, float]:
    """``NAME_FIELD``: the mean over noise keys; ``NAME_FIELD_sd``: their standard deviation.

    The slowest trigger is the slowest over all runs.
    """
    table = np.array([list(one.row().values()) for one in runs])
    row: dict[str, float] = {}
    for field, column in zip(runs[0].row(), table.T.tolist(), strict=True):
        slowest = field == "slowest_trigger"
        row[f"{name}_{field}"] = max(column) if slowest else float(np.mean(column))
        if len(runs) > 1 and not slowest:
            row[f"{name}_{field}_sd"] = float(np.std(column, ddof=1))
    return row


def mean(runs: Sequence[Result]) -> Errors:
    return Errors(*np.mean(np.array([one.errors for one in runs]), axis=0).tolist())


def heading(options: argparse.Namespace) -> str:
    return (
        f"{options.shape}, scale {options.scale}, T = {options.triggers}, d = {options.delay}, "
        f"noise keys: {options.seeds}, ε = 6, δ = 1e-9"
    )


def table(results: Results, options: argparse.Namespace) -> Table:
    """One line per design, means over noise keys."""
    shown = Table(title=heading(options))
    columns = "keys", "l∞", "l1", "l2", "mean l1", "bias", "bias ≥ 1000", "cpu s", "slowest trigger"
    for column in ("design", *columns):
        shown.add_column(column, justify="left" if column == "design" else "right")
    for name, runs in results.items():
        e = mean(runs)
        seconds, slowest = np.mean([r.seconds for r in runs]), max(r.slowest for r in runs)
        shown.add_row(
            name, f"{e.keys:,.0f}", f"{e.linf:,.0f}", f"{e.l1 / 1e6:.2f} M", f"{e.l2:,.0f}",
            f"{e.mean_l1 / 1e6:.2f} M", f"{e.bias:+.1%}", f"{e.bias_large:+.1%}",
            f"{seconds:.0f}", f"{slowest:.2f} s",
        )  # fmt: skip
    return shown


def thresholds() -> Table:
    """Users that a key needs, compared with published deployments."""
    shown = Table(title="least number of users, one record per user and key, T = 150")
    ours = "ours, last", "ours, worst", "Toeplitz, all"
    for column in ("ε", "δ", "min_users", "published", *ours):
        shown.add_column(column, justify="right")
    for one in DEPLOYMENTS:
        ours, flat = one.least(), one.least("toeplitz", 1 / 100)
        shown.add_row(
            str(one.epsilon), f"{float(one.delta):.0e}", str(one.min_users),
            str(one.published or "–"), f"{ours[-1]:.1f}", f"{max(ours):.1f}", f"{max(flat):.1f}",
        )  # fmt: skip
    return shown


def picture(results: Results, options: argparse.Namespace) -> Path:
    """Keys released and l1, one bar per design."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    names, means = list(results), [mean(runs) for runs in results.values()]
    titles = ("keys released", "l1 error at the last trigger (millions)")
    heights = ([e.keys for e in means], [e.l1 / 1e6 for e in means])
    for axis, title, height in zip(axes, titles, heights, strict=True):
        axis.bar(names, height, color=[COLOURS.get(name, "#0b6e4f") for name in names])
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=40)
    return _saved(figure, options, "table1.png")


def curve_picture(
    curves: Mapping[str, Sequence[tuple[float, Errors]]], options: argparse.Namespace
) -> Path:
    """Keys released and l1 against the contribution bound, one line per design."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for name, points in curves.items():
        bound = [budget for budget, _ in points]
        axes[0].plot(bound, [e.keys for _, e in points], "o-", label=name)
        axes[1].plot(bound, [e.l1 / 1e6 for _, e in points], "o-", label=name)
    for axis, title in zip(axes, ("keys released", "l1 error (millions)"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_title(title)
        axis.set_xlabel("contribution bound: records C, or Q = Σ m²")
    axes[1].legend()
    return _saved(figure, options, "table1_curve.png")


def _saved(figure: Any, options: argparse.Namespace, name: str) -> Path:
    figure.suptitle(heading(options))
    path = Path(options.out) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def curve_table(
    curves: Mapping[str, Sequence[tuple[float, Errors]]], options: argparse.Namespace
) -> Table:
    """Keys and l1 per design and bound."""
    shown = Table(title=f"keys / l1 / l2 against the contribution bound; {heading(options)}")
    shown.add_column("design")
    for budget, _ in next(iter(curves.values())):
        shown.add_column(f"{budget:g}", justify="right")
    for name, points in curves.items():
        cells = [f"{e.keys:,.0f} / {e.l1 / 1e6:.2f} M / {e.l2:,.0f}" for _, e in points]
        shown.add_row(name, *cells)
    return shown
