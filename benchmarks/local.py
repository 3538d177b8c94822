"""Errors of means and range sums under local differential privacy, and how fast reports add up.

Each of 100,000 users holds one value and a slot (1 … 40) and makes one report. ToPL: a tenth of
the users report by Square Wave first; the rest get the threshold that follows from these reports,
and report by Hybrid in their slot; everything goes through the aggregator as in production.
Baselines, in which every user reports at the whole public range B: the two-point channel, and
Laplace noise of scale B/epsilon on the device. The mean is that of all users, so ToPL pays for its
first tenth. Range sums are, for all three methods, those of the other users' values in a random
range of slots (as in the paper, where the first group precedes the measured stream).

    python benchmarks/local.py [--quick] [--json] [--out DIR]

The last line under ``--json``: ``gain_two_point`` and ``gain_laplace`` (the least ratio of root
mean squared errors over the three workloads whose values are small in their public range, every
epsilon, means and range sums), ``gain_half_range`` and ``gain_full_range`` (the same where values
fill half of it or all: there is little or nothing to learn about the range),
``reports_per_second`` (decoded reports to release, one core), ``device_reports_per_second``
(without the disk), and every row.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from hushstream.client import Budget, Client, ReportStore, Survey
from hushstream.client.survey import RANGE, VALUE
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.mechanism import ToPL
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

USERS, SLOTS, RANGES = 100_000, 40, 200
F64 = NDArray[np.float64]
Generator = np.random.Generator
WORKLOADS: dict[str, tuple[int, Callable[[Generator, int], F64]]] = {
    "trips, Γ(3, 12)": (1440, lambda g, n: g.gamma(3, 12, n)),
    "buys, Exp(40)": (3000, lambda g, n: g.exponential(40, n)),
    "lognormal(3, 1)": (3000, lambda g, n: g.lognormal(3, 1, n)),
    "half, Beta(2, 5)": (100, lambda g, n: g.beta(2, 5, n) * 100),
    "full, uniform": (100, lambda g, n: g.uniform(0, 100, n)),
}
HALF, FULL = list(WORKLOADS)[3:]
METHODS = {"topl": "ToPL", "two_point": "two-point at B", "laplace": "Laplace at B"}
COLOURS = {"topl": "#0b6e4f", "two_point": "#b23a48", "laplace": "#8d99ae"}
Row = dict[str, Any]


def topl(
    survey: Survey, value: F64, slot: NDArray[np.int64], generator: Generator
) -> tuple[float, F64, Any, NDArray[np.bool_]]:
    """Released mean, sums per slot, the warm-up's release, and members of the value group."""
    mechanism = ToPL(survey, survey.bound / 2**20, SLOTS + 1, expected=USERS // SLOTS)
    memory = Memory(mechanism, ZeroNoise())
    users, group = crowd(survey, USERS)
    trigger = np.where(group == RANGE, 1, slot + 1)
    order = np.argsort(trigger, kind="stable")
    bounds = np.searchsorted(trigger[order], np.arange(1, SLOTS + 3))
    theta, sums, first = survey.buckets, [], None
    for t in range(1, SLOTS + 2):
        now = order[bounds[t - 1] : bounds[t]]
        columns = made(mechanism, now, users, slot, value, group, theta, generator)
        memory.absorb(encoded(mechanism, t, now, columns))
        release = memory.trigger()
        first = first or release
        theta = int(first.public["theta"][0])
        sums.append(release.value[0, 1])
    grid = float(mechanism.grid)
    return release.value[0, 0] * grid, np.array(sums[1:]) * grid, first, group == VALUE


@cache
def crowd(survey: Survey, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Names of users, and their groups."""
    users = np.array([f"user {i}" for i in range(n)], object)
    return users, np.array([survey.group(user) for user in users], np.int64)


def made(
    mechanism: ToPL,
    rows: NDArray[np.int64],
    names: NDArray[Any],
    slot: NDArray[np.int64],
    value: F64,
    group: NDArray[np.int64],
    theta: int,
    generator: Generator,
) -> dict[str, NDArray[Any]]:
    """Reports of some users, as decoded columns."""
    words = generator.integers(0, 1 << 64, (len(rows), 3), dtype=np.uint64)
    code = simulate(mechanism.survey, value[rows], group[rows], theta, words)
    step = np.where(group[rows] == RANGE, 0, theta)
    own = np.full(len(rows), mechanism.survey.number)
    columns = [slot[rows], group[rows], step, code, own, names[rows]]
    return dict(zip(mechanism.traits.inputs, columns, strict=True))


def encoded(
    mechanism: ToPL, t: int, rows: NDArray[np.int64], columns: dict[str, NDArray[Any]]
) -> Trace:
    """Reports of some users as events of one micro-batch."""
    coded = mechanism.encode(columns)
    ones = np.ones(len(rows), np.int8)
    return Trace(np.full(len(rows), t), rows, coded.keys, coded.key, coded.value, ones)


def two_point(survey: Survey, value: F64, generator: Generator) -> F64:
    reach = float(survey.hybrid.two_point.reach)
    level = 2 * value / float(survey.bound) - 1
    up = generator.random(len(value)) < 0.5 + level / (2 * reach)
    return float(survey.bound) * (1 + np.where(up, reach, -reach)) / 2


def laplace(survey: Survey, value: F64, generator: Generator) -> F64:
    return value + generator.laplace(0, float(survey.bound / survey.epsilon), len(value))


def sums_by(slot: NDArray[np.int64], value: F64) -> F64:
    return np.bincount(slot - 1, value, SLOTS)


def errors(workload: str, epsilon: float, generator: Generator) -> dict[str, tuple[float, float]]:
    """Squared error of the mean and mean squared error of range sums, by method, of one run."""
    bound, draw = WORKLOADS[workload]
    survey = Survey(Fraction(epsilon), Fraction(bound), "benchmark")
    value = np.clip(draw(generator, USERS), 0, bound)
    slot = generator.integers(1, SLOTS + 1, USERS)
    mean, sums, _, later = topl(survey, value, slot, generator)
    estimates = {"topl": (mean, sums)}
    for name, baseline in (("two_point", two_point), ("laplace", laplace)):
        said = baseline(survey, value, generator)
        estimates[name] = (float(said.mean()), sums_by(slot, said * later))
    truth = sums_by(slot, value * later)
    ends = np.sort(generator.integers(0, SLOTS + 1, (RANGES, 2)), axis=1)
    out = {}
    for name, (middle, each) in estimates.items():
        missed = np.concatenate([[0.0], np.cumsum(each - truth)])
        ranges = missed[ends[:, 1]] - missed[ends[:, 0]]
        out[name] = ((middle - float(value.mean())) ** 2, float((ranges**2).mean()))
    return out


def measure(quick: bool, console: Console) -> list[Row]:
    epsilons, runs = ([0.5, 2.0], 3) if quick else ([0.5, 1.0, 2.0], 48)
    rows = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reporting", total=len(WORKLOADS) * len(epsilons) * runs)
        for number, workload in enumerate(WORKLOADS):
            for epsilon in epsilons:
                seen = []
                for run in range(runs):
                    generator = np.random.default_rng([number, int(epsilon * 100), run])
                    seen.append(errors(workload, epsilon, generator))
                    progress.advance(task)
                rows.append(row_of(workload, epsilon, seen))
    return rows


def row_of(workload: str, epsilon: float, seen: list[dict[str, tuple[float, float]]]) -> Row:
    row: Row = {"workload": workload, "epsilon": epsilon}
    for name in METHODS:
        root = np.sqrt(np.mean([one[name] for one in seen], axis=0))
        row[f"{name}_mean"], row[f"{name}_range"] = map(float, root)
    for name in ("two_point", "laplace"):
        gains = [row[f"{name}_{what}"] / row[f"topl_{what}"] for what in ("mean", "range")]
        row[f"gain_{name}"] = min(gains)
    return row


def speed(million: int) -> float:
    """Decoded reports per second, from columns to the release, one core."""
    generator = np.random.default_rng(0)
    survey = Survey(Fraction(1), Fraction(1440), "benchmark")
    n = million
    users, group = crowd(survey, n)
    slot, value = np.arange(n) % 7, generator.gamma(3, 12, n)
    mechanism = ToPL(survey, horizon=2)
    memory, theta, taken = Memory(mechanism, ZeroNoise()), survey.buckets, 0.0
    for t, who in enumerate((RANGE, VALUE), 1):
        rows = np.flatnonzero(group == who)
        for start in range(0, len(rows), 100_000):
            now = rows[start : start + 100_000]
            columns = made(mechanism, now, users, slot, value, group, theta, generator)
            begin = time.perf_counter()
            memory.absorb(encoded(mechanism, t, now, columns))
            taken += time.perf_counter() - begin
        begin = time.perf_counter()
        release = memory.trigger()
        taken += time.perf_counter() - begin
        theta = int(release.public["theta"][0])
    assert len(release.key) == 1
    return n / taken


def device_speed(reports: int) -> float:
    """Reports per second of one device, store in memory."""
    survey = Survey(Fraction(1), Fraction(1440), "benchmark", reports=reports)
    survey.square_wave, survey.hybrid  # noqa: B018 - the tables are made once
    with ReportStore(":memory:", Budget(Fraction(reports))) as store:
        client = Client(survey, store)
        begin = time.perf_counter()
        for slot in range(reports):
            client.report("user", slot, slot % 90, theta=40)
        return reports / (time.perf_counter() - begin)


def show(rows: list[Row], totals: Row, console: Console) -> None:
    table = Table(title=f"root mean squared errors: ToPL, two-point, Laplace; {USERS:,} users")
    for heading in ("values", "ε", "mean", "two-p.", "Lapl."):
        table.add_column(heading, justify="left" if heading == "values" else "right", no_wrap=True)
    for heading in ("range/1000", "two-p.", "Lapl.", "gain"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [f"{row[f'{name}_mean']:.3g}" for name in METHODS]
        cells += [f"{row[f'{name}_range'] / 1000:,.0f}" for name in METHODS]
        least = min(row["gain_two_point"], row["gain_laplace"])
        table.add_row(row["workload"], f"{row['epsilon']:g}", *cells, f"{least:.2f}×")
    console.print(table)
    console.print(
        f"{totals['reports_per_second']:,.0f} reports/s aggregated, "
        f"{totals['device_reports_per_second']:,.0f} reports/s made on one device"
    )


def picture(rows: list[Row], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    fitted(left)
    workload = next(iter(WORKLOADS))
    mine = [row for row in rows if row["workload"] == workload]
    for name, label in METHODS.items():
        x, y = [row["epsilon"] for row in mine], [row[f"{name}_mean"] for row in mine]
        right.plot(x, y, "o-", color=COLOURS[name], linewidth=2, markersize=4)
        at = (x[-1], y[-1] * (0.6 if name == "two_point" else 1.45))
        right.annotate(label, at, ha="right", color=COLOURS[name])
    right.set(yscale="log", xlabel="epsilon per report", ylim=(0.1, 30))
    right.set_title("Error of the mean trip, minutes", loc="left", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    right.grid(axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def fitted(axes: Any) -> None:
    """Plot the distribution of trips by the range group's reports, and the resulting threshold."""
    generator = np.random.default_rng(1)
    bound, draw = next(iter(WORKLOADS.values()))
    survey = Survey(Fraction(1), Fraction(bound), "benchmark")
    value = np.clip(draw(generator, USERS), 0, bound)
    _, _, first, _ = topl(survey, value, generator.integers(1, SLOTS + 1, USERS), generator)
    edges = np.arange(survey.buckets + 1) * bound / survey.buckets
    truth = np.histogram(value, edges)[0] / USERS
    axes.stairs(truth, edges, fill=True, color="#d9dde3")
    axes.stairs(first.public["distribution"] / 1e6, edges, color=COLOURS["topl"], linewidth=1.8)
    top = float(survey.threshold(int(first.public["theta"][0])))
    axes.axvline(top, color="#33415c", linestyle="--", linewidth=1)
    axes.annotate(
        f"threshold {top:.0f}", (top, truth.max() * 0.85), (4, 0), textcoords="offset points"
    )
    axes.annotate("all trips", (38, truth.max() * 0.8), color="#6b7280")
    axes.annotate("estimate", (62, truth.max() * 0.3), color=COLOURS["topl"])
    axes.set(xlim=(0, 250), yticks=[], xlabel="minutes (public range 0 to 1440)")
    axes.set_title("Range group, 10,000 reports, ε = 1", loc="left", fontsize=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, two epsilons")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(stderr=True, width=100)
    totals: Row = {"reports_per_second": max(speed(1_000_000) for _ in range(2))}
    totals["device_reports_per_second"] = device_speed(2000)
    rows = measure(options.quick, console)
    small = [row for row in rows if row["workload"] not in (HALF, FULL)]
    for name in ("gain_two_point", "gain_laplace"):
        totals[name] = min(row[name] for row in small)
    for name, workload in (("gain_half_range", HALF), ("gain_full_range", FULL)):
        mine = [row for row in rows if row["workload"] == workload]
        totals[name] = min(min(row["gain_two_point"], row["gain_laplace"]) for row in mine)
    show(rows, totals, console if options.json else Console(width=100))
    picture(rows, options.out / "local.png")
    if options.json:
        print(json.dumps({**totals, "rows": rows}))


if __name__ == "__main__":
    main()
