"""Coverage and width of the intervals of released maps.

PHDStream at its defaults, ε = 1, 24 triggers: a leaf is covered if its 95 % interval, cut at 0,
holds the exact number of live records in it. *Noise alone* counts only the noise of counters as
error; *stated* also covers the unknown division of an inherited count. Figures are means over
leaves and over every fourth trigger; *by records* weighs each leaf by its live records, *half as
wide* says how that would be if intervals were. The model of shares was chosen on the first group of
data sets; the second was looked at afterwards.

    python benchmarks/intervals.py [--quick] [--json] [--topl]

``--topl``: instead of maps, intervals of means under local privacy (`_intervals_topl`).
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple
from unittest.mock import patch

import _intervals_topl as local
import numpy as np
import pyarrow as pa
from _spatial import Store, Stream, circles, keyed, part_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream import shares, tree
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.spatial.domain import Domain
from rich.console import Console
from rich.table import Table

DATA = Path(__file__).parent.parent / "examples" / "data"
TICKS, EVERY = 24, 4
REACH = NormalDist().inv_cdf(0.975)
DOMAINS = {"quarters, depth 8": Domain.unit(2, 8, "all"), "halves, depth 16": Domain.unit(2, 16)}
Shown = dict[str, float]


def in_order(points: np.ndarray) -> Stream:
    """Points of the unit square as a stream of insertions, equally many at each tick."""
    inside = np.clip(points, 0, 1)
    tick = np.arange(len(inside)) * TICKS // len(inside) + 1
    return Stream(tick, inside, np.ones(len(inside), int))


def mixed(points: np.ndarray) -> Stream:
    """The same in random order, so that every tick has the same distribution."""
    return in_order(np.random.default_rng(1).permutation(points))


def scaled(x: np.ndarray, y: np.ndarray, ends: tuple[float, float, float, float]) -> np.ndarray:
    """Two columns in the unit square, from their ends: low x, high x, low y, high y."""
    left, right, low, high = ends
    points = np.stack([(x - left) / (right - left), (y - low) / (high - low)], axis=1)
    return points[((points >= 0) & (points <= 1)).all(axis=1)]


def columns(name: str) -> dict[str, np.ndarray]:
    """Numeric columns of a table of the repository, trips in the order of their pickup."""
    if name == "flights":
        table = pa.ipc.open_file(DATA / "flights-200k.arrow").read_all()
        return {n: np.asarray(table[n].to_numpy(), float) for n in table.column_names}
    with (DATA / f"{name}.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    rows.sort(key=lambda row: row.get("pickup", ""))
    wanted = ("longitude", "latitude", "distance", "fare", "tip", "total")
    return {n: np.array([float(row[n]) for row in rows]) for n in wanted if n in rows[0]}


def postal() -> np.ndarray:
    table = columns("zipcodes")
    return scaled(table["longitude"], table["latitude"], (-125, -66, 24, 50))


def trips(x: str, y: str, ends: tuple[float, float, float, float]) -> Stream:
    table = columns("taxis")
    return in_order(scaled(table[x], table[y], ends))


def flights(x: str, ends: tuple[float, float], ordered: bool = False) -> Stream:
    table = columns("flights")
    order = np.argsort(table["time"], kind="stable")
    points = scaled(table[x][order], table["distance"][order], (*ends, 0, 5000))
    return in_order(points) if ordered else mixed(points)


def hills() -> Stream:
    draw = np.random.default_rng(5)
    spread = np.array([0.01, 0.03, 0.005, 0.05, 0.002, 0.02, 0.01, 0.03])
    which, centre = draw.integers(0, 8, 50_000), draw.random((8, 2))
    return mixed(centre[which] + spread[which, None] * draw.normal(size=(50_000, 2)))


def cascade() -> Stream:
    bits = np.random.default_rng(77).random((40_000, 30, 2)) < (0.8, 0.7)
    return mixed(np.einsum("nbd,b->nd", bits, 0.5 ** np.arange(1, 31)))


def walk() -> Stream:
    draw = np.random.default_rng(78)
    path = np.abs((0.5 + np.cumsum(draw.normal(0, 0.001, (40_000, 2)), axis=0)) % 2 - 1)
    return in_order(path + draw.normal(0, 0.02, path.shape))


CHOSEN_ON: dict[str, Callable[[], Stream]] = {
    "growing circles": lambda: circles(False, TICKS, 3000),
    "circles, with deletions": lambda: circles(True, TICKS, 3000),
    "uniform": lambda: mixed(np.random.default_rng(5).random((50_000, 2))),
    "eight hills": hills,
    "postal codes, at random": lambda: mixed(postal()),
    "postal codes, east to west": lambda: in_order(postal()),
    "flights, delay and distance": lambda: flights("delay", (-100, 500)),
    "taxis, distance and fare": lambda: trips("distance", "fare", (0, 40, 0, 160)),
}
CHECKED_ON: dict[str, Callable[[], Stream]] = {
    "flights, time and distance": lambda: flights("time", (0, 24)),
    "flights, hour after hour": lambda: flights("delay", (-100, 1500), ordered=True),
    "postal codes, west to east": lambda: in_order(postal()[::-1]),
    "taxis, tip and total": lambda: trips("tip", "total", (0, 20, 0, 160)),
    "cascade": cascade,
    "a cluster that walks": walk,
}
DATASETS = CHOSEN_ON | CHECKED_ON
HARD = "postal codes, west to east", "taxis, tip and total"


def noise_alone(
    inherited: np.ndarray,
    above: shares.Error,
    part: np.ndarray,
    families: np.ndarray,
    doubt: np.ndarray,
    alpha: float,
) -> shares.Error:
    """The error of a share as if the share were known: only the noise of the count above."""
    return shares.Error(np.zeros(len(part)), np.repeat(above.square / families**2, families))


def made(domain: Domain, stream: Stream) -> PHDStream:
    deletions = bool((stream.sign < 0).any())
    bound = 2 if deletions else 1
    parameters = PHDStreamParameters(domain=domain, deletions=deletions, bound=bound)
    return build(parameters, Setting(Fraction(1), Fraction(0), TICKS))


def exact(domain: Domain, live: Stream, codes: np.ndarray) -> np.ndarray:
    """Live records in each node."""
    finest = domain.place(live.point)
    order = np.argsort(finest, kind="stable")
    before = np.concatenate([[0], np.cumsum(live.sign[order])])
    drop = (domain.bits - domain.level(codes) * domain.step).astype(np.uint64)
    ends = [np.searchsorted(finest[order], (codes + np.uint64(n)) << drop) for n in (0, 1)]
    return before[ends[1]] - before[ends[0]]


class Snapshot(NamedTuple):
    """Intervals of one trigger's leaves."""

    leaves: float  # share of covered leaves
    width: float  # mean
    number: int  # of leaves
    records: float  # share of the live records in covered leaves


