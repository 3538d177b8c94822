"""Defaults on data that was not used for tuning: one module per family of mechanisms.

Values (`_heldout_values`): mean squared error of random ranges with ToPS's defaults, at ε from 0.05
to 1, against the authors' rules on the same warm-up and against the best threshold and shape for
the data.

Drift (`_heldout_drift`): mean squared error of ToPS and PAK with a threshold relearnt for each of
four stretches, over that with the first threshold, on steady streams and on others.

ToPL (`_heldout_topl`): squared error of a mean with the threshold that `topl` learns, at ε from
0.5 to 2, against the best constant threshold.

Maps (`_heldout_maps`): PHDStream and PrivHP at their defaults: ``phdstream_first_trigger_large``,
the median error of large boxes in windows of one trigger, ``privhp_over_phdstream``, the median
ratio of sliced Wasserstein distances there, and ``phdstream_coverage``, the least share of leaves
that the 95 % intervals of a set cover.

Units (`_heldout_units`): error of large boxes of a map that protects people who send many records:
with the proposed bound, with bound 1, and over the best of all bounds, debiased or not.

Windows (`_heldout_windows`): the first trigger of a second window. Where the stream is steady, the
error of large boxes of the map as released, and divided by the last map of the first window; where
the stream has moved, the worst ratio of the divided map's error to the smooth map's.

Oracles (`_heldout_oracle`, `_heldout_topl_oracle`, only with ``--oracle``): how near to the best a
rule can come that chooses ToPS's threshold at the end of the warm-up, or ToPL's from its two
groups, if it gets some of its data without noise.

    python research/heldout.py [--quick] [--json] [--half tuned] [--oracle]

The last line under ``--json``: ``tops_over_authors_median``, ``tops_over_authors_worst``,
``tops_over_best`` (the median over sets and ε; ``tops_over_best_worst`` the largest),
``tops_anew_over_first_drift`` and ``_steady`` (and of ``pak``), ``topl_over_best`` and
``topl_over_best_worst``, and every row. Below 1 is better. ``--half tuned`` shows the other half,
on which constants were chosen.
"""

from __future__ import annotations

import argparse
import json

import _benchmarks  # noqa: F401
import _heldout_drift as drift
import _heldout_maps as maps
import _heldout_oracle as oracle
import _heldout_topl as topl
import _heldout_topl_oracle as topl_oracle
import _heldout_units as units
import _heldout_values as values
import _heldout_windows as windows
from rich.console import Console
from rich.table import Table


def show(rows: list[values.Row], console: Console) -> None:
    table = Table(title="mean squared error of range sums")
    for column in ("stream", "ε", "ToPS", "authors", "best", "over authors", "over best"):
        table.add_column(column, justify="left" if column == "stream" else "right")
    for row in rows:
        table.add_row(
            row["stream"], f"{row['epsilon']:g}", f"{row['tops']:.2e}", f"{row['authors']:.2e}",
            f"{row['best']:.2e}", f"{row['tops'] / row['authors']:.2f}",
            f"{row['tops'] / row['best']:.2f}",
        )  # fmt: skip
    console.print(table)


def show_topl(rows: list[topl.Row], console: Console) -> None:
    table = Table(title="squared error of a mean under local privacy")
    for column in ("set", "ε", "theta", "best theta", "over best"):
        table.add_column(column, justify="left" if column == "set" else "right")
    for row in rows:
        table.add_row(
            row["set"], f"{row['epsilon']:g}", f"{row['topl_threshold']:.4g}",
            f"{row['best_threshold']:.4g}", f"{row['topl'] / row['best']:.2f}",
        )  # fmt: skip
    console.print(table)


def show_maps(found: dict[str, list[maps.Row]], console: Console) -> None:
    for title, rows in found.items():
        table = Table(title=title)
        for column in rows[0]:
            table.add_column(column, justify="left" if column == "set" else "right")
        for row in rows:
            table.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row.values()))
        console.print(table)


def show_oracle(
    rows: list[oracle.Row], what: str, rules: tuple[str, ...], title: str, console: Console
) -> None:
    table = Table(title=f"{title} over the best")
    for column in (what, "ε", *rules):
        table.add_column(column, justify="left" if column == what else "right")
    for row in rows:
        ratios = (f"{row[rule] / row['best']:.2f}" for rule in rules)
        table.add_row(row[what], f"{row['epsilon']:g}", *ratios)
    console.print(table)


def report_oracle(half: str, quick: bool, as_json: bool) -> None:
    """Run the program with ``--oracle``."""
    console = Console(stderr=as_json, width=110)
    with Console(stderr=True).status("oracle") as status:
        rows = oracle.measure(half, quick, lambda row: status.update(row["stream"]))
        local = topl_oracle.measure(half, quick, lambda row: status.update(row["set"]))
    show_oracle(rows, "stream", oracle.RULES, "mean squared error of range sums", console)
    show_oracle(local, "set", topl_oracle.RULES, "squared error of a mean", console)
    totals = oracle.totals(rows) | topl_oracle.totals(local)
    if as_json:
        print(json.dumps({**totals, "oracle": rows, "oracle_topl": local}))
    else:
        console.print(totals)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and fewer ε")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--half", choices=("held", "tuned"), default="held")
    parser.add_argument("--oracle", action="store_true", help="only what oracles reach")
    options = parser.parse_args()
    if options.oracle:
        report_oracle(options.half, options.quick, options.json)
        return
    console = Console(stderr=True, width=110)
    with console.status("values") as status:
        rows = values.measure(options.half, options.quick, lambda row: status.update(row["stream"]))
    with console.status("drift") as status:
        moved = drift.measure(options.half, options.quick, lambda row: status.update(row["stream"]))
    with console.status("topl") as status:
        local = topl.measure(options.half, options.quick, lambda row: status.update(row["set"]))
    with console.status("maps") as status:
        found = maps.measure(options.half, options.quick, status.update)
        found["units"] = units.measure(options.half, options.quick, status.update)
        found["windows"] = windows.measure(options.half, options.quick, status.update)
    totals = values.totals(rows) | drift.totals(moved) | topl.totals(local) | maps.totals(found)
    totals |= units.totals(found["units"]) | windows.totals(found["windows"])
    show(rows, console if options.json else Console(width=110))
    show_topl(local, console if options.json else Console(width=110))
    brief = {"units": units.brief(found["units"]), "windows": windows.brief(found["windows"])}
    shown = found | brief
    show_maps(shown, console if options.json else Console(width=110))
    if options.json:
        print(json.dumps({**totals, "values": rows, "drift": moved, "topl": local, "maps": found}))
    else:
        Console(width=110).print(totals)


if __name__ == "__main__":
    main()
