"""Maps of records that live on roads: in the plane, and along the arc length of the roads.

Records lie on a public road network (a jittered grid of ten by ten junctions, a fifth of its roads
missing) or on one curve (a spiral), 48,000 in 24 triggers, ε = 0.5 per record. Roads differ in
traffic by a Zipf law, and half of them are busier at one end. Everything is generated with fixed
seeds. The arc-length axis puts the roads one after another, with neighbours mostly close together,
so that a record's place is one number; PHDStream and PrivHP run on it unchanged.

Error of a stretch of road: abs(estimate − truth) / max(truth, 0.1 % of the records), mean over all
quarters of a road, all roads, and 400 routes of eight adjoining roads, at the last trigger, over
noise keys. Readers of the map know the network: a cell's count is spread over the roads in it by
length, or goes to the nearest point of a road if the cell has none. In the plane the tree is tried
with quartered squares, with halves, and with the public region of all cells that a road crosses.
PrivHP releases once.

    python benchmarks/roads.py [--quick] [--json]

The last line under ``--json``: for each place (``roads``, ``curve``) and mechanism,
``PLACE_MECHANISM_SIZE``: the error on the axis over the best one in the plane, for ``quarter``,
``road`` and ``route``; and every row.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from _privhp import absorbed, made, released
from _spatial import Store, Stream, keyed, part_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.phdstream.settings import PHDStreamParameters, build
from hushstream.mechanisms.phdstream.tree import GRID
from hushstream.mechanisms.spatial.domain import Domain, bit_level
from hushstream.mechanisms.spatial.sample import left_to_right
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial import cKDTree

F64 = NDArray[np.float64]
Index = NDArray[np.intp]
EPSILON, TRIGGERS, EACH = Fraction(1, 2), 24, 2000
FINE = 64  # points that represent a road
SIZES = ("quarter", "road", "route")


class Network(NamedTuple):
    """Straight roads of the unit square, in the order of the axis."""

    start: F64  # (e, 2)
    end: F64  # (e, 2)
    ways: list[list[int]]  # roads that adjoin each road

    @property
    def length(self) -> F64:
        """(e,) length of each road."""
        gap: F64 = self.end - self.start
        return np.hypot(gap[:, 0], gap[:, 1])

    def points(self, road: Index, along: F64) -> F64:
        """(n, 2) places in the plane, ``along`` from 0 to 1 on each road."""
        return self.start[road] + along[:, None] * (self.end - self.start)[road]

    def arc(self, road: Index, along: F64) -> F64:
        """(n, 1) places on the axis, from 0 to 1."""
        before = np.cumsum(self.length) - self.length
        return ((before[road] + along * self.length[road]) / self.length.sum())[:, None]


def adjoining(start: F64, end: F64) -> list[list[int]]:
    """Roads that share an end with each road."""
    ends = [{tuple(a), tuple(b)} for a, b in zip(start.round(9), end.round(9), strict=True)]
    return [[j for j, two in enumerate(ends) if two & one and two is not one] for one in ends]


def roads(side: int = 10) -> Network:
    """The road network; the axis follows a curve through the middles of the roads."""
    rng = np.random.default_rng(31)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    place = (grid + 0.5 + rng.uniform(-0.3, 0.3, grid.shape)) / side
    east, north = (place[:-1], place[1:]), (place[:, :-1], place[:, 1:])
    start, end = (np.concatenate([east[i].reshape(-1, 2), north[i].reshape(-1, 2)]) for i in (0, 1))
    kept = rng.random(len(start)) > 0.2
    start, end = start[kept], end[kept]
    order = np.argsort(Domain.unit(2, 20).place((start + end) / 2))
    return Network(start[order], end[order], adjoining(start[order], end[order]))


def curve(pieces: int = 144, turns: float = 6) -> Network:
    """A spiral as a polyline from the inside outwards."""
    part = np.linspace(0.05, 1, pieces + 1)
    angle = 2 * np.pi * turns * part
    place = 0.5 + 0.48 * part[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ways = [[j for j in (i - 1, i + 1) if 0 <= j < pieces] for i in range(pieces)]
    return Network(place[:-1], place[1:], ways)


PLACES: dict[str, Callable[[], Network]] = {"roads": roads, "curve": curve}


def records(network: Network, n: int) -> tuple[Index, F64]:
    """Road and position of each record: traffic follows a Zipf law of exponent 1."""
    rng = np.random.default_rng(32)
    roads_ = len(network.start)
    share = rng.permutation(1 / np.arange(1, roads_ + 1)) * network.length
    road = rng.choice(roads_, n, p=share / share.sum())
    uneven = rng.random(roads_) < 0.5
    along = np.where(uneven[road], rng.beta(1, 3, n), rng.random(n))
    return road.astype(np.intp), along


def stretches(network: Network) -> dict[str, list[Index]]:
    """Fine points of every stretch, by size."""
    rng, count = np.random.default_rng(33), len(network.start)
    fine = np.arange(count * FINE)
    quarters = list(fine.reshape(-1, FINE // 4))
    whole = list(fine.reshape(-1, FINE))
    routes = []
    for _ in range(400):
        route = [int(rng.integers(count))]
        for _ in range(200):
            route += [int(rng.choice(network.ways[route[-1]] or [route[0]]))]
            if len(set(route)) == 8:
                break
        routes.append(np.concatenate([whole[road] for road in sorted(set(route))]))
    return {"quarter": quarters, "road": whole, "route": routes}


class Map(NamedTuple):
    """One way to map a record to a place."""

    name: str
    domain: Domain
    place: Callable[[Index, F64], F64]


def crossed(network: Network, domain: Domain) -> tuple[int, ...]:
    """Finest cells of the domain that a road crosses."""
    road = np.repeat(np.arange(len(network.start)), 4000)
    along = np.tile((np.arange(4000) + 0.5) / 4000, len(network.start))
    return tuple(np.unique(domain.place(network.points(road, along))).tolist())


def maps(network: Network, mechanism: str) -> list[Map]:
    """The plane and the axis for a mechanism."""
    plane, axis = Domain.unit(2, 16), Domain.unit(1, 16)
    if mechanism == "privhp":
        return [Map("plane, halves", plane, network.points), Map("axis", axis, network.arc)]
    squares = Domain.unit(2, 8, "all")
    region = Domain(squares.axes, 8, "all", cells=crossed(network, squares))
    return [
        Map("plane, quartered", squares, network.points),
        Map("plane, halves", plane, network.points),
        Map("plane, cells of roads", region, network.points),
        Map("axis", axis, network.arc),
    ]


def spread(network: Network, way: Map, codes: Any, counts: F64) -> F64:
    """(e·FINE,) count of each fine point: a leaf's count spread over its points by length."""
    road = np.repeat(np.arange(len(network.start)), FINE)
    along = np.tile((np.arange(FINE) + 0.5) / FINE, len(network.start))
    place = way.place(road, along)
    order = left_to_right(codes)
    codes, counts = codes[order], counts[order]
    first = codes << (np.uint64(way.domain.bits) - bit_level(codes).astype(np.uint64))
    leaf = np.searchsorted(first, way.domain.place(place), side="right") - 1
    length = network.length[road]
    held = np.bincount(leaf, length, len(codes))
    out = counts[leaf] * length / held[leaf]
    bare = np.flatnonzero((held == 0) & (counts != 0))
    low, high = way.domain.fractions(codes[bare])
    _, nearest = cKDTree(place).query((low + high) / 2)
    np.add.at(out, nearest, counts[bare])
    return out


