"""Partial sums: spilling to disk keeps them exact, even for a very large micro-batch."""

from __future__ import annotations

import numpy as np
from hushstream.agents.stages.aggregate.partial_sums import PART_BYTES, SPILL_BYTES, PartialSums
from hushstream.agents.state.memory import MemoryStore
from hushstream.mechanisms.columns import Part
from hushstream.mechanisms.contract import Traits
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.sums import LARGEST
from hushstream.topics.frames import CellsFrame, decode, encode_cells
from hypothesis import given
from hypothesis import strategies as st

PLACE = (3, 1)
VALUE = st.sampled_from([1 << 62, -(1 << 62), LARGEST, -LARGEST, 5, -7])


# A mechanism with a value column has these.
TRAITS = Traits(horizon=1, outputs=(), row_dtype=np.dtype([]), bound=1, columns=1)


def part(value: int) -> Part:
    sums = np.array([[1, value]], np.int64)
    return Part(Keys.of([b"k"]), np.zeros(1, np.uint8), sums, np.zeros(0, np.int64))


@given(st.lists(VALUE, min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_when_memory_was_full_does_not_decide_about_a_sum(values, spilled) -> None:
    store, sums = MemoryStore(), PartialSums(TRAITS)
    for place, value in enumerate(values):
        sums.add(PLACE, part(value))
        if place in spilled:
            rows: dict[bytes, bytes | None] = {}
            sums.spill(rows)
            store.write(rows)
    exact = max(-LARGEST, min(LARGEST, sum(values)))
    assert sums.whole(store, PLACE).sums.tolist() == [[len(values), exact]]
    sums.spill(rows := {})
    store.write(rows)
    assert sums.chunk(store, PLACE, None, None).sums.tolist() == [[len(values), exact]]


def test_long_keys_fill_memory_by_their_bytes() -> None:
    sums = PartialSums(TRAITS)
    size, frames = 1000, SPILL_BYTES // (1000 + PART_BYTES)
    for number in range(frames):
        keys = Keys.of([b"%d" % number + b"k" * (size - len(b"%d" % number))])
        sums.add(PLACE, Part(keys, np.zeros(1, np.uint8), np.ones((1, 2), np.int64), np.zeros(0)))
    assert not sums.full
    sums.add(PLACE, part(1))
    sums.add(PLACE, part(1))
    assert sums.full
    sums.spill({})
    assert not sums.full


def test_sums_do_not_keep_the_frame_that_they_came_in() -> None:
    """A frame takes as much memory again, and it may be part of a larger response of the broker."""
    keys = Keys.of([b"left out", b"a", b"bc"])[1:]
    given = Part(keys, np.zeros(2, np.uint8), np.ones((2, 2), np.int64), np.zeros(0, np.int64))
    (frame,) = encode_cells(0, *PLACE, given)
    buffer = bytearray(frame)
    decoded = decode(buffer)
    assert isinstance(decoded, CellsFrame)
    sums = PartialSums(TRAITS)
    sums.add(PLACE, decoded.part)
    del decoded
    buffer.clear()  # raises an error while a view exists
    found = sums.whole(MemoryStore(), PLACE)
    assert found.key.tolist() == [b"a", b"bc"] and found.sums.tolist() == [[1, 1], [1, 1]]
