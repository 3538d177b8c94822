"""Unit rows as bytes: every width is restored, and bytes sort in the order of their integers.

Covers: agents/stages/bound/unit_scan.py
"""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.agents.kafka.clients import BATCH_BYTES
from hushstream.agents.stages.bound.codec import UnitCodec, distinct
from hushstream.agents.state.layout import sortable, unsortable
from hushstream.agents.state.rows.columns import column_of
from hushstream.errors import EngineError, ParameterError
from hushstream.mechanisms.catalogue import build, find
from hushstream.mechanisms.columns import Batch, Units
from hushstream.mechanisms.contract import Setting, Traits
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.bounding import MOST_PAIRS, most_pairs
from hypothesis import given
from hypothesis import strategies as st


def traits(bound: int, lanes: int, totals: int = 0) -> Traits:
    """Traits that decide the widths of a unit row."""
    return Traits(
        horizon=1, outputs=(), row_dtype=np.dtype([]), bound=bound, lanes=lanes, totals=totals
    )


BOUNDS = [1, 255, 256, (1 << 16) - 1, 1 << 16, (1 << 32) - 1, 1 << 32, 1 << 40]


@st.composite
def states(draw):
    fake = traits(
        draw(st.sampled_from(BOUNDS)), draw(st.integers(1, 3)), draw(st.sampled_from([0, 4]))
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    u = draw(st.integers(0, 12))
    pairs = rng.integers(0, 5, u)
    start = np.concatenate([[0], pairs.cumsum()]).astype(np.int64)
    most = min(fake.bound, 65535) if fake.lanes == 1 and not fake.totals else 65535
    used = rng.integers(0, most + 1, (int(start[-1]), fake.lanes)).astype(np.uint16)
    left = rng.integers(0, fake.bound + 1, u)
    return fake, Units(
        left, start, rng.integers(0, 1 << 32, int(start[-1])).astype(np.uint32), used
    )


def same(one: Units, other: Units) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
        for a, b in zip(one, other, strict=True)
    )


@given(states())
def test_units_come_back(state):
    fake, units = state
    codec = UnitCodec(fake)
    rows = codec.encode(units)
    assert len(rows) == len(units.left)
    assert same(codec.decode(rows), units)


@given(states(), st.data())
def test_rows_are_the_numbers_one_after_the_other(state, data):
    fake, units = state
    small = fake.bound < 256 and fake.lanes == 1 and not fake.totals
    head = "<H" if fake.bound < 1 << 16 else "<I" if fake.bound < 1 << 32 else "<q"
    wanted = []
    for unit, left in enumerate(units.left.tolist()):
        row = struct.pack(head, left)
        for place in range(units.start[unit], units.start[unit + 1]):
            counts = units.used[place].tolist()
            row += struct.pack("<I" + ("B" if small else "H") * fake.lanes,
                               int(units.pair[place]), *counts)  # fmt: skip
        wanted.append(row)
    codec = UnitCodec(fake)
    assert codec.encode(units).tolist() == wanted
    extra = data.draw(st.binary(min_size=1, max_size=20))
    size, step = struct.calcsize(head), 4 + (1 if small else 2) * fake.lanes
    if len(extra) < size or (len(extra) - size) % step:
        with pytest.raises(EngineError, match="cut or lengthened"):
            codec.decode(column_of([*wanted, extra]))


def test_a_part_of_a_larger_column_is_read_where_it_stands():
    codec = UnitCodec(traits(10, 1))
    units = Units(np.array([3, 4]), np.array([0, 1, 2]), np.arange(2, dtype=np.uint32),
                  np.ones((2, 1), np.uint16))  # fmt: skip
    rows = codec.encode(units)
    found = codec.decode(Keys(rows.data, rows.offsets[1:]))
    assert (found.left.tolist(), found.pair.tolist()) == ([4], [1])


@given(states(), st.data())
def test_any_order_and_unknown_units_between_known_ones(state, data):
    fake, units = state
    codec = UnitCodec(fake)
    rows: list[bytes | None] = [*codec.encode(units), None, None]
    order = data.draw(st.permutations(range(len(rows))))
    found = codec.decode(column_of([rows[i] for i in order]))
    for place, row in enumerate(order):
        a, b = found.start[place : place + 2]
        if rows[row] is None:
            assert found.left[place] == fake.bound and a == b
        else:
            x, y = units.start[row : row + 2]
            assert found.left[place] == units.left[row]
            assert found.pair[a:b].tolist() == units.pair[x:y].tolist()
            assert found.used[a:b].tolist() == units.used[x:y].tolist()


