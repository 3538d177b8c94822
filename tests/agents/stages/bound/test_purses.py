"""Rows of capped units: reading returns what was written, for any epochs."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.agents.kafka.clients import BATCH_BYTES
from hushstream.agents.stages.bound.purses import HEAD, Opened, PurseCodec
from hushstream.errors import EngineError
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.bounding import most_pairs
from hushstream.mechanisms.parts.bounds.lifetime import Cap
from hypothesis import given
from hypothesis import strategies as st

BLANK = b"\x0c\x00"
MOSTS = [5, (1 << 16) - 1, 1 << 16, (1 << 32) + 7]
rows_of = st.lists(st.binary(max_size=9), min_size=4, max_size=4)


@given(
    st.sampled_from(MOSTS),
    st.lists(st.tuples(st.integers(-3, 3), rows_of), max_size=9),
    st.sampled_from([0, 17_900, (1 << 32) - 2, -(1 << 31), 5 << 40]),
)
def test_each_epoch_keeps_its_own_row(
    most: int, writes: list[tuple[int, list[bytes]]], origin: int
) -> None:
    """Compared with a dictionary; epochs may be negative or need more than four bytes."""
    codec = PurseCodec(Cap(most))
    rows = Keys.of([b""] * 4)
    held: dict[tuple[int, int], bytes] = {}
    purse = np.full(4, most, np.int64)
    for place, (epoch, values) in enumerate(writes):
        opened = codec.take(rows, origin + epoch, None)
        assert opened.purse.tolist() == purse.tolist()
        assert opened.mine.tolist() == [held.get((epoch, unit), b"") for unit in range(4)]
        purse = np.array([(most * (place + 1) // 10) - unit for unit in range(4)]).clip(0)
        values = [value or BLANK for value in values]
        rows = codec.put(Opened(purse, Keys.of(values), opened.others), origin + epoch, BLANK)
        for unit, value in enumerate(values):
            held.pop((epoch, unit), None)
            if value != BLANK:
                held[epoch, unit] = value
        sizes = [
            sum(HEAD + len(value) for (_, one), value in held.items() if one == unit)
            for unit in range(4)
        ]
        purses = 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8
        assert np.diff(rows.offsets).tolist() == [purses + size for size in sizes]


@given(st.integers(-5, 5), st.sampled_from([0, 1 << 31, (1 << 32) - 3]))
def test_epochs_that_are_over_are_left_out(floor: int, origin: int) -> None:
    codec = PurseCodec(Cap(9))
    rows = Keys.of([b""])
    for epoch in range(-4, 5):
        opened = codec.take(rows, origin + epoch, None)
        value = Keys.of([b"%+d" % epoch])
        rows = codec.put(Opened(np.array([7]), value, opened.others), origin + epoch, BLANK)
    opened = codec.take(rows, origin + 4, origin + floor)
    kept = codec.put(opened, origin + 4, BLANK)
    for epoch in range(-4, 5):
        (found,) = codec.take(kept, origin + epoch, None).mine.tolist()
        assert found == (b"%+d" % epoch if epoch >= floor or epoch == 4 else b"")
    assert codec.take(kept, origin, None).purse.tolist() == [7]  # what was spent stays spent


@pytest.mark.parametrize("epochs", [1, 2, 1000])
def test_the_largest_row_that_a_configuration_allows_fits_into_a_batch(epochs: int) -> None:
    each, codec, rows = most_pairs(False) // epochs * 8, PurseCodec(Cap(1 << 40)), Keys.of([b""])
    for epoch in range(epochs):
        others = codec.take(rows, epoch, None).others
        rows = codec.put(Opened(np.array([7]), Keys.of([b"x" * each]), others), epoch, BLANK)
    assert epochs * each < len(rows.data) < BATCH_BYTES - 100


@pytest.mark.parametrize("cut", range(1, 17))
def test_a_row_that_was_cut_stops_everything(cut: int) -> None:
    codec = PurseCodec(Cap(9))
    whole = codec.put(Opened(np.array([3]), Keys.of([b"abc"]), Keys.of([b""])), 5, BLANK)
    (row,) = whole.tolist()
    assert len(row) == 2 + HEAD + 3
    if cut in (2, len(row)):
        return  # only a purse, and a whole row
    if cut < len(row):
        with pytest.raises(EngineError, match="damaged"):
            codec.take(Keys.of([row[:cut]]), 5, None)
    else:
        with pytest.raises(EngineError, match="damaged"):
            codec.take(Keys.of([row + b"x" * (cut - len(row))]), 5, None)
