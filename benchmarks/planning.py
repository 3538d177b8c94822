"""The first choice of ``hush plan --sample`` against brute force, for all six mechanisms.

Each mechanism is planned for five data sets on which its formulas were not fitted: real records
(taxi trips, flights, postal codes) and families drawn with the named seed `SEED`. The plan's choice
and every setting of a grid are run with noise keys that the plan has not seen; the error is the one
that the plan minimises. ``worst_over_best`` is, per mechanism, the largest ratio of the choice's
error to the least of all: 1 is best. The least of many runs is a lucky one, so ``paired`` compares
the choice with a rival selected under the other half of the noise keys, and has a standard
deviation; ``≤ 1.1`` says whether that ratio is "within" the aim or "beyond" it with 95 %
confidence, or "open".

``range_held`` is the share of errors, one per noise key of the judge, within the plan's 80 % range:
0.75 to 0.85 is honest. Without ``--later`` this judges only noise, with it also the change of data.

    python benchmarks/planning.py [--quick] [--json] [--only MECHANISM] [--oracle] [--later]
                                 [--plays N] [--rows FILE]

Each row is printed as it is found. ``--rows`` also keeps them in a file of JSON lines, and reuses
rows of an earlier run with the same options, so that an interrupted run can continue. ``--quick``
takes a coarser grid, one ε and fewer runs. ``--oracle`` adds two planners that measure the error of
every setting with as many noise keys as the judge, but different ones, and take the least:
``floor`` chooses among the grid and the plan's candidates, ``own`` among the candidates only. A
floor above 1 is due to luck in the judge's and the oracle's noise and, with ``--later``, to the
change of data; ``own`` above the floor means a setting that the plan does not consider; the plan
above ``own`` is an error of its forecast. With ``--later`` plan and oracles see only the first half
of a set's records, and are judged on the other half.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _plan_paired import SQUARED, apart, overall, verdict
from _plan_sets import GROUPED, MAPS, VALUES, Set, halves
from hushstream.errors import ParameterError
from hushstream.mechanisms.catalogue import build, find, planner_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.forecast import choose, likely
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.planning.search import SPREAD, work_of
from rich.console import Console
from rich.table import Table

DELTA = Fraction(1, 10**6)
TRIGGERS = 8
UNSEEN = 10_000  # the first noise key of the judge, beyond all of the plan's
MEASURED = 20_000  # the first noise key of the oracles
PLAYS = 24  # with fewer, the least of many runs is mostly luck; `--plays` takes more
FEW = {"topl": 8}  # likewise where a noise key is eight runs


class Row(NamedTuple):
    mechanism: str
    set: str
    epsilon: float
    chosen: float
    best: float
    given: float
    paired: float
    deviation: float
    held: float  # share of the judge's errors within the forecast range
    floor: float | None = None
    own: float | None = None

    @property
    def ratio(self) -> float:
        """The choice's error divided by the least."""
        return self.over(self.chosen)

    def over(self, error: float) -> float:
        """An error divided by the least."""
        return error / max(self.best, 1e-12)


