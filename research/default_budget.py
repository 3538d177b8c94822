"""A default for a histogram's budget that follows from the number of triggers, judged on all sets.

Up to trigger 1 + delay no record is of a public key, and each costs 1/w² = 11 times what it costs
later: so a window of few triggers may need a larger bound. ``rule`` raises 12 to at most 48, in
proportion to that part of the window. 48 was chosen on "tuned" (`_heldout_histogram`); "held" and
"sealed" judge it. Errors are l1 at the last trigger, under the same noise for both defaults.

* ``old``, ``new``: error with 12, and with the rule, over that of the best bound and weight.
* ``new_over_old``: their ratio.

    python research/default_budget.py [--quick] [--json] [--half sealed]

The last line under ``--json``: geometric means, medians and the worst of all cells.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import _benchmarks  # noqa: F401
import _heldout_histogram as heldout
import numpy as np
from hushstream.mechanisms.histogram.settings import HistogramParameters
from rich.console import Console
from rich.table import Table

TRIGGERS, QUICK = (1, 2, 4, 7, 24), (1, 24)
USUAL, MORE, DELAY = 12.0, 36.0, 1
FIGURES = ("old", "new", "new_over_old")
Row = dict[str, Any]


def rule(triggers: int) -> float:
    """The bound of a window of ``triggers``."""
    return USUAL + MORE * min(1.0, (1 + DELAY) / triggers) // 1


def compared(half: str, quick: bool) -> Iterator[Row]:
    """A row for each set, ε and number of triggers."""
    plays = range(heldout.RUNS if quick else 2 * heldout.RUNS)
    for name, load in heldout.HALVES[half].items():
        work = load(heldout.JUDGED)
        for epsilon, delta in heldout.PRIVACY:
            for triggers in QUICK if quick else TRIGGERS:
                case = heldout.Case(name, epsilon, delta, triggers)
                old, new = (
                    heldout.error(HistogramParameters(budget=one), case, work, plays)
                    for one in (USUAL, rule(triggers))
                )
                least, best = heldout.oracle(case, work, quick)
                yield {
                    "set": name, "epsilon": epsilon, "triggers": triggers,
                    "rule": rule(triggers), "best": best.budget,
                    "old": old / least, "new": new / least, "new_over_old": new / old,
                }  # fmt: skip


def totals(rows: list[Row]) -> dict[str, float]:
    """The geometric mean, the median and the worst of each figure."""
    out = {}
    for name in FIGURES:
        each = np.array([row[name] for row in rows])
        out[f"{name}_mean"] = float(np.exp(np.log(each).mean()))
        out |= {f"{name}_median": float(np.median(each)), f"{name}_worst": float(each.max())}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two horizons, fewer runs")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--half", choices=heldout.HALVES, default="sealed")
    options = parser.parse_args()
    console = Console(stderr=options.json, width=120)
    rows = list(compared(options.half, options.quick))
    table = Table(title=f"a default budget that follows from the triggers, {options.half!r}")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "set" else "right")
    for row in rows:
        table.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()))
    console.print(table)
    if options.json:
        print(json.dumps(totals(rows)))
    else:
        console.print(totals(rows))


if __name__ == "__main__":
    main()