@pytest.mark.parametrize(
    "bound,lanes,empty,pair", [(10, 1, 2, 5), (300, 2, 2, 8), (1 << 20, 2, 4, 8)]
)
def test_rows_are_small(bound, lanes, empty, pair):
    codec = UnitCodec(traits(bound, lanes))
    used = np.ones((3, lanes), np.uint16)
    units = Units(np.array([1, 1]), np.array([0, 0, 3]), np.arange(3, dtype=np.uint32), used)
    assert [len(row) for row in codec.encode(units)] == [empty, empty + 3 * pair]


def test_the_largest_row_of_any_bound_fits_into_a_batch():
    codec, used = UnitCodec(traits(1 << 20, 2)), np.ones((MOST_PAIRS, 2), np.uint16)
    pairs = np.arange(MOST_PAIRS, dtype=np.uint32)
    (row,) = codec.encode(Units(np.array([1]), np.array([0, MOST_PAIRS]), pairs, used))
    assert len(row) + 100 < BATCH_BYTES


@pytest.mark.parametrize("weight", [0, 0.5])
def test_the_largest_row_of_distinct_values_fits_into_a_batch(weight):
    """Each pair of key and value is an entry beside that of its key."""
    most = most_pairs(True)
    budget = most * (weight**2 or 1)
    given = find("histogram").parameters(budget=budget, adaptive_weight=weight)
    setting = Setting(Fraction(1), Fraction(1, 10**6), 4, distinct=True)
    made = build("histogram", given, setting)
    keys = Keys.of([b'["%06d",1]' % n for n in range(most)])
    which, known = np.arange(most), np.full(most, int(weight > 0), np.int32)
    batch = Batch(
        keys, which, 0 * which, np.zeros((most, 0), np.int64), np.ones(most, np.int8), known
    )
    units, _ = made.absorb(made.traits.units(1), batch)
    (row,) = UnitCodec(made.traits).encode(units)
    assert len(units.pair) > 1.99 * most and len(row) + 100 < BATCH_BYTES
    with pytest.raises(ParameterError, match="50,000 values that its state can hold"):
        build("histogram", replace(given, budget=budget + 1), setting)


def test_a_count_that_does_not_fit_is_refused_instead_of_cut_off():
    codec = UnitCodec(traits(10, 1))
    one = (np.array([1]), np.array([0, 1]), np.zeros(1, np.uint32))
    row = codec.encode(Units(*one, np.array([[255]], np.uint16)))
    assert codec.decode(row).used.tolist() == [[255]]
    with pytest.raises(EngineError, match="does not fit"):
        codec.encode(Units(*one, np.array([[256]], np.uint16)))


@given(st.lists(st.integers(-(1 << 62), 1 << 62), max_size=20))
def test_sortable_bytes_are_ordered_as_the_integers(numbers):
    assert [unsortable(sortable(n)) for n in numbers] == numbers
    assert sorted(numbers) == [unsortable(b) for b in sorted(map(sortable, numbers))]


HALF = [b"a" * 8 + b"b" * 8, b"b" * 8 + b"a" * 8, b"b" * 16]  # digests that share a half


@given(
    st.lists(
        st.sampled_from([bytes(16), b"\xff" * 16, b"a" * 16, b"a" * 15 + b"b", *HALF]),
        max_size=20,
    )
)
def test_distinct_units(digests):
    matrix = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    keys, place = distinct(matrix, b"p:")
    ids = [key.removeprefix(b"p:") for key in keys]
    assert sorted(ids) == sorted(set(digests))
    assert [ids[i] for i in place] == digests


@pytest.mark.parametrize("seed", range(10))
def test_distinct_units_of_many_whose_digests_half_agree(seed):
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 256, (300, 16), np.uint8)
    known[:100, 8:], known[100:200, :8] = known[0, 8:], known[0, :8]
    digests = known[rng.integers(0, 300, 2_000)]
    one, place = distinct(digests, b"u")
    listed = [b"u" + row.tobytes() for row in digests]
    assert sorted(one) == sorted(set(listed))
    assert [one[i] for i in place.tolist()] == listed
