"""Sorted rows of units: like a dictionary through any merges, and restored from blocks.

Covers: agents/state/units/packed_scan.py
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hushstream.agents.state.units import packed as module
from hushstream.agents.state.units.packed import Digests, NewRows, PackedRows, read_blocks
from hushstream.errors import DamagedError
from hushstream.mechanisms.keys import Keys
from hypothesis import given, settings
from hypothesis import strategies as st

# With few heads, digests differ only in their last bytes, at every place in a block.
DIGEST = st.tuples(
    st.sampled_from([0, 1, 1 << 40, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]),
    st.sampled_from([0, 7, 1 << 63, (1 << 64) - 1]),
).map(lambda pair: pair[0].to_bytes(8, "big") + pair[1].to_bytes(8, "big"))
VALUE = st.binary(max_size=6)
CHANGES = st.dictionaries(DIGEST, VALUE, max_size=24)


def matrix(digests: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)


def new(rows: Mapping[bytes, bytes]) -> NewRows:
    return NewRows(Digests.of(matrix(list(rows))), Keys.of(rows.values()))


def content(packed: PackedRows) -> dict[bytes, bytes]:
    rows = packed.listed(0, len(packed))
    listed = rows.keys.tolist()
    assert listed == sorted(listed)
    return dict(zip(listed, rows.values.tolist(), strict=True))


def found(packed: PackedRows, asked: list[bytes]) -> list[bytes]:
    """The rows that a lookup finds, in two parts."""
    digests, m = Digests.of(matrix(asked)), len(asked)
    place, size = np.full(m, -1, np.int64), np.zeros(m, np.int64)
    parts = np.arange(0, m, 2), np.arange(1, m, 2)
    for rows in parts:
        packed.find(digests, rows, place, size)
    ends = np.concatenate([[0], np.cumsum(size)])
    out = np.empty(int(ends[-1]), np.uint8)
    for rows in parts:
        packed.gather(rows, place, ends, out)
    return Keys(out, ends).tolist()


@settings(max_examples=150)
@given(st.lists(CHANGES, max_size=5), st.lists(DIGEST, max_size=9, unique=True), st.integers(1, 9))
def test_rows_are_as_in_a_dictionary(batches, asked, block):
    packed, truth = PackedRows.none(), dict[bytes, bytes]()
    for rows in batches:
        packed = packed.merged(new(rows))
        truth = {k: v for k, v in (truth | rows).items() if v}
        assert content(packed) == truth
        assert found(packed, asked) == [truth.get(key, b"") for key in asked]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        blocks, firsts = packed.blocks()
    listed = sorted(truth)
    assert [int(head) for head in firsts] == [
        int.from_bytes(listed[n][:8], "big") for n in range(0, len(listed), block)
    ]
    assert content(read_blocks(blocks, 0)) == truth
    halves = packed.halves()
    assert content(halves[0]) | content(halves[1]) == truth
    for bit, half in enumerate(halves):
        assert all(key[0] >> 7 == bit for key in content(half))
        assert found(half, [key for key in asked if key[0] >> 7 == bit]) == [
            truth.get(key, b"") for key in asked if key[0] >> 7 == bit
        ]


@settings(max_examples=80)
@given(CHANGES, CHANGES)
def test_rows_that_keep_their_size_are_written_over_and_no_others(before, after):
    packed = PackedRows.none().merged(new(before))
    truth, done = content(packed), np.zeros(len(after), np.bool_)
    digests, values = Digests.of(matrix(list(after))), Keys.of(after.values())
    changed = packed.replace(digests, digests.order, values, done)
    wanted = [len(row) > 0 and len(truth.get(key, b"")) == len(row) for key, row in after.items()]
    assert done.tolist() == wanted and changed == any(wanted)
    over = {key: row for (key, row), kept in zip(after.items(), wanted, strict=True) if kept}
    assert content(packed) == truth | over


def test_many_rows_are_found_and_take_little_memory():
    rng = np.random.default_rng(1)
    digests = [row.tobytes() for row in rng.integers(0, 256, (20_000, 16), np.uint8)]
    rows = {digest: digest[:7] for digest in digests[:18_000]}
    packed = PackedRows.none().merged(new(rows))
    assert found(packed, digests) == [rows.get(digest, b"") for digest in digests]
    assert packed.memory < 18_000 * (20 + 7 + 1.3)
    blocks, _ = packed.blocks()
    assert len(blocks) == -(-18_000 // module.BLOCK)
    assert content(read_blocks(blocks, 0)) == rows


def test_large_rows_make_small_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1_000)
    rows = {bytes(15) + bytes([n]): bytes([n]) * 400 for n in range(20)}
    blocks, _ = PackedRows.none().merged(new(rows)).blocks()
    assert len(blocks) == 7 and max(map(len, blocks)) < 1_400
    assert content(read_blocks(blocks, 0)) == rows


@pytest.mark.parametrize(
    "harm",
    [
        lambda block: block[:-1],
        lambda block: block + b"\0",
        lambda block: block[:3],
        lambda block: b"",
        lambda block: b"\xff" * 4 + block[4:],
        lambda block: block[:4] + b"\0" * 16 * 3 + block[4 + 16 * 3 :],  # one digest three times
        lambda block: block[:-10] + b"\0\0\0\1\0\0" + block[-4:],  # an empty row
    ],
)
def test_a_block_that_was_changed_is_damage(harm):
    rows = {bytes(7) + bytes([n]) + bytes(8): b"ab" for n in range(1, 4)}
    (block,), _ = PackedRows.none().merged(new(rows)).blocks()
    assert content(read_blocks([block], 0)) == rows
    with pytest.raises(DamagedError, match="block of units is damaged"):
        read_blocks([harm(block)], 0)


def test_blocks_in_another_order_are_damage(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    rows = {bytes([n]) * 16: b"x" for n in range(6)}
    blocks, _ = PackedRows.none().merged(new(rows)).blocks()
    with pytest.raises(DamagedError, match="not in order"):
        read_blocks(blocks[::-1], 0)
