"""Tools of PrivHP's benchmark: inputs, distances and rival trees."""

from __future__ import annotations

import csv
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hushstream.mechanisms.columns import Batch, Closed, Part, Units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.privhp.mechanism import PrivHP
from hushstream.mechanisms.privhp.settings import PrivHPParameters, build
from hushstream.mechanisms.spatial.domain import Domain, bit_level
from hushstream.mechanisms.spatial.sample import left_to_right

DEPTH = 20
FULL = (2 << DEPTH) - 1
ZIP = Path(__file__).parent.parent / "examples" / "data" / "zipcodes.csv"
LAND = (-125.0, 24.0, -66.0, 50.0)  # west, south, east, north


class Leaves(NamedTuple):
    """A published tree."""

    code: np.ndarray
    count: np.ndarray


class Input(NamedTuple):
    """Points of the unit cube."""

    name: str
    points: np.ndarray  # (n, d)
    skewed: bool

    @property
    def domain(self) -> Domain:
        return Domain.unit(self.points.shape[1], DEPTH)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return dict(zip(self.domain.names, self.points.T, strict=True))


def zip_codes() -> np.ndarray:
    """(m, 2) places of postal codes of the contiguous states in the unit square."""
    with ZIP.open() as lines:
        rows = [(float(r["longitude"]), float(r["latitude"])) for r in csv.DictReader(lines)]
    west, south, east, north = LAND
    unit = (np.array(rows) - (west, south)) / (east - west, north - south)
    return unit[((unit > 0) & (unit < 1)).all(axis=1)]


