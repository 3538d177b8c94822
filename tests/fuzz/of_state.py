"""Targets: rows of units, and frames between stages."""

from __future__ import annotations

import random
import zlib

import numpy as np
from hushstream.agents.stages.bound.codec import UnitCodec
from hushstream.agents.state.rows.columns import column_of
from hushstream.errors import EngineError
from hushstream.mechanisms.columns import Part, Units
from hushstream.mechanisms.keys import Keys
from hushstream.topics import frames

from ..support import deployment, trigger
from .mutate import mutant
from .target import Target


def units() -> Target:
    """Rows of units: cut or lengthened ones are refused."""
    traits = deployment().pipelines[0].traits
    codec, fresh = UnitCodec(traits), traits.units(1)
    lanes = fresh.used.shape[1]
    full = Units(
        fresh.left, np.array([0, 2]), np.array([5, 9], np.uint32), np.ones((2, lanes), np.uint16)
    )
    corpus = [*codec.encode(fresh), *codec.encode(full)]
    whole, step = len(corpus[0]), (len(corpus[1]) - len(corpus[0])) // 2

    def run(row: bytes) -> None:
        fits = len(row) >= whole and (len(row) - whole) % step == 0
        try:
            codec.decode(column_of([row, None]))
        except EngineError:
            assert not fits
        else:
            assert fits

    return Target(corpus, run)


def arrow() -> list[bytes]:
    """Frames of all kinds, as stages write them."""
    draw = np.random.default_rng(0)
    (p,) = deployment().pipelines
    slices = [
        frames.EventSlice(
            0, 1, draw.integers(0, 256, (n, 16)).astype(np.uint8),
            Keys.of([b"key %d" % i for i in range(1 + n // 2)]), draw.integers(0, 1 + n // 2, n),
            draw.integers(-9, 9, (n, c)), np.ones(n, np.int8),
        )
        for n, c in ((1, 0), (9, 2), (300, 1))
    ]  # fmt: skip
    part = Part(
        Keys.of([b"a", b"bc", b""]),
        np.zeros(3, np.uint8),
        draw.integers(0, 9, (3, 2)),
        np.ones(2, np.int64),
    )
    out = [frame for one in slices for frame in frames.encode_events(3, one)]
    out += frames.encode_cells(1, -2, 5, part)
    return [
        *out,
        frames.encode_barrier(frames.Barrier(0, trigger(p, 1, [4]), np.ones(2, np.int64))),
    ]


def damaged_frames() -> Target:
    """Frames with flipped bits: every one is detected."""
    known = set(arrow())

    def run(frame: bytes) -> None:
        if frame in known:
            return
        try:
            frames.decode(frame)
        except EngineError:
            return
        raise AssertionError("a damaged frame was read")

    return Target(sorted(known), run, mutate=lambda draw, corpus: _flips(draw, corpus))


def _flips(draw: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(draw.choice(corpus))
    for bit in draw.sample(range(8 * len(data)), draw.choice((1, 1, 1, 2, 3))):
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def forged_frames() -> Target:
    """Frames with flipped bits and a correct checksum: refused, or read within their bytes."""

    def run(body: bytes) -> None:
        taken = frames.decode(body + b"hsh1" + zlib.crc32(body).to_bytes(4, "big"))
        if isinstance(taken, frames.EventsFrame):
            one = taken.slice
            assert len(one.unit) * 25 <= len(body) + 25
            assert len(one.keys.data) <= len(body)
            one.keys.tolist(), one.keys.take(one.key), one.part(np.arange(len(one.unit)))
        elif isinstance(taken, frames.CellsFrame):
            assert len(taken.part.key.tolist()) <= len(body)

    def mutate(draw: random.Random, corpus: list[bytes]) -> bytes:
        return _flips(draw, corpus) if draw.random() < 0.7 else mutant(draw, corpus)

    return Target([frame[:-8] for frame in arrow()], run, (EngineError,), mutate)
