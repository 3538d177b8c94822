"""Packed rows of keys: each content has one packing, and every other is refused.

Covers: agents/state/rows/sparse_scan.py
"""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hushstream.agents.state.rows.sparse import pack, unpack
from hushstream.errors import EngineError
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

WIDTH = 6
EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 62, (1 << 63) - 1, -(1 << 63)]
NUMBER = st.one_of(st.just(0), st.sampled_from(EDGES), st.integers(-(1 << 63), (1 << 63) - 1))
ROW = st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.lists(NUMBER, min_size=6, max_size=6))


def by_hand(due: int, numbers: list[int]) -> bytes:
    """The documented packing, number by number."""
    out, zeros = struct.pack("<i", due), 0
    for value in numbers:
        if value == 0:
            zeros += 1
            continue
        for word in ([0, zeros] if zeros else []) + [2 * value if value > 0 else -2 * value - 1]:
            while word >= 128:
                out += bytes([word % 128 + 128])
                word //= 128
            out += bytes([word])
        zeros = 0
    return out


@given(st.lists(ROW, max_size=8))
def test_rows_have_the_form_that_is_described_and_come_back(rows: list[tuple[int, list[int]]]):
    due = np.array([one for one, _ in rows], np.int32)
    numbers = np.array([each for _, each in rows], np.int64).reshape(-1, WIDTH)
    column = pack(due, numbers)
    assert column.tolist() == [by_hand(*row) for row in rows]
    found, again = unpack(column, WIDTH)
    assert found.tolist() == due.tolist() and again.tolist() == numbers.tolist()


@given(st.lists(st.integers(0, 3) | st.sampled_from([127, 128, 255]), max_size=9).map(bytes))
def test_what_is_read_is_what_would_be_packed_and_all_else_is_refused(tail: bytes):
    """So no two byte strings stand for one content."""
    row = Keys.of([b"\1\0\0\0" + tail])
    try:
        due, numbers = unpack(row, WIDTH)
    except EngineError as error:
        assert "row of a key is damaged" in str(error)
        assert tail not in {
            by_hand(1, list(one))[4:] for one in itertools.product((0, 1), repeat=6)
        }
    else:
        assert pack(due, numbers) == row


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (b"\0\0\0", "no due trigger"),
        (bytes(4) + bytes([0, 2]), "zeros at the end"),
        (bytes(4) + bytes([0, 6, 2]), "a number beyond the last"),
        (bytes(4) + bytes([2] * 7), "seven numbers"),
        (bytes(4) + bytes([0, 1, 0, 1, 2]), "zeros in two pieces"),
        (bytes(4) + bytes([0, 0, 2]), "no zeros"),
        (bytes(4) + bytes([130]), "half a varint"),
        (bytes(4) + bytes([130, 0]), "a varint that is too long"),
        (bytes(4) + bytes([255] * 9 + [2]), "a number of 65 bits"),
        (bytes(4) + bytes([255] * 9 + [129, 1]), "a number of 71 bits"),
        (bytes(4) + bytes([0] + [255] * 9 + [1, 2]), "as many zeros as 64 bits hold"),
    ],
)
def test_damaged_rows_are_refused_wherever_they_stand(row: bytes, what: str):
    sound = by_hand(3, [1, 0, 0, 0, 0, 2])
    assert unpack(Keys.of([sound, sound]), WIDTH)[1].tolist() == [[1, 0, 0, 0, 0, 2]] * 2
    with pytest.raises(EngineError, match="the stored row of a key is damaged"):
        unpack(Keys.of([sound, row, sound]), WIDTH)