def snapshots(
    domain: Domain, stream: Stream, name: str, reach: float = REACH
) -> Iterator[Snapshot]:
    """Every fourth trigger's intervals, which reach so many standard deviations."""
    mechanism = made(domain, stream)
    store, noise = Store(mechanism.traits), keyed(name)
    for t in range(1, TICKS + 1):
        rows, release = mechanism.release(store.closed(part_of(mechanism, stream.at(t)), t), noise)
        store.store(rows)
        if t % EVERY == 0:
            codes = release.key.codes()
            truth = exact(domain, stream.upto(t), codes)
            value = release.value[:, 0] / tree.GRID
            far = reach * np.sqrt(release.variance[:, 0]) / tree.GRID
            low, high = np.maximum(value - far, 0), np.maximum(value + far, 0)
            held = (low <= truth) & (truth <= high)
            inside = float(truth[held].sum() / max(truth.sum(), 1))
            yield Snapshot(float(held.mean()), float((high - low).mean()), len(codes), inside)


def measure(name: str, domain: Domain) -> Shown:
    """Coverage and mean width with and without the error of shares."""
    stream = DATASETS[name]()
    stated = np.mean(list(snapshots(domain, stream, name)), axis=0)
    half = np.mean(list(snapshots(domain, stream, name, REACH / 2)), axis=0)
    with patch.object(tree, "share_error", noise_alone):
        plain = np.mean(list(snapshots(domain, stream, name)), axis=0)
    return {
        "noise_alone": float(plain[0]),
        "stated": float(stated[0]),
        "by_records": float(stated[3]),
        "by_records_half_as_wide": float(half[3]),
        "width_noise_alone": float(plain[1]),
        "width_stated": float(stated[1]),
        "leaves": float(stated[2]),
    }


def report_local(quick: bool, as_json: bool) -> None:
    """The whole program under ``--topl``."""
    runs = 100 if quick else 400
    with Console(stderr=True).status("topl") as status:
        rows = local.measure(runs, quick, lambda row: status.update(row["law"]))
    table = Table(title=f"95 % intervals of means, {runs} runs")
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "))
    for row in rows:
        told = (f"{100 * row[n]:.1f} %" for n in ("noise_alone", "stated"))
        plain = (row["law"], str(row["rounds"]), f"{row['epsilon']:g}", str(row["channel"]))
        table.add_row(*plain, f"{row['users']:,}", *told)
    Console(stderr=as_json, width=110).print(table)
    if as_json:
        print(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the two hardest data sets")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--topl", action="store_true", help="means under local privacy")
    options = parser.parse_args()
    if options.topl:
        report_local(options.quick, options.json)
        return
    names = HARD if options.quick else tuple(DATASETS)
    found = {split: {n: measure(n, domain) for n in names} for split, domain in DOMAINS.items()}
    console = Console(stderr=options.json, width=110)
    for split, rows in found.items():
        table = Table(title=f"95 % intervals of leaves, {split}")
        headings = "data", "leaves", "noise alone", "stated", "by records", "half as wide"
        for heading in (*headings, "width, noise alone", "stated"):
            table.add_column(heading, justify="left" if heading == "data" else "right")
        percent = "noise_alone", "stated", "by_records", "by_records_half_as_wide"
        for name, row in rows.items():
            told = [f"{100 * row[n]:.0f} %" for n in percent]
            told += [f"{row[n]:.0f}" for n in ("width_noise_alone", "width_stated")]
            mark = "" if name in CHOSEN_ON else " *"
            table.add_row(name + mark, f"{row['leaves']:,.0f}", *told)
        console.print(table)
    console.print("* not used to choose the model")
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
