"""Row layouts: keys sort in the order of windows, every part is restored, and no byte changes."""

from __future__ import annotations

import numpy as np
from hushstream.agents.state import layout
from hypothesis import given
from hypothesis import strategies as st

NUMBER = st.integers(-(1 << 62), 1 << 62)


@given(NUMBER, NUMBER)
def test_the_order_of_integers_is_that_of_their_bytes(one, other):
    assert (layout.sortable(one) < layout.sortable(other)) == (one < other)
    assert layout.unsortable(layout.sortable(one)) == one


@given(NUMBER, NUMBER, st.binary(max_size=5))
def test_rows_of_earlier_windows_are_one_range(window, floor, key):
    begin, end = layout.below(layout.ROW, floor)
    assert (begin <= layout.rows_of(window) + key < end) == (window < floor)


@given(NUMBER, st.integers(0, 99), st.integers(0, 99), st.integers(0, 9))
def test_parts_of_keys_come_back(window, batch, run, chunk):
    key = layout.run_chunk(layout.run_prefix(window, batch, run), chunk)
    assert layout.run_of(key) == (window, batch, run)
    assert layout.trigger_of(layout.trigger_total(run)) == run
    assert layout.key_of(layout.rows_of(window) + b"key") == b"key"


def test_no_byte_of_a_layout_moves():
    """Every later version must read a table that an earlier version wrote."""
    zero = b"\x80" + b"\0" * 7
    assert layout.units_of(3) == b"u\0\3" and layout.totals_of(3) == b"t\0\3"
    assert layout.bound_total(3, 0, 2) == b"t\0\3" + zero + b"\0\0\0\2"
    assert layout.trigger_total(7) == b"t" + b"\0" * 7 + b"\7"
    assert layout.run_chunk(layout.run_prefix(0, 2, 5), 1) == (
        b"f" + zero + b"\0\0\0\2" + b"\0\0\0\5" + b"\0\0\0\1"
    )
    assert layout.rows_of(0) == b"r" + zero and layout.statuses_of(0) == b"s" + zero
    assert layout.due_at(0, -1) == b"d" + zero + b"\xff" * 4
    assert (layout.OPEN, layout.HELD, layout.MANIFEST) == (b"o", b"h", b"m")
    assert (layout.MARKER, layout.POSITION) == (b"\0marker", b"\0place")
    assert (layout.INDEX, layout.block_row(5)) == (b"\0units", b"b" + b"\0" * 7 + b"\5")
    assert layout.pack_held(np.array([[1]]), np.array([[0.5]])) == [
        b"\1" + b"\0" * 7 + b"\0" * 6 + b"\xe0\x3f"
    ]
    row = np.zeros(1, layout.key_row("<i8"))
    row["due"], row["state"] = -1, 2
    assert row.tobytes() == b"\xff" * 4 + b"\2" + b"\0" * 7
    entry = layout.index_entries(layout.rows_of(0) + b"k", row.tobytes())
    assert entry == {layout.due_at(0, -1) + b"k": b""}


@given(st.integers(0, 9), st.integers(1, 3), st.integers(0, 99))
def test_held_rows_come_back(n, columns, seed):
    rng = np.random.default_rng(seed)
    value = rng.integers(-(1 << 62), 1 << 62, (n, columns))
    variance = rng.random((n, columns))
    again = layout.unpack_held(layout.pack_held(value, variance))
    assert [a.tolist() for a in again] == ([value.tolist(), variance.tolist()] if n else [[], []])