def phdstream(way: Map, road: Index, along: F64, seed: int) -> tuple[Any, F64]:
    """Leaves after the last trigger, with the defaults of PHDStream."""
    setting = Setting(EPSILON, Fraction(0), TRIGGERS)
    mechanism = build(PHDStreamParameters(domain=way.domain), setting)
    tick = np.arange(len(road)) * TRIGGERS // len(road) + 1
    stream = Stream(tick, way.place(road, along), np.ones(len(road), np.int64))
    store, noise = Store(mechanism.traits), keyed(f"roads {seed}")
    for t in range(1, TRIGGERS + 1):
        rows, out = mechanism.release(store.closed(part_of(mechanism, stream.at(t)), t), noise)
        store.store(rows)
    return out.key.codes(), out.value[:, 0] / GRID


def privhp(way: Map, road: Index, along: F64, seed: int) -> tuple[Any, F64]:
    """Leaves of one release, with the defaults of PrivHP."""
    mechanism = made(way.domain, float(EPSILON))
    columns = dict(zip(way.domain.names, way.place(road, along).T, strict=True))
    part = absorbed(mechanism, columns, mechanism.traits.units(len(road)))
    leaves = released(mechanism, part, f"roads {seed}")
    return leaves.code, leaves.count.astype(float)


MECHANISMS = {"phdstream": phdstream, "privhp": privhp}


def rows(place: str, mechanism: str, n: int, seeds: int) -> list[dict[str, Any]]:
    """Errors by size, one row per map."""
    network = PLACES[place]()
    road, along = records(network, n)
    bins = road * FINE + np.minimum((along * FINE).astype(np.intp), FINE - 1)
    exact = np.bincount(bins, minlength=len(network.start) * FINE)
    asked, found = stretches(network), []
    for way in maps(network, mechanism):
        row: dict[str, Any] = {"place": place, "mechanism": mechanism, "map": way.name}
        error: dict[str, list[float]] = {size: [] for size in SIZES}
        for seed in range(seeds):
            codes, counts = MECHANISMS[mechanism](way, road, along, seed)
            fine = spread(network, way, codes, counts)
            for size in SIZES:
                truth, told = (np.array([v[q].sum() for q in asked[size]]) for v in (exact, fine))
                error[size].append(float((abs(told - truth) / np.maximum(truth, n / 1000)).mean()))
        row["leaves"] = len(codes)
        found.append(row | {size: float(np.mean(error[size])) for size in SIZES})
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for place in PLACES:
        for mechanism in MECHANISMS:
            mine = [r for r in found if (r["place"], r["mechanism"]) == (place, mechanism)]
            plane = [row for row in mine if row["map"] != "axis"]
            (axis,) = [row for row in mine if row["map"] == "axis"]
            for size in SIZES:
                best = min(row[size] for row in plane)
                out[f"{place}_{mechanism}_{size}"] = axis[size] / best
    return out | {"rows": found}


def table(found: list[dict[str, Any]]) -> Table:
    shown = Table(title=f"mean relative error of stretches of road, ε = {float(EPSILON)}")
    for column in found[0]:
        shown.add_column(column, justify="left" if column in ("place", "map") else "right")
    for row in found:
        shown.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one noise key")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    seeds, n = 1 if options.quick else 5, TRIGGERS * EACH
    found = [row for p in PLACES for m in MECHANISMS for row in rows(p, m, n, seeds)]
    if options.json:
        print(json.dumps(summary(found)))
    else:
        Console().print(table(found))


if __name__ == "__main__":
    main()
