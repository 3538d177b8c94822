"""The advice of ``hush plan`` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from ..deployment.model import Pipeline

HEADS = {
    "adaptive_weight": "weight",
    "factorization": "factors",
    "threshold_delta_share": "δ share",
    "last_share": "last share",
    "count_share": "count share",
    "per_key": "per key",
}


def show(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    """Print advice on one pipeline."""
    console.print()
    if body["kind"] == "histogram":
        _show_histogram(console, pipeline, body)
    else:
        console.print(_values(pipeline, body))
    for note in body["notes"]:
        console.print(f"• {note}", markup=False, highlight=False)
    console.print("proposed:" if body["changed"] else "no change needed:", style="bold")
    console.print(body["toml"], markup=False, highlight=False, soft_wrap=True)


def _show_histogram(console: Console, pipeline: Pipeline, body: dict[str, Any]) -> None:
    sample, goal = body["sample"], body["goal"]
    console.print(
        f"{pipeline.name}, tried on {body['source']} (records: {sample['records']:,}, units: "
        f"{sample['units']:,}, keys: {sample['keys']:,}, windows: {sample['windows']}). "
        "This must be public or synthetic data: settings that are tuned on the protected stream "
        "leak it, and no charge covers that. It should be as large as a real window: noise and "
        "thresholds do not shrink with a sample.",
        highlight=False, markup=False,
    )  # fmt: skip
    rows = list(_rows(body))
    first = rows[0][1]["settings"]
    varied = [n for n in first if any(r["settings"][n] != first[n] for _, r in rows)]
    at = "at a window's last trigger" if goal == "last" else "on average over a window's triggers"
    table = Table(
        title=f"{pipeline.name}: expected error {at}", title_justify="left", box=None,
        padding=(0, 2, 0, 0),
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for name in varied:
        table.add_column(HEADS.get(name, name), justify="right", no_wrap=True)
    table.add_column("keys", justify="right", no_wrap=True)
    for name in _errors(body["proposed"], goal):
        table.add_column(f"l1 {name}", justify="right")
    table.add_column("of all", justify="right", no_wrap=True)
    for mark, candidate in rows:
        table.add_row(mark, *_cells(candidate, goal, varied))
    console.print(table)


def _rows(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The configured settings, then the best candidate of every budget, the proposed one marked."""
    best: dict[float, dict[str, Any]] = {}
    for candidate in body["candidates"]:  # best first
        best.setdefault(candidate["settings"]["budget"], candidate)
    proposed, given = body["proposed"], body["configured"]
    best[proposed["settings"]["budget"]] = proposed
    if given != proposed:
        yield "configured", given
    shown: list[Any] = []
    for _, candidate in sorted(best.items()):
        figures = candidate["l1"], candidate["mean_l1"]
        if candidate == proposed:
            yield "proposed", candidate
        elif candidate != given and figures not in shown:  # budgets that make no difference
            yield "", candidate
        shown.append(figures)


def _cells(candidate: dict[str, Any], goal: str, names: list[str]) -> list[str]:
    settings = [candidate["settings"][name] for name in names]
    errors = _errors(candidate, goal).values()
    numbers = [f"{candidate['released']:,.0f}", *(f"{x:,.0f}" for x in errors)]
    return [
        *(v if isinstance(v, str) else f"{v:g}" for v in settings), *numbers,
        f"{candidate['share']:.1%}",
    ]  # fmt: skip


def _errors(candidate: dict[str, Any], goal: str) -> dict[str, float]:
    """The errors that form the goal; both of them if there is a single output."""
    last, mean = candidate["l1"], candidate["mean_l1"]
    if len(last) == 1:
        ((name, x),) = last.items()
        return {"last": x, "mean": mean[name]}
    chosen: dict[str, float] = last if goal == "last" else mean
    return chosen


def _values(pipeline: Pipeline, body: dict[str, Any]) -> Table:
    what = "running total" if body["kind"] == "pak" else "sum of a range"
    table = Table(
        title=f"{pipeline.name}: expected for {body['records']:,} records per window, large values "
        f"e times rarer every {body['scale']:g}",
        show_header=False, title_justify="left",
    )  # fmt: skip
    names = {
        "proposed": "as proposed",
        "configured": "as configured",
        "ideal": "with the ideal threshold",
        "top": f"with B = {body['largest_value']:g}",
    }
    for name, error in body["expected_error"].items():
        text = "no useful threshold" if error is None else f"±{error:,.4g}"
        table.add_row(f"error of a {what}, {names[name]}", text)
    for name, text in _details(body):
        table.add_row(name, text)
    return table


def _details(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if body["kind"] == "pak":
        if body["rank"]:
            yield "threshold from the warm-up's", f"{body['rank']}-th largest value"
        return
    threshold = body["threshold"]
    spread = f"{threshold['5%']:g} to {threshold['95%']:g}, ideal {threshold['ideal']:g}"
    yield "threshold, with 90 % probability", spread
    block = f"{body['slots_per_block']:,} (skip = {body['skip']})"
    yield "slots of the finest sum with its own noise", block
    chunk = body["slots_per_chunk"]
    yield "slots of one hierarchy", f"{chunk:,}" if chunk else "unbounded"