def mixture(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Eight Gaussians with deviations of 0.002 to 0.05."""
    spread = np.array([0.01, 0.03, 0.005, 0.05, 0.002, 0.02, 0.01, 0.03])
    which, centre = rng.integers(0, 8, n), rng.random((8, d))
    return np.clip(centre[which] + spread[which, None] * rng.standard_normal((n, d)), 0, 1)


def zipf(rng: np.random.Generator, n: int, exponent: float) -> np.ndarray:
    """Points in 100,000 random finest cells, the i-th with weight i^-exponent."""
    cells = rng.choice(1 << DEPTH, 100_000, replace=False)
    weight = np.arange(1, 100_001) ** -exponent
    chosen = rng.choice(cells, n, p=weight / weight.sum())
    return ((chosen + rng.random(n)) / (1 << DEPTH))[:, None]


def multifractal(rng: np.random.Generator, n: int, right: float = 0.8) -> np.ndarray:
    """A binomial cascade: at each level a share ``right`` goes to the right half."""
    bits = rng.random((n, 30)) < right
    return (bits @ 0.5 ** np.arange(1, 31))[:, None]


def postal(rng: np.random.Generator, n: int) -> Input:
    """Points within about 0.05 degrees of a random postal code's place."""
    codes = zip_codes()
    near = codes[rng.integers(0, len(codes), n)] + rng.normal(0, 0.001, (n, 2))
    return Input("postal codes, d=2", np.clip(near, 0, 1), True)


def inputs(n: int) -> list[Input]:
    """The inputs of the comparison; the same at every run."""
    rng = np.random.default_rng(2024)
    return [
        Input("uniform, d=1", rng.random((n, 1)), False),
        Input("Gaussian mixture, d=1", mixture(rng, n, 1), True),
        Input("Zipf cells s=1.0, d=1", zipf(rng, n, 1.0), True),
        Input("Zipf cells s=1.2, d=1", zipf(rng, n, 1.2), True),
        Input("uniform, d=2", rng.random((n, 2)), False),
        Input("Gaussian mixture, d=2", mixture(rng, n, 2), True),
        postal(rng, n),
    ]


def keyed(name: str) -> KeyedNoise:
    return KeyedNoise(
        b"\x03" * 32,
        charge=bytes(32),
        mechanism="benchmark",
        config=b"",
        pipeline="p",
        window=name,
        nonces=STEADY,
    )


def made(domain: Domain, epsilon: float = 1.0, horizon: int = 1, **given: object) -> PrivHP:
    """A mechanism with the given parameters."""
    delta = Fraction(1, 10**6) if given.get("noise") == "gauss" else Fraction(0)
    setting = Setting(Fraction(str(epsilon)), delta, horizon)
    return build(PrivHPParameters(domain, **given), setting)  # type: ignore[arg-type]


def absorbed(mechanism: PrivHP, columns: dict[str, np.ndarray], units: Units) -> Part:
    """Encode and absorb one slice in which every record is a unit of its own."""
    encoded = mechanism.encode(columns)
    n = len(encoded.key)
    status = np.zeros(len(encoded.keys), np.int32)
    batch = Batch(
        encoded.keys, encoded.key, np.arange(n), encoded.value, np.ones(n, np.int8), status
    )
    return mechanism.absorb(units, batch)[1]


def released(mechanism: PrivHP, part: Part, window: str) -> Leaves:
    """The mechanism's release after one micro-batch."""
    closed = Closed(mechanism.traits.rows(part.key), part, 1)
    _, out = mechanism.release(closed, keyed(window))
    return Leaves(out.key.codes(), out.value[:, 0])


def one_level(source: Input, epsilon: float, window: str) -> Leaves:
    """A histogram of 2^14 cells, clamped at 0: the same memory, no tree."""
    codes = source.domain.place(source.points)
    codes >>= (source.domain.level(codes) - 14).astype(np.uint64)  # their ancestors, binary splits
    count = np.bincount((codes - np.uint64(1 << 14)).astype(np.intp), minlength=1 << 14)
    index, scale = np.arange(1 << 14), 1 / Fraction(str(epsilon))
    first = np.ones(len(index), np.int64)
    noise = keyed(window).laplace("histogram", Keys.of([b"one"]), index, scale, first)[0]
    return Leaves(np.arange(1 << 14, 2 << 14, dtype=np.uint64), np.maximum(count + noise, 0))


NOTHING = Leaves(np.ones(1, np.uint64), np.ones(1, np.int64))
"""The uniform distribution."""


def distance(source: Input) -> Callable[[Leaves], float]:
    """Wasserstein-1 distance from the points to a tree, uniform within its leaves.

    d = 1: exact. Otherwise sliced: the mean over eight directions (even angles for d = 2, else
    fixed random ones) of the exact distance of the projections, with points and leaves spread over
    the 2^20 finest cells.
    """
    return _exact(source) if source.points.shape[1] == 1 else _sliced(source)


def _exact(source: Input) -> Callable[[Leaves], float]:
    x = np.sort(source.points[:, 0])

    def of(tree: Leaves) -> float:
        order = left_to_right(tree.code)
        low, _ = source.domain.fractions(tree.code[order])
        edges = np.r_[low[:, 0], 1.0]
        cumulated = np.r_[0, np.cumsum(tree.count[order])] / max(tree.count.sum(), 1)
        places = np.unique(np.concatenate([x, edges]))
        model = np.interp(places, edges, cumulated)
        data = np.searchsorted(x, places, side="right") / len(x)
        a, b = model[:-1] - data[:-1], model[1:] - data[:-1]
        crossing = (a * a + b * b) / (2 * np.maximum(np.abs(b - a), 1e-300))
        gap = np.where(a * b >= 0, (np.abs(a) + np.abs(b)) / 2, crossing)
        return float((gap * np.diff(places)).sum())

    return of


def _sliced(source: Input) -> Callable[[Leaves], float]:
    cells = (source.domain.place(source.points) - np.uint64(1 << DEPTH)).astype(np.intp)
    data = np.bincount(cells, minlength=1 << DEPTH) / len(cells)
    dimensions = source.points.shape[1]

    def of(tree: Leaves) -> float:
        gap = data - _spread(tree)
        each = [
            (np.abs(np.cumsum(gap[o])[:-1]) * step).sum() for o, step in _directions(dimensions)
        ]
        return float(np.mean(each))

    return of


def _spread(tree: Leaves) -> np.ndarray:
    """(2^20,) share of each finest cell, in the order of the curve."""
    order = left_to_right(tree.code)
    cells = 1 << (DEPTH - bit_level(tree.code[order]))
    share = tree.count[order] / max(tree.count.sum(), 1)
    return np.repeat(share / cells, cells)


@lru_cache(maxsize=1)
def _directions(dimensions: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per direction: the order of the finest cells and the steps between them."""
    codes = np.arange(1 << DEPTH, 2 << DEPTH, dtype=np.uint64)
    low, high = Domain.unit(dimensions, DEPTH).fractions(codes)
    out = []
    for direction in _units(dimensions):
        along = (low + high) / 2 @ direction
        order = np.argsort(along, kind="stable")
        out.append((order, np.diff(along[order])))
    return out


def _units(dimensions: int) -> np.ndarray:
    """(8, d) unit vectors."""
    if dimensions == 2:
        angles = np.arange(8) * np.pi / 8
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    drawn = np.random.default_rng(8).standard_normal((8, dimensions))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def tail(source: Input, k: int) -> int:
    """Records outside the k fullest finest cells."""
    _, count = np.unique(source.domain.place(source.points), return_counts=True)
    return int(np.sort(count)[::-1][k:].sum())
