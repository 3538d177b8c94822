"""Rows of a changelog read as arrays equal those read one by one: the newest of each key."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hushstream.agents.state.layout import ROW, UNIT_WIDTH, index_entries, sortable, units_of
from hushstream.agents.state.restored import restored
from hushstream.agents.state.store import Changes
from hushstream.errors import EngineError
from hushstream.formats.events.raw import RawBatch, RawRecord

Row = tuple[bytes | None, bytes | None]


def batch(rows: list[Row]) -> RawBatch:
    """Rows in one buffer, with unused bytes between them."""
    data, places = bytearray(b"??"), []
    for key, value in rows:
        spans = []
        for text in (key, value):
            begin = -1 if text is None else len(data)
            data += text or b""
            spans += [begin, -1 if text is None else len(data)]
            data += b"?"
        places.append([*spans, len(data) - 1, len(data)])
    columns = np.array(places, np.int64).reshape(-1, 6).T
    offsets = np.arange(len(rows), dtype=np.int64)
    return RawBatch(np.frombuffer(bytes(data), np.uint8), offsets, offsets, *columns)


def unit(number: int, epoch: int = 0) -> bytes:
    return units_of(3) + sortable(epoch) + number.to_bytes(8, "little") + bytes(8)


def single(rows: list[Row]) -> Changes:
    """The rows of both results in one dictionary."""
    changes, units = restored(batch(rows))
    columns = dict(units.pairs())
    assert len(columns) == len(units.keys) and not columns.keys() & changes.keys()
    assert all(len(key) == UNIT_WIDTH for key in columns)
    return {**changes, **columns}


def one_by_one(rows: list[Row]) -> Changes:
    changes, units = restored([RawRecord(n, 0, k, v) for n, (k, v) in enumerate(rows)])
    assert len(units.keys) == 0
    return changes


def key_row(key: bytes, due: int) -> Row:
    return ROW + sortable(5) + key, struct.pack("<i", due) + b"cell"


@pytest.mark.parametrize("seed", range(6))
def test_arrays_give_the_rows_that_single_records_give(seed):
    random = np.random.default_rng(seed)
    many = int(random.choice([3, 40, 3000]))  # few units, so that most repeat
    rows: list[Row] = []
    for _ in range(400):
        kind, number = random.integers(0, 10), int(random.integers(0, many))
        value = bytes(random.integers(0, 256, int(random.integers(1, 30)), np.uint8))
        if kind < 6:
            rows.append((unit(number, int(random.integers(0, 2))), value if kind else None))
        elif kind < 8:
            rows.append(key_row(b"k%d" % number, int(random.integers(-1, 3))))
        else:
            rows.append((b"\x00marker" if kind == 8 else b"t%d" % number, value))
    assert single(rows) == one_by_one(rows)


def test_the_newest_row_of_a_unit_counts_and_a_deletion_is_one():
    a, b, c = unit(1), unit(2), unit(1, epoch=1)
    rows: list[Row] = [(a, b"old"), (b, b"gone"), (c, b"other epoch"), (a, b"new"), (b, None)]
    assert single(rows) == {a: b"new", b: None, c: b"other epoch"}


def test_keys_that_only_look_like_a_units_are_rows_as_any_other():
    other = ROW + bytes(UNIT_WIDTH - 1)
    assert single([(other, bytes(8)), (b"u", b"x")]) == {other: bytes(8), b"u": b"x"}


def test_local_rows_are_made_again():
    key, value = key_row(b"page", 7)
    assert single([(key, value)]) == {key: value, **index_entries(key, value)}
    assert len(index_entries(key, value)) == 1


def test_nothing_gives_nothing():
    assert single([]) == one_by_one([]) == {}


@pytest.mark.parametrize(
    ("row", "said"), [((None, b"x"), "no key"), ((b"", b"x"), "no key"), ((unit(1), b""), "empty")]
)
def test_what_no_worker_wrote_is_refused(row, said):
    with pytest.raises(EngineError, match=said):
        restored(batch([(unit(5), b"fine"), row]))


def test_all_rows_of_a_unit_are_listed_for_whoever_takes_the_last():
    rows = [(unit(5), b"old"), (unit(6), b"other"), (unit(5), None), (unit(5), b"new")]
    _, units = restored(batch(rows), once=False)
    assert list(units.pairs()) == rows
    _, newest = restored(batch(rows))
    assert newest.changes() == dict(rows)
