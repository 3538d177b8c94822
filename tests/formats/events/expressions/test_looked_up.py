"""Rows of public tables, found by fields that compiled loops have read, and conditions on them."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hushstream.formats.events.decode import Decoder, KeysAlone, RawRecord
from hushstream.formats.events.expressions.conditions import (
    Between,
    Leaf,
    Present,
    TextFits,
    TextIn,
    TruthIs,
)
from hushstream.formats.events.expressions.derived import Band, TextPart, mapped
from hushstream.formats.events.expressions.looked_up import Lookup, PublicTable, row_fits
from hushstream.formats.events.fields import InputFields, PipelineFields


def test_loops_look_up_texts_and_whole_numbers() -> None:
    zone = Lookup("zone", PublicTable({"1": "Queens", "b": "Bronx"}), "none")
    fields = InputFields("t", "epoch_ms", "UTC", ("user",), 5_000)
    pipeline = PipelineFields(("place",), (), derived={"place": zone})
    decoder = Decoder(fields, [pipeline], [KeysAlone()])  # type: ignore[list-item]
    assert decoder._columns is not None
    zones = [1, "1", "b", 2, None]
    bodies = [json.dumps({"user": n, "t": 5, "zone": one}).encode() for n, one in enumerate(zones)]
    found, left = decoder._columns.decode([RawRecord(n, 0, None, b) for n, b in enumerate(bodies)])
    assert left.tolist() == []
    (view,) = found.views
    keys = [json.loads(view.keys[k])[0] for k in view.key.tolist()]
    assert keys == ["Queens", "Queens", "Bronx", "none", "none"]


ZONES = PublicTable({"1": "Queens", "2": "Bronx", "x": "Bronx"})
AREAS = PublicTable({"1": 3, "2": 12, "x": 7})


@pytest.mark.parametrize(
    ("table", "test", "keys", "denied"),
    [
        (ZONES, TextIn("", ("Bronx",)), {"2", "x"}, False),
        (ZONES, TextIn("", ("Bronx",), True), {"1"}, False),
        (ZONES, TextFits("", (("lower",),), "like", ("q%",)), {"1"}, False),
        (ZONES, Present("", True), {"1", "2", "x"}, False),
        (ZONES, Present("", False), {"1", "2", "x"}, True),
        (AREAS, Between("", Fraction(5), None), {"2", "x"}, False),
        (PublicTable({"1": "0.5", "2": "2"}), Between("", None, Fraction(1)), {"1"}, False),
        (PublicTable({"1": True, "2": False}), TruthIs("", True), {"1"}, False),
    ],
)
def test_the_rows_that_fulfil_a_condition_are_known_before_any_record(
    table: PublicTable, test: Leaf, keys: set[str], denied: bool
) -> None:
    found = row_fits("zone", table, test)
    assert (found.keys, found.denied, found.count) == (keys, denied, len(table.rows))
    assert found.sha256 == table.sha256


@pytest.mark.parametrize(
    ("table", "test"),
    [
        (ZONES, Between("", Fraction(5), None)),
        (AREAS, TextIn("", ("3",))),
        (AREAS, TruthIs("", True)),
        (PublicTable({"1": "0.5", "2": "1e400"}), Between("", Fraction(5), None)),
    ],
)
def test_values_of_another_type_than_is_asked_for_are_refused(
    table: PublicTable, test: Leaf
) -> None:
    with pytest.raises(ValueError, match="its values are not"):
        row_fits("zone", table, test)


def test_a_function_makes_another_table_of_a_table() -> None:
    assert mapped(ZONES, TextPart("zone", (("part", 1, 1),))).rows["x"] == "B"
    assert mapped(ZONES, TextPart("zone", (("extract", "u(.*)"),))).rows == {"1": "eens"}
    assert mapped(AREAS, Band("zone", Fraction(5))).rows == {"1": 0, "2": 10, "x": 5}
    with pytest.raises(ValueError, match="no numbers"):
        mapped(ZONES, Band("zone", Fraction(5)))
    with pytest.raises(ValueError, match="no texts"):
        mapped(AREAS, TextPart("zone", (("lower",),)))
