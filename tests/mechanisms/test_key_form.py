"""Keys of records and of mechanisms: names, texts, places; each text reads back as its key.

Covers: mechanisms/slots/stream.py, mechanisms/spatial/stream.py
"""

from __future__ import annotations

import pytest
from hushstream.mechanisms.key_form import ONE_ROW, RECORD_KEYS, KeyForm, Place
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.stream import SlotKeys
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.stream import CellKeys

SQUARE = Domain.unit(2, 4)
CODES = [(4).to_bytes(8, "big")]


@pytest.mark.parametrize(
    ("form", "key", "text", "names", "place"),
    [
        (RECORD_KEYS, b'["A",4]', '["A",4]', ("zone", "n"), Place({"zone": "A", "n": 4}, {})),
        (ONE_ROW, b"\x01", "01", (), Place({}, {})),
        (SlotKeys(), CODES[0], "0000000000000004", ("slot",), Place({"slot": 4}, {})),
    ],
)
def test_a_key_is_named_and_comes_back_from_its_text(
    form: KeyForm, key: bytes, text: str, names: tuple[str, ...], place: Place
) -> None:
    columns = ("zone", "n")
    assert (form.names(columns), form.text(key), form.key(text)) == (names, text, key)
    assert list(form.places(Keys.of([key]), columns)) == [place]
    assert form.of_record == (form is RECORD_KEYS) and not form.replaces


def test_cells_have_boxes_and_replace_each_other() -> None:
    form = CellKeys(SQUARE)
    (place,) = form.places(Keys.of(CODES), ())
    assert place.key == {"cell": "0000000000000004"} and set(place.box) == set(SQUARE.names)
    assert form.replaces and form.geometry() == SQUARE.to_json()


def test_types_of_columns_are_those_of_their_values() -> None:
    for form, key in ((SlotKeys(), CODES[0]), (CellKeys(SQUARE), CODES[0])):
        (place,) = form.places(Keys.of([key]), ())
        kinds = {name: "text" if isinstance(v, str) else "whole" for name, v in place.key.items()}
        assert dict(form.kinds) == kinds


def test_what_is_no_text_of_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="hex"):
        ONE_ROW.key("x")