def histograms(start: Any, quick: bool) -> Iterator[Any]:
    budgets = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    shares = (0.5, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    weights = (0.0, 0.3) if quick else (0.0, 0.3, 0.5)
    for budget, weight, name, share in itertools.product(
        budgets, weights, ("terminal", "final"), shares
    ):
        if not weight or budget * weight**2 >= 0.1:
            yield replace(
                start, budget=budget, adaptive_weight=weight, factorization=name,
                threshold_delta_share=share,
            )  # fmt: skip


def paks(start: Any, quick: bool) -> Iterator[Any]:
    for warmup, expected in itertools.product((1, 2), (500,) if quick else (100, 500, 2000)):
        for excess in (0.0, 5.0, 50.0):
            yield replace(start, warmup=warmup, expected=expected, excess=excess)
        yield replace(start, warmup=warmup, expected=expected, threshold="top")


def tops(start: Any, quick: bool) -> Iterator[Any]:
    for warmup, expected in itertools.product((1, 2), (500,) if quick else (100, 500, 2000)):
        for excess in (0.0, 5.0, 50.0):
            yield replace(start, warmup=warmup, expected=expected, excess=excess)


def topls(start: Any, quick: bool) -> Iterator[Any]:
    shares = ("0.05", "0.1", "0.2", "0.4") + (() if quick else ("0.02", "0.15"))
    for rounds, share in itertools.product((1, 2), shares):
        yield replace(start, rounds=rounds, share=share)


def phdstreams(start: Any, quick: bool) -> Iterator[Any]:
    resolutions = (1, 3, 6) if quick else (0, 1, 2, 3, 4, 6)
    for counter, resolution in itertools.product(("simple", "block", "tree"), resolutions):
        yield replace(start, counter=counter, resolution=resolution)


def privhps(start: Any, quick: bool) -> Iterator[Any]:
    nodes = (64, 256, 1024) if quick else (32, 64, 128, 256, 512, 1024, 4096)
    for noise, k in itertools.product(("laplace", "gauss"), nodes):
        yield replace(start, noise=noise, k=k)


class Kind(NamedTuple):
    sets: list[Callable[[], Set]]
    grid: Callable[[Any, bool], Iterator[Any]]


KINDS = {
    "histogram": Kind(GROUPED, histograms),
    "pak": Kind(VALUES, paks),
    "tops": Kind(VALUES, tops),
    "topl": Kind(VALUES, topls),
    "phdstream": Kind(MAPS, phdstreams),
    "privhp": Kind(MAPS, privhps),
}


def question(kind: str, data: Set, epsilon: float) -> Question:
    """The question to the plan, with all defaults."""
    columns = (("value", 0, data.top),) if kind in ("pak", "tops", "topl") else ()
    setting = Setting(
        Fraction(str(epsilon)), DELTA, TRIGGERS, columns=columns,
        grids=(Fraction(1),) * len(columns),
    )  # fmt: skip
    given: dict[str, Any] = {}
    if kind == "phdstream":
        given["domain"] = Domain.unit(2, 7, "all")
    if kind == "privhp":
        given["domain"] = Domain.unit(2, 14, "binary")
    parameters = find(kind).parameters(**given)
    return Question(
        data.name, parameters, setting, build(kind, parameters, setting), data.sample, data.name,
        "last", None, None,
    )  # fmt: skip


Measure = Callable[[Any], np.ndarray]


def measure(kind: str, data: Set, epsilon: float, first: int, plays: int) -> Measure:
    """The errors of settings on a set, under each of ``plays`` noise keys from ``first`` on."""
    planner, asked = planner_of(kind), question(kind, data, epsilon)

    def errors(parameters: Any) -> np.ndarray:
        try:
            each = np.array(planner.forecast(asked, parameters, range(first, first + plays)).each)
            return np.sqrt(each) if kind in SQUARED else each
        except ParameterError:
            return np.full(plays, math.inf)

    return errors


def judged(
    kind: str, seen: Set, data: Set, epsilon: float, quick: bool, oracle: bool = False,
    plays: int | None = None,
) -> Row:  # fmt: skip
    """The plan's choice on ``seen`` and every setting of the grid, run on ``data``."""
    planner, asked = planner_of(kind), question(kind, seen, epsilon)
    plays = plays or FEW.get(kind, PLAYS)
    errors, squared = measure(kind, data, epsilon, UNSEEN, plays), kind in SQUARED
    choice = choose(planner, asked, work_of(planner, asked)).found[0].parameters
    grid = list(KINDS[kind].grid(asked.parameters, quick))
    each = np.array([errors(one) for one in (choice, asked.parameters, *grid)])
    low, high = likely(planner, asked, choice, SPREAD)
    held = float(np.mean((low <= each[0]) & (each[0] <= high)))
    chosen, given, *_ = all_ = overall(each, squared).tolist()
    row = Row(kind, data.name, epsilon, chosen, min(all_), given, *apart(each, squared), held)
    if not oracle:
        return row

    def error(found: np.ndarray) -> float:
        return float(overall(found, squared))

    measured = measure(kind, seen, epsilon, MEASURED, plays)
    own, own_error = _least(lambda one: error(measured(one)), planner.candidates(asked))
    best, best_error = _least(lambda one: error(measured(one)), grid)
    floor = error(errors(best if best_error < own_error else own))
    mine = error(errors(own))
    return row._replace(floor=floor, own=mine, best=min(row.best, floor, mine))


def _least(known: Callable[[Any], float], settings: Sequence[Any]) -> tuple[Any, float]:
    errors = [known(one) for one in settings]
    place = min(range(len(errors)), key=errors.__getitem__)
    return settings[place], errors[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a coarser grid, one ε")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--only", choices=list(KINDS), help="one mechanism alone")
    parser.add_argument("--oracle", action="store_true", help="add planners that measure")
    parser.add_argument("--later", action="store_true", help="judge on records not seen")
    parser.add_argument("--plays", type=int, help=f"noise keys of judge and oracles ({PLAYS})")
    parser.add_argument("--rows", type=Path, help="keep rows in this file, and go on with it")
    options = parser.parse_args()
    asked = [options.quick, options.oracle, options.later, options.plays]
    kept = read_rows(options.rows, asked) if options.rows else {}
    console, rows = Console(stderr=True, width=100), []
    with console.status("") as status:
        for kind in [options.only] if options.only else KINDS:
            for load, epsilon in itertools.product(
                KINDS[kind].sets, (1.0,) if options.quick else (0.5, 2.0)
            ):
                data = load()
                row = kept.get((kind, data.name, epsilon))
                if row is None:
                    status.update(f"{kind}: {data.name}, ε = {epsilon:g}")
                    seen, data = halves(data) if options.later else (data, data)
                    row = judged(
                        kind, seen, data, epsilon, options.quick, options.oracle, options.plays
                    )
                    if options.rows:
                        add_row(options.rows, asked, row)
                rows.append(row)
                console.print(
                    f"{kind}: {row.set}, ε = {epsilon:g}: {row.ratio:.3f} of the best, "
                    f"range held {row.held:.2f}",
                    highlight=False,
                )
    (console if options.json else Console(width=100)).print(_table(rows, options.oracle))
    worst = worst_over_best(rows)
    if options.json:
        told = [
            one._asdict() | {"verdict": verdict(one.paired, one.deviation)} for one in rows
        ]  # fmt: skip
        held = float(np.mean([row.held for row in rows]))
        print(json.dumps({"worst_over_best": worst, "range_held": held, "rows": told}))
    else:
        print("worst_over_best", {kind: round(ratio, 3) for kind, ratio in worst.items()})
        print("range_held", round(float(np.mean([row.held for row in rows])), 3))


def read_rows(path: Path, asked: list[Any]) -> dict[tuple[str, str, float], Row]:
    """Rows in a file from runs with these options, by mechanism, set and ε."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    told = [json.loads(line) for line in lines]
    rows = [Row(**one["row"]) for one in told if one["options"] == asked]
    return {(row.mechanism, row.set, row.epsilon): row for row in rows}


def add_row(path: Path, asked: list[Any], row: Row) -> None:
    """Append a row to such a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"options": asked, "row": row._asdict()}) + "\n")


def worst_over_best(rows: Sequence[Row]) -> dict[str, float]:
    """The largest ratio of each mechanism."""
    return {
        kind: max(row.ratio for row in rows if row.mechanism == kind)
        for kind in dict.fromkeys(row.mechanism for row in rows)
    }


def _table(rows: Sequence[Row], oracle: bool) -> Table:
    table = Table(title="error of the plan's first choice, and of the best of a grid")
    names = (
        "mechanism", "set", "ε", "chosen", "best", "as given", "chosen / best", "paired", "≤ 1.1",
        "held",
    )  # fmt: skip
    for column in (*names, *(("own / best", "floor / best") if oracle else ())):
        table.add_column(column, justify="left" if column in ("mechanism", "set") else "right")
    for row in rows:
        more = [f"{row.over(one):.3f}" for one in (row.own, row.floor) if one is not None]
        table.add_row(
            row.mechanism, row.set, f"{row.epsilon:g}", f"{row.chosen:.3%}", f"{row.best:.3%}",
            f"{row.given:.3%}", f"{row.ratio:.3f}", f"{row.paired:.3f} ± {row.deviation:.3f}",
            verdict(row.paired, row.deviation), f"{row.held:.2f}", *more,
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()
