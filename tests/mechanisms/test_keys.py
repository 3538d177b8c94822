"""Columns of byte strings against plain lists."""

from __future__ import annotations

import tracemalloc

import hushstream.mechanisms.keys as module
import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.keys import Keys, concat
from hypothesis import given
from hypothesis import strategies as st

from ..oracles.keys import is_canonical

# Narrow alphabets make prefixes, zero bytes and repeats common.
NARROW = st.lists(st.sampled_from([b"\0", b"a", b"\xff"]), max_size=5).map(b"".join)
KEY = st.one_of(NARROW, st.binary(max_size=12), st.binary(min_size=60, max_size=70))
LISTS = st.one_of(
    st.lists(KEY, max_size=25),
    st.lists(NARROW, max_size=25),
    st.integers(1, 9).flatmap(lambda w: st.lists(st.binary(min_size=w, max_size=w), max_size=25)),
)


@given(LISTS)
def test_round_trip(listed):
    keys = Keys.of(listed)
    assert len(keys) == len(listed)
    assert keys.tolist() == list(keys) == listed
    assert [keys[i] for i in range(len(listed))] == listed
    assert [keys[-1 - i] for i in range(len(listed))] == listed[::-1]
    assert keys.packed().tobytes() == b"".join(listed)


@given(LISTS)
def test_unique_is_that_of_a_sorted_set(listed):
    distinct, row = Keys.of(listed).unique()
    assert distinct.tolist() == sorted(set(listed))
    assert [distinct[i] for i in row] == listed
    assert is_canonical(distinct)
    assert row.dtype == np.intp


@given(
    st.binary(max_size=12),
    st.lists(st.lists(st.sampled_from([0, 1, 255]), max_size=9).map(bytes), min_size=1),
)
def test_unique_keys_may_begin_alike_and_end_with_zeros(head, tails):
    listed = [head + tail for tail in tails]
    distinct, row = Keys.of(listed).unique()
    assert distinct.tolist() == sorted(set(listed))
    assert [distinct[i] for i in row] == listed


@given(LISTS)
def test_unique_of_a_cut_column_sees_only_the_cut(listed):
    keys = Keys.of([b"before", *listed, b"after"])
    cut = Keys(keys.data, keys.offsets[1:-1])
    distinct, row = cut.unique()
    assert distinct.tolist() == sorted(set(listed))
    assert [distinct[i] for i in row] == listed
    assert cut.packed().tobytes() == b"".join(listed)


@given(LISTS, st.data())
def test_take_and_index_are_those_of_a_list(listed, data):
    keys = Keys.of(listed)
    rows = data.draw(st.lists(st.integers(0, max(len(listed) - 1, 0)), max_size=30))
    rows = rows if listed else []
    assert keys.take(np.array(rows, np.intp)).tolist() == [listed[i] for i in rows]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(listed), max_size=len(listed))),
                    bool)  # fmt: skip
    assert keys[mask].tolist() == [k for k, m in zip(listed, mask, strict=True) if m]
    a, b = data.draw(st.integers(-3, 30)), data.draw(st.integers(-3, 30))
    assert keys[a:b].tolist() == listed[a:b]


@given(LISTS, st.data())
def test_rows_that_follow_each_other_are_taken_without_a_copy(listed, data):
    keys = Keys.of([b"before", *listed, b"after"])
    cut = Keys(keys.data, keys.offsets[1:])  # its bytes do not begin with its first key
    begin = data.draw(st.integers(0, len(listed)))
    end = data.draw(st.integers(begin, len(listed)))
    taken = cut.take(np.arange(begin, end + 1))
    assert taken.tolist() == [*listed, b"after"][begin : end + 1]
    assert taken.offsets[0] == 0 and taken.offsets[-1] == len(taken.data)
    assert np.shares_memory(taken.data, keys.data) or not len(taken.data)
    assert keys.take(np.arange(len(keys))) is keys
    with pytest.raises(IndexError):
        cut.take(np.arange(begin, len(listed) + 2))


@given(st.lists(LISTS, max_size=4))
def test_concat_is_that_of_lists(columns):
    assert concat(map(Keys.of, columns)).tolist() == [k for c in columns for k in c]


@given(LISTS)
def test_equality_is_that_of_columns(listed):
    assert (Keys.of(listed) == Keys.of(list(listed))) is True
    assert (Keys.of(listed) == listed) is False


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
def test_codes_round_trip_in_the_order_of_the_integers(numbers):
    keys = Keys.of_codes(np.array(numbers, np.uint64))
    assert keys.codes().tolist() == numbers
    assert keys.unique()[0].codes().tolist() == sorted(set(numbers))


@given(st.integers(1, 9), st.integers(0, 12))
def test_width_is_none_unless_it_is_common(width, n):
    keys = Keys.fixed(np.arange(n * width, dtype=np.uint8).reshape(n, width))
    assert keys.width() == (width if n else None)
    assert concat([keys, Keys.of([b"x" * (width + 1)])]).width() == (None if n else width + 1)


def test_keys_that_are_no_codes_are_refused_and_nothing_is_shown():
    keys = Keys.of([b"secret", b"s"])
    with pytest.raises(ContractError) as caught:
        keys.codes()
    assert "secret" not in str(caught.value) + repr(keys)
    with pytest.raises(TypeError):
        hash(keys)


@given(LISTS, st.data())
def test_keys_gathered_in_pieces_are_those_gathered_at_once(listed, data):
    rows = data.draw(st.lists(st.integers(0, len(listed) - 1), max_size=40)) if listed else []
    before, module._PIECE = module._PIECE, data.draw(st.integers(1, 30))
    try:
        taken = Keys.of(listed).take(np.array(rows, np.intp))
    finally:
        module._PIECE = before
    assert taken.tolist() == [listed[row] for row in rows]


def test_to_gather_long_keys_takes_memory_by_their_bytes():
    keys = Keys.fixed(np.arange(20_000 * 1000, dtype=np.uint8).reshape(20_000, 1000))
    rows = np.random.default_rng(0).permutation(20_000)
    tracemalloc.start()
    taken = keys.take(rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken[5] == keys[int(rows[5])]
    assert most < 2 * 20_000_000  # an index for each byte took 25 times as much


@given(LISTS, st.integers(-30, 30), st.integers(-30, 30))
def test_a_slice_is_that_of_a_list(listed, begin, end):
    assert Keys.of(listed)[begin:end].tolist() == listed[begin:end]
    assert Keys.of(listed)[begin:end].unique()[0].tolist() == sorted(set(listed[begin:end]))
