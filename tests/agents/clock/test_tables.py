"""Tables of topics as a topic keeps them: whole, or not at all."""

from __future__ import annotations

import pytest
from hushstream.agents.clock import tables
from hushstream.agents.clock.tables import records_of, tables_of
from hushstream.errors import EngineError
from hushstream.formats.events.expressions.looked_up import Origin, PublicTable

ORIGIN = Origin("products", "id", "category")
ROWS = {str(n): f"é{n}\n" if n % 3 else n for n in range(1000)}


@pytest.mark.parametrize("most", [40, 10_000, 10**6])
def test_a_table_is_read_as_it_was_kept(most: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "BYTES", most)
    kept = PublicTable(ROWS, ORIGIN)
    records = list(records_of("p", kept))
    assert len(records) == (1 if most > 10**5 else len(records)) and len(records) < 1000
    found = tables_of([*reversed(records), *records_of("q", PublicTable({"1": True}, ORIGIN))])
    assert found == {("p", ORIGIN): kept, ("q", ORIGIN): PublicTable({"1": True})}
    assert found["p", ORIGIN].rows == ROWS


def test_a_table_of_which_a_part_is_missing_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "BYTES", 1000)
    first, *rest = records_of("p", PublicTable(ROWS, ORIGIN))
    assert rest and tables_of(rest) == {} and tables_of([first]) == {}


def test_nothing_is_declared_with_a_table_that_was_not_read():
    with pytest.raises(EngineError, match="was not read"):
        list(records_of("p", PublicTable({}, ORIGIN)))
