"""Rows as columns: empty rows, and which row goes where."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hushstream.agents.state.rows.columns import NO_ROWS, RowColumns, column_of, pick, put_in
from hushstream.errors import EngineError
from hushstream.mechanisms.keys import Keys


def test_rows_become_columns_and_rows_again():
    changes = {b"a": b"1", b"b": None, b"c": b"22"}
    rows = RowColumns.of(changes)
    assert rows.keys.tolist() == [b"a", b"b", b"c"] and rows.values.tolist() == [b"1", b"", b"22"]
    assert rows.changes() == changes and NO_ROWS.changes() == {}


def test_an_empty_row_is_never_taken_for_none():
    """If a unit's row were cut to nothing, the unit would begin a second bound."""
    with pytest.raises(EngineError, match="damaged"):
        column_of([b"1", b"", None])
    with pytest.raises(EngineError, match="damaged"):
        RowColumns.of({b"a": b""})


@pytest.mark.parametrize("seed", range(20))
def test_values_go_to_their_places(seed):
    random = Random(seed)
    n = random.randrange(1, 30)
    rows = sorted(random.sample(range(n), random.randrange(n + 1)))
    values = [b"" if i in rows else random.randbytes(random.randrange(9)) for i in range(n)]
    found = [random.randbytes(random.randrange(9)) for _ in rows]
    merged = put_in(Keys.of(values), np.array(rows, np.intp), Keys.of(found))
    for row, value in zip(rows, found, strict=True):
        values[row] = value
    assert merged.tolist() == values


def test_some_keys_of_one_width():
    keys = Keys.of([b"ab", b"cd", b"ef"])
    assert pick(keys, np.array([0, 2])).tolist() == [b"ab", b"ef"]
    assert pick(keys, np.arange(3)).tolist() == keys.tolist()
    assert pick(Keys(keys.data, keys.offsets[1:]), np.array([1])).tolist() == [b"ef"]
