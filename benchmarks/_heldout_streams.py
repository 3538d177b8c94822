"""Streams of values in groups: some to tune defaults on, others kept for figures.

Each kind of stream is in every group, with other fields, laws, parameters and seeds: real records
(taxi trips, flights, postal codes), steady laws, bursts, sparse users, drift and level shifts.
"unseen" is looked at once, after every constant is fixed; earlier figures used "held". Constants
that were fixed after a look at "unseen" are judged on "sealed": laws of `_sealed_streams` with
random parameters.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from _sealed_streams import sealed
from _values import DATA, F64, Stream

LONG = 1 << 15
DAY = 1440


def streams(half: str) -> list[Stream]:
    """The streams of a group: "tuned", "held", "unseen" or "sealed"."""
    if half == "sealed":
        return [_stream(name, values, top) for name, values, top in sealed(LONG)]
    laws = {"tuned": _tuned, "held": _held, "unseen": _unseen}[half]
    made = [*(_more() if half == "unseen" else _real(half)), *laws()]
    return [_stream(name, values, top) for name, values, top in made]


def _stream(name: str, values: F64, top: int) -> Stream:
    return Stream(name, np.clip(np.rint(values), 0, top).astype(np.int64), top)


def _real(half: str) -> Iterator[tuple[str, F64, int]]:
    trips, flights, codes = _trips(), _flights(), _codes()
    order = np.random.default_rng(6).permutation(len(flights["delay"]))[: 2 * LONG]
    if half == "tuned":
        yield "taxi fares", trips["fare"] * 2, 1000
        yield "taxi tips", trips["tip"] * 100, 20_000
        yield "taxi tolls", trips["tolls"] * 4, 400
        yield "flight delays", flights["delay"][order], 1500
        yield "delays, loose", np.abs(flights["delay"][order]), 16_470
        yield "flight distances", flights["distance"][order], 5000
        yield "gaps of postal codes", np.diff(np.sort(codes["zip_code"])), 1000
        return
    yield "taxi minutes", trips["minutes"], 600
    yield "taxi speeds", trips["distance"] / np.maximum(trips["minutes"], 1) * 600, 1500
    yield "fares a mile", trips["fare"] / np.maximum(trips["distance"], 0.1) * 10, 5000
    yield "tips in cents of the fare", trips["tip"] / np.maximum(trips["fare"], 1) * 100, 1000
    rest = np.setdiff1d(np.arange(len(flights["delay"])), order)[: 3 * LONG]
    late = np.sort(rest[: 2 * LONG])
    yield "delays over 15 minutes", np.maximum(flights["delay"][rest[:LONG]] - 15, 0), 1440
    yield "delays by the hour", flights["delay"][late], 2000
    yield "distances by the hour", flights["distance"][late], 10_000
    yield "steps between post offices", _steps(codes), 16_470


def _more() -> Iterator[tuple[str, F64, int]]:
    """Columns of the same tables that the other groups do not use."""
    trips, flights, codes = _trips(), _flights(), _codes()
    yield "extras of taxi trips", trips["extras"] * 100, 3000
    yield "seconds between pickups", trips["gap"], 36_000
    order = np.random.default_rng(8).permutation(len(flights["delay"]))[: 2 * LONG]
    far, late = flights["distance"][order], flights["delay"][order]
    yield "minutes early", np.maximum(-late, 0), 100
    yield "miles by hours late", far * np.maximum(late, 0) / 600, 100_000
    yield "minutes of the day", flights["time"][order] * 60, 1440
    _, offices = np.unique(codes["zip_code"] // 10, return_counts=True)
    yield "post offices of ten codes", offices, 50
    yield "steps to the north", np.abs(np.diff(codes["latitude"])) * 1110, 20_000


def _tuned() -> Iterator[tuple[str, F64, int]]:
    g = np.random.default_rng(1)
    yield "exponential", g.exponential(40, LONG), 3000
    yield "exponential, loose", g.exponential(8, LONG), 16_470
    yield "gamma", g.gamma(3, 12, LONG), 1440
    yield "Pareto 1.5", 20 * (g.pareto(1.5, LONG) + 1), 10_000
    yield "lognormal 1.5", g.lognormal(3, 1.5, LONG), 20_000
    yield "uniform", g.uniform(0, 500, LONG), 1000
    yield "constant", np.full(LONG, 37.0), 1000
    yield "bursts", _bursts(g, 10, 120, 512, 0.05), 3000
    yield "sparse", np.where(g.random(LONG) < 0.02, g.exponential(100, LONG), 0), 5000
    yield "days", g.exponential(30, LONG) * _days(0.8), 2000
    yield "drift to 4", g.exponential(20, LONG) * np.linspace(1, 4, LONG), 3000
    yield "step to 10", g.exponential(20, LONG) * _step(0.5, 10), 3000
    yield "step to 1/10", g.exponential(200, LONG) * _step(0.5, 0.1), 3000


def _held() -> Iterator[tuple[str, F64, int]]:
    g = np.random.default_rng(2)
    yield "exponential, B 20 times", g.exponential(60, LONG), 1200
    yield "exponential, B 1,000 times", g.exponential(15, LONG), 15_000
    yield "Weibull 0.6", 30 * g.weibull(0.6, LONG), 6000
    yield "Weibull 2", 80 * g.weibull(2, LONG), 1000
    yield "Pareto 2", 15 * (g.pareto(2, LONG) + 1), 20_000
    yield "lognormal 0.8", g.lognormal(3.5, 0.8, LONG), 4000
    yield "two levels", np.where(g.random(LONG) < 0.1, 400, 25), 2000
    yield "squared uniform", 300 * g.random(LONG) ** 2, 300
    yield "long bursts", _bursts(g, 15, 90, 2048, 0.1), 2500
    yield "short bursts", _bursts(g, 5, 200, 64, 0.03), 4000
    yield "one value in 30", np.where(g.random(LONG) < 1 / 30, g.gamma(2, 80, LONG), 0), 3000
    yield "weeks", g.gamma(2, 20, LONG) * _days(0.5, 7 * DAY), 1500
    yield "drift to 2", g.exponential(35, LONG) * np.geomspace(1, 2, LONG), 2500
    yield "drift to 6", g.gamma(2, 12, LONG) * np.linspace(1, 6, LONG), 3000
    yield "drift to 1/4", g.exponential(90, LONG) * np.linspace(1, 0.25, LONG), 3000
    yield "step to 5", g.gamma(2, 15, LONG) * _step(0.3, 5), 4000
    yield "step to 30", g.exponential(10, LONG) * _step(0.7, 30), 5000
    yield "step to 1/20", g.exponential(150, LONG) * _step(0.4, 0.05), 2500


def _unseen() -> Iterator[tuple[str, F64, int]]:
    g = np.random.default_rng(3)
    yield "half a bell", np.abs(g.normal(0, 70, LONG)), 1000
    yield "lognormal 1.2", g.lognormal(2.5, 1.2, LONG), 8000
    yield "Pareto 1.3", 10 * (g.pareto(1.3, LONG) + 1), 50_000
    yield "near the top", 400 * g.beta(8, 2, LONG), 400
    yield "nine tenths of the range", g.uniform(0, 900, LONG), 1000
    yield "about one value", g.normal(60, 6, LONG), 3000
    yield "one value in 50", np.where(g.random(LONG) < 0.02, g.lognormal(4, 0.7, LONG), 0), 6000
    yield "rare and large", np.where(g.random(LONG) < 0.01, g.gamma(3, 500, LONG), 8), 20_000
    hump = np.where(g.random(LONG) < 0.5, g.gamma(9, 5, LONG), g.normal(300, 30, LONG))
    yield "two humps", hump, 900
    yield "days and weeks", g.gamma(2, 25, LONG) * _days(0.6) * _days(0.3, 7 * DAY), 2000
    yield "a level that wanders", g.exponential(30, LONG) * np.exp(_wandering(g)), 4000
    yield "drift to 3", g.exponential(25, LONG) * np.geomspace(1, 3, LONG), 3000
    yield "step to 4", g.exponential(30, LONG) * _step(0.6, 4), 5000
    yield "step to 1/8", g.gamma(2, 60, LONG) * _step(0.5, 0.125), 3000


def _wandering(g: np.random.Generator) -> F64:
    """A level within about ±0.6 that returns to 0 over some hundred records."""
    made, steps = np.zeros(LONG), g.normal(0, 0.04, LONG)
    for i in range(1, LONG):
        made[i] = 0.996 * made[i - 1] + steps[i]
    return made


def _bursts(g: np.random.Generator, calm: float, loud: float, length: int, share: float) -> F64:
    on = np.repeat(g.random(LONG // length) < share, length)
    made: F64 = np.where(on, g.exponential(loud, LONG), g.exponential(calm, LONG))
    return made


def _days(swing: float, length: int = DAY) -> F64:
    made: F64 = 1 + swing * np.sin(np.arange(LONG) * 2 * np.pi / length)
    return made


def _step(place: float, factor: float) -> F64:
    return np.where(np.arange(LONG) < place * LONG, 1.0, factor)


def _trips() -> dict[str, F64]:
    with (DATA / "taxis.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["pickup"])
    made: dict[str, Any] = {
        name: np.array([float(row[name]) for row in rows])
        for name in ("fare", "tip", "tolls", "distance")
    }
    begin, end = (
        np.array([row[n] for row in rows], "datetime64[s]") for n in ("pickup", "dropoff")
    )
    total = np.array([float(row["total"]) for row in rows])
    made["extras"] = total - made["fare"] - made["tip"] - made["tolls"]
    made["gap"] = np.diff(begin).astype(np.float64)
    return made | {"minutes": (end - begin).astype(np.float64) / 60}


def _flights() -> dict[str, F64]:
    table = pa.ipc.open_file(DATA / "flights-200k.arrow").read_all()
    return {n: table[n].to_numpy().astype(np.float64) for n in ("delay", "distance", "time")}


def _codes() -> dict[str, F64]:
    with (DATA / "zipcodes.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["latitude"]]
    names = ("zip_code", "latitude", "longitude")
    return {name: np.array([float(row[name]) for row in rows]) for name in names}


def _steps(codes: dict[str, F64]) -> F64:
    """Rough tenths of kilometres from each post office to the next, ordered by code."""
    north, east = np.diff(codes["latitude"]) * 111, np.diff(codes["longitude"]) * 85
    made: F64 = np.hypot(north, east) * 10
    return made
