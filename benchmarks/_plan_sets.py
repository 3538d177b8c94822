"""Data sets for judging plans: real records, and families drawn with a named seed."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from _values import DATA
from hushstream.mechanisms.stated_shape import Shape
from hushstream.mechanisms.workload import Sample, Workload

SEED = 20261122
F64 = np.ndarray
_MOST = 6_000  # records of a set


class Set(NamedTuple):
    """A data set as one window."""

    name: str
    sample: Sample
    top: int = 0  # public end of the values


def _window(unit: Any, key: Any, **more: Any) -> Sample:
    ids, who = np.unique(unit, return_inverse=True)
    names, which = np.unique(key, return_inverse=True)
    work = Workload(who.astype(np.int32), which.astype(np.int32), len(ids), len(names), **more)
    return Sample(((work,),), len(ids), len(names), len(who))


def halves(data: Set) -> tuple[Set, Set]:
    """The first half of a set's records and the other one, each as a window."""
    ((work,),) = data.sample.epochs
    n = len(work.unit)
    return _part(data, slice(0, n // 2)), _part(data, slice(n // 2, n))


def _part(data: Set, rows: slice) -> Set:
    ((work,),) = data.sample.epochs
    columns = {name: column[rows] for name, column in (work.columns or {}).items()}
    n = len(work.unit[rows])
    if "time" in columns:
        columns["time"] = np.arange(n) * 8 // n
    more = {} if work.value is None else {"value": work.value[rows]}
    sample = _window(work.unit[rows], work.key[rows], columns=columns or None, **more)
    return data._replace(sample=sample)


def _taxis() -> list[dict[str, str]]:
    with (DATA / "taxis.csv").open() as file:
        return sorted(csv.DictReader(file), key=lambda row: row["pickup"])


def _flights(field: str) -> F64:
    table = pa.ipc.open_file(DATA / "flights-200k.arrow").read_all()
    column = table[field].to_numpy()
    found: F64 = column[np.random.default_rng(SEED).permutation(len(column))[:_MOST]]
    return found


def _codes() -> list[dict[str, str]]:
    with (DATA / "zipcodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(SEED).permutation(len(rows))
    return [rows[i] for i in order[:_MOST].tolist()]


# Grouped by key


def zones() -> Set:
    keys = [row["pickup_zone"] for row in _taxis() if row["pickup_zone"]]
    return Set("trips by zone", _window(np.arange(len(keys)), keys))


def bands() -> Set:
    keys = np.floor(_flights("distance") / 50)
    return Set("flights by 50 miles", _window(np.arange(len(keys)), keys))


def regions() -> Set:
    keys = [f"{row['zip_code'][:2]}" for row in _codes()]
    return Set("postal codes by region", _window(np.arange(len(keys)), keys))


def shaped(name: str, shape: Shape) -> Callable[[], Set]:
    def load() -> Set:
        work = shape.workload()
        sample = Sample(((work,),), shape.users, len(set(work.key.tolist())), shape.records)
        return Set(name, sample)

    return load


GROUPED: list[Callable[[], Set]] = [
    zones, bands, regions,
    shaped("users of three records", Shape(2_000, 6_000, 150, zipf=1.1)),
    shaped("heavy users, own keys", Shape(400, 6_000, 60, zipf=0.9, repeat=0.5)),
]  # fmt: skip


# Streams of values


def _values(name: str, values: Any, top: int) -> Set:
    whole = np.clip(np.rint(np.asarray(values, np.float64)), 0, top)
    n = len(whole)
    columns = {"time": np.arange(n) * 8 // n, "value": whole}
    sample = _window(
        np.arange(n), np.zeros(n), value=whole.astype(np.int64)[:, None], columns=columns
    )
    return Set(name, sample, top)


def tips() -> Set:
    return _values("tips in cents", [float(row["tip"]) * 100 for row in _taxis()], 5_000)


def delays() -> Set:
    return _values("flight delays", np.maximum(_flights("delay"), 0), 1_500)


def miles() -> Set:
    return _values("flight distances", _flights("distance"), 5_000)


def pareto() -> Set:
    draw = np.random.default_rng([SEED, 1])
    return _values("Pareto 2.2", 15 * (draw.pareto(2.2, _MOST) + 1), 4_000)


def calls() -> Set:
    draw = np.random.default_rng([SEED, 2])
    return _values("gamma and idle", draw.gamma(2, 30, _MOST) * (draw.random(_MOST) < 0.6), 2_000)


VALUES: list[Callable[[], Set]] = [tips, delays, miles, pareto, calls]


# Maps


def _map(name: str, x: Any, y: Any) -> Set:
    points = np.clip(np.stack([np.asarray(x, float), np.asarray(y, float)], axis=1), 0, 1)
    n = len(points)
    columns = {"x1": points[:, 0], "x2": points[:, 1]}
    return Set(name, _window(np.arange(n), np.zeros(n), columns=columns))


def offices() -> Set:
    rows = [(float(r["longitude"]), float(r["latitude"])) for r in _codes() if r["longitude"]]
    east, north = np.array(rows).T
    return _map("post offices", (east + 125) / 60, (north - 24) / 26)


def trips() -> Set:
    rows = [(float(r["distance"]), float(r["tip"])) for r in _taxis()]
    far, tip = np.array(rows).T
    return _map("trips, distance and tip", far / 20, tip / 15)


def air() -> Set:
    return _map("flights, hour and distance", _flights("time") / 24, _flights("distance") / 3000)


def spiral() -> Set:
    draw = np.random.default_rng([SEED, 3])
    turn = draw.uniform(0, 4 * np.pi, _MOST)
    away = turn / (9 * np.pi)
    blur = draw.normal(0, 0.01, (2, _MOST))
    return _map(
        "a spiral", 0.5 + away * np.cos(turn) + blur[0], 0.5 + away * np.sin(turn) + blur[1]
    )


def villages() -> Set:
    draw = np.random.default_rng([SEED, 4])
    weight = np.arange(1, 81) ** -1.0
    which = draw.choice(80, _MOST, p=weight / weight.sum())
    place = draw.random((80, 2))[which] + draw.normal(0, 0.008, (_MOST, 2))
    return _map("villages by Zipf's law", place[:, 0], place[:, 1])


MAPS: list[Callable[[], Set]] = [offices, trips, air, spiral, villages]
