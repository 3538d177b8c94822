"""Defaults on data on which no constant was chosen; figures are ratios to the best or a rival.

Sets come in groups that were fixed before any constant: constants are chosen on "tuned", and
figures are for "unseen", which is looked at only when a constant is final ("held" is for
`research/heldout.py`; value streams and histograms also have "sealed", for constants chosen after a
look at others; ToPL also has "filled", laws near B to tune on). All sets are columns of
`examples/data` and laws with different parameters and seeds.

* ``tops_median``, ``tops_worst``: squared error of random ranges over that of the rules of Wang et
  al. (CCS 2021) on the same warm-up (`_heldout_values`).
* ``topl_within_3``: share of cells whose squared error of a mean is at most three times that of
  the best threshold; ``topl_worst`` the largest ratio, ``topl_over_whole`` the largest ratio to
  everybody reporting within [0, B]; ``topl_beyond_covered`` the share of runs whose 95 % interval
  holds the share of values at or above theta (`_heldout_topl`).
* ``pak_median``, ``pak_worst``: error of running totals over that with the best threshold
  (`_heldout_pak`).
* ``histogram_over_oracle``: l1 error over that of the best bound (`_heldout_histogram`, "held" for
  "unseen").
* ``phdstream_coverage_by_records``: share of records in leaves whose 95 % interval holds the exact
  count, the least of any set (`intervals`, ``CHECKED_ON``).

    python benchmarks/heldout.py [--quick] [--json] [--half tuned] [--only topl]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import _heldout_histogram as histogram
import _heldout_pak as pak
import _heldout_topl as topl
import _heldout_values as values
import intervals
from rich.console import Console
from rich.table import Table

HALVES = ("unseen", "sealed", "held", "tuned", "filled")
Row = dict[str, Any]
Found = tuple[list[Row], Row]
Tell = Callable[[str], None]


def tops_figures(half: str, quick: bool, tell: Tell) -> Found:
    """ToPS over the rules of the paper."""
    rows = values.measure(half, quick, lambda row: tell(row["stream"]), oracle=False)
    found = values.totals(rows)
    return rows, {
        f"tops_{name}": found[f"tops_over_authors_{name}"] for name in ("median", "worst")
    }


def topl_figures(half: str, quick: bool, tell: Tell) -> Found:
    """ToPL over the best threshold."""
    rows = topl.measure(half, quick, lambda row: tell(row["set"]), single=False)
    found = topl.totals(rows)
    names = {"within_3": "within_3", "worst": "over_best_worst"}
    names |= {name: name for name in ("over_whole", "beyond_covered")}
    return rows, {f"topl_{name}": found[f"topl_{of}"] for name, of in names.items()}


def pak_figures(half: str, quick: bool, tell: Tell) -> Found:
    """PAK over the best threshold."""
    rows = pak.measure(half, quick, lambda row: tell(row["stream"]))
    return rows, pak.totals(rows)


def histogram_figures(half: str, quick: bool, tell: Tell) -> Found:
    """The default bound over the best one."""
    group = half if half in histogram.HALVES else "held"
    rows = histogram.measure(group, quick, tell)
    return rows, {"histogram_over_oracle": histogram.totals(rows)["histogram_over_oracle"]}


def coverage_figures(half: str, quick: bool, tell: Tell) -> Found:
    """Share of records in leaves whose interval holds."""
    names = intervals.CHOSEN_ON if half == "tuned" else intervals.CHECKED_ON
    domain, rows = intervals.DOMAINS["quarters, depth 8"], []
    for name in list(names)[-2:] if quick else names:
        tell(name)
        covered = [one.records for one in intervals.snapshots(domain, names[name](), name)]
        rows.append({"set": name, "covered": sum(covered) / len(covered)})
    return rows, {"phdstream_coverage_by_records": min(row["covered"] for row in rows)}


PARTS = {
    "tops": tops_figures, "topl": topl_figures, "pak": pak_figures,
    "histogram": histogram_figures, "phdstream": coverage_figures,
}  # fmt: skip


def shown(name: str, rows: list[Row]) -> Table:
    """All numbers of a part."""
    table = Table(title=name)
    columns = [column for column, value in rows[0].items() if isinstance(value, str | float | int)]
    for column in columns:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        cells = (row[column] for column in columns)
        table.add_row(*(one if isinstance(one, str) else f"{one:.4g}" for one in cells))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, sets and ε")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--half", choices=HALVES, default="unseen")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    options = parser.parse_args()
    console = Console(stderr=options.json, width=120)
    figures: Row = {}
    for name in options.only or PARTS:
        with Console(stderr=True).status(name) as status:
            rows, found = PARTS[name](options.half, options.quick, status.update)
        console.print(shown(name, rows))
        figures |= found
    if options.json:
        print(json.dumps(figures))
    else:
        console.print(figures)


if __name__ == "__main__":
    main()
