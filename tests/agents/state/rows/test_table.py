"""Tables of rows in memory: they answer like a dictionary.

Covers: agents/state/rows/scan.py
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.rows.table import HeldTable
from hushstream.mechanisms.keys import Keys


def tables(width: int) -> list[HeldTable]:
    return [HeldTable(width)]


def some(random: Random, known: list[bytes], width: int, most: int) -> list[bytes]:
    """Distinct keys, about half of them known; many differ in a single byte."""
    fresh = [bytes([random.randrange(3) for _ in range(width - 1)] + [random.randrange(256)])
             for _ in range(random.randrange(most))]  # fmt: skip
    again = random.sample(known, min(len(known), random.randrange(most)))
    return list(dict.fromkeys(random.sample(fresh + again, len(fresh + again))))


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(24))
def test_every_table_answers_as_a_dictionary(seed):
    random = Random(seed)
    width = random.choice((1, 8, 16, 27, 40))
    made, truth = tables(width), dict[bytes, bytes]()
    for _ in range(30):
        keys = some(random, list(truth), width, random.choice((3, 40, 900)))
        values = [random.randbytes(random.choice((0, 2, 7, 30, 300))) for _ in keys]
        if random.random() < 0.05:
            truth = {}
            for table in made:
                table.clear()
        truth |= dict(zip(keys, values, strict=True))
        asked = some(random, list(truth), width, 200)
        for table in made:
            table.put(RowColumns(Keys.of(keys), Keys.of(values)))
            assert len(table) == len(truth)
            found = table.look(Keys.of(asked))
            assert found.values.tolist() == [truth.get(key, b"") for key in asked]
            assert found.known.tolist() == [key in truth for key in asked]
            rows = table.rows()
            assert len(rows.keys) == len(truth)
            assert dict(zip(rows.keys.tolist(), rows.values.tolist(), strict=True)) == truth


def test_a_part_of_a_larger_buffer_is_read_where_it_stands():
    keys, values = Keys.of([b"xx", b"ab", b"cd"]), Keys.of([b"gone", b"1", b"234"])
    for table in tables(2):
        table.put(
            RowColumns(Keys(keys.data, keys.offsets[1:]), Keys(values.data, values.offsets[1:]))
        )
        assert table.look(keys).values.tolist() == [b"", b"1", b"234"]
        found = table.look(Keys(keys.data, keys.offsets[1:]))
        assert found.values.tolist() == [b"1", b"234"] and found.known.all()


def test_what_was_read_does_not_change_with_the_table():
    for table in tables(1):
        table.put(RowColumns(Keys.of([b"a"]), Keys.of([b"old"])))
        before, rows = table.look(Keys.of([b"a"])).values, table.rows()
        table.put(RowColumns(Keys.of([b"a"]), Keys.of([b"new"])))
        table.clear()
        assert before.tolist() == rows.values.tolist() == [b"old"]


def test_keys_that_name_one_slot_are_told_apart():
    """In a table of this size, most slots match the low bits of several hashes."""
    n = 20_000
    keys = Keys.fixed(np.arange(n, dtype=">u4").view(np.uint8).reshape(n, 4))
    values = Keys.of([b"%d" % i for i in range(n)])
    for table in tables(4):
        for begun in range(0, n, 1_000):
            part = np.arange(begun, begun + 1_000)
            table.put(RowColumns(keys.take(part), values.take(part)))
        assert table.look(keys).values.tolist() == values.tolist()


def test_a_key_of_another_width_is_refused():
    with pytest.raises(ValueError, match="another width"):
        HeldTable(3).look(Keys.of([b"ab"]))


def test_the_size_grows_with_what_is_written_and_ends_with_a_clear():
    for table in tables(1):
        for n in range(1, 5):
            table.put(RowColumns(Keys.of([b"a"]), Keys.of([bytes(100 * n)])))
            assert table.size >= 100 * n
        table.clear()
        assert table.size == len(table) == len(table.rows().keys) == 0


def test_keys_of_one_hash_are_told_apart():
    """A slot may look like a key's own but hold another key's row: these are two units."""
    from hushstream.agents.state.rows import scan as row_scan

    one, other = Keys.of([b"u" * 19 + b"same tail"]), Keys.of([b"v" * 19 + b"same tail"])
    table = HeldTable(28)
    table.put(RowColumns(one, Keys.of([b"row of one"])))
    (taken,) = np.flatnonzero(table._slots)
    state = int(row_scan._hash(table._words(other), 0))
    half = int(table._slots[taken]) & 0xFFFFFFFF
    table._slots[state & (len(table._slots) - 1)] = (state >> 32 << 32) | half
    assert not table.look(other).known.any()
    assert table.look(one).values.tolist() == [b"row of one"]
