"""Shared parts of the spatial benchmarks: a stream of growing circles, boxes, a store of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hushstream.mechanisms.columns import Batch, Closed, Part, merge
from hushstream.mechanisms.contract import Mechanism
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.tables import RowTable

SIZES = {"small": (1e-4, 1e-3), "medium": (1e-3, 1e-2), "large": (1e-2, 1e-1)}


class Stream(NamedTuple):
    """Events in log order."""

    tick: np.ndarray  # (n,) 1..ticks
    point: np.ndarray  # (n, 2) in the unit square
    sign: np.ndarray  # (n,) +1 or -1

    def upto(self, t: int) -> Stream:
        return Stream(*(column[self.tick <= t] for column in self))

    def at(self, t: int) -> Stream:
        return Stream(*(column[self.tick == t] for column in self))


def circles(deletions: bool, ticks: int = 150, each: int = 500, seed: int = 2024) -> Stream:
    """Two noisy concentric circles that grow; with deletions every event of the last two thirds'
    first half deletes the oldest point that is left, so that the circles move outwards."""
    rng = np.random.default_rng(seed)
    outer = rng.integers(0, 2, ticks * each).astype(bool)
    angle, blur = rng.uniform(0, 2 * np.pi, ticks * each), rng.normal(0, 0.02, (ticks * each, 2))
    points, parts, gone = np.empty((0, 2)), [], 0
    for t in range(1, ticks + 1):
        leave = each // 2 if deletions and t > ticks // 3 else 0
        now = slice(len(points), len(points) + each - leave)
        radius = (0.15 + 0.27 * (t - 1) / (ticks - 1)) * np.where(outer[now], 1, 0.5)
        turn = np.stack([np.cos(angle[now]), np.sin(angle[now])], axis=1)
        points = np.concatenate([points, np.clip(0.5 + radius[:, None] * turn + blur[now], 0, 1)])
        place = np.concatenate([points[now], points[gone : gone + leave]])
        sign = np.repeat([1, -1], [each - leave, leave])
        parts.append(Stream(np.full(each, t), place, sign))
        gone += leave
    return Stream(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def boxes(count: int, seed: int = 7) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Random boxes of three sizes; sides are √[low, high] of the domain's."""
    rng, out = np.random.default_rng(seed), {}
    for name, (low, high) in SIZES.items():
        side = rng.uniform(low**0.5, high**0.5, (count, 2))
        corner = rng.uniform(0, 1 - low**0.5, (count, 2))
        out[name] = (corner, np.minimum(corner + side, 1))
    return out


def box_counts(stream: Stream, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Exact live points of each box."""
    order = np.argsort(stream.point[:, 0])
    x, y, sign = stream.point[order, 0], stream.point[order, 1], stream.sign[order]
    out = np.empty(len(low))
    for row, (begin, end) in enumerate(
        zip(np.searchsorted(x, low[:, 0]), np.searchsorted(x, high[:, 0]), strict=True)
    ):
        inside = (y[begin:end] >= low[row, 1]) & (y[begin:end] < high[row, 1])
        out[row] = sign[begin:end][inside].sum()
    return out


def part_of(mechanism: Mechanism, stream: Stream) -> Part:
    """The exact partial sum of some events."""
    columns = dict(zip(mechanism.traits.inputs, stream.point.T, strict=True))
    encoded = mechanism.encode(columns)
    k = len(encoded.keys)
    slot = encoded.key[encoded.keep] + k * (stream.sign[encoded.keep] < 0)
    counts = np.bincount(slot, minlength=2 * k)
    used = np.flatnonzero(counts)
    used = used[np.argsort(used % k, kind="stable")] if k else used
    lane = (used >= k).astype(np.uint8)
    return Part(encoded.keys.take(used % max(k, 1)), lane, counts[used, None], np.empty(0, int))


def absorbed(mechanism: Mechanism, stream: Stream) -> Part:
    """The merged partial sum of events that all come from different units."""
    encoded = mechanism.encode(dict(zip(mechanism.traits.inputs, stream.point.T, strict=True)))
    n, k = len(stream.sign), len(encoded.keys)
    sign, status = stream.sign.astype(np.int8), np.zeros(k, np.int32)
    batch = Batch(encoded.keys, encoded.key, np.arange(n), encoded.value, sign, status)
    return merge([mechanism.absorb(mechanism.traits.units(n), batch)[1]])


def keyed(name: str) -> KeyedNoise:
    return KeyedNoise(
        b"\x02" * 32,
        charge=bytes(32),
        mechanism="benchmark",
        config=b"",
        pipeline="p",
        window=name,
        nonces=STEADY,
    )


class Store(RowTable):
    """Rows as a worker's cache holds them."""

    def closed(self, part: Part, t: int) -> Closed:
        """The input of a release at tick ``t``."""
        return Closed(self.load(part, t), part, t)

    @property
    def nodes(self) -> int:
        """Number of live rows."""
        return int(np.count_nonzero(self.due))

    @property
    def bytes_per_row(self) -> float:
        """Mean bytes of key, state and due trigger."""
        return float(self.state.dtype.itemsize + 8 + 4)
