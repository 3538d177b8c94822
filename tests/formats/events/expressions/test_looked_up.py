"""Lookups of whole lists, as compiled loops have found their fields."""

from __future__ import annotations

import json

from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.expressions.derived import Lookup, PublicTable
from hushstream.formats.events.fields import InputFields, PipelineFields


class _Plain:
    inputs: tuple[str, ...] = ()


def test_loops_look_up_texts_and_whole_numbers() -> None:
    zone = Lookup("zone", PublicTable({"1": "Queens", "b": "Bronx"}), "none")
    fields = InputFields("t", "epoch_ms", "UTC", ("user",), 5_000)
    pipeline = PipelineFields(("place",), (), derived={"place": zone})
    decoder = Decoder(fields, [pipeline], [_Plain()])  # type: ignore[list-item]
    assert decoder._columns is not None
    zones = [1, "1", "b", 2, None]
    bodies = [json.dumps({"user": n, "t": 5, "zone": one}).encode() for n, one in enumerate(zones)]
    found, left = decoder._columns.decode([RawRecord(n, 0, None, b) for n, b in enumerate(bodies)])
    assert left.tolist() == []
    (view,) = found.views
    keys = [json.loads(view.keys[k])[0] for k in view.key.tolist()]
    assert keys == ["Queens", "Queens", "Bronx", "none", "none"]
