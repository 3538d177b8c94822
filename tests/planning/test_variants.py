"""Variants of a pipeline: longer, rarer, coarser."""

from __future__ import annotations

import json
from pathlib import Path

from hushstream.planning.variants import coarser, given, shorter

from .visits import HOUR, INPUT, START, read, write


def test_variants_are_longer_rarer_and_coarser(tmp_path: Path) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=2_000))
    base = given(made.pipeline[0], records, None)
    found = list(coarser(base, records))
    words = [one.words for one in found]
    assert words[0] == "one release of each window of 1h"
    assert "windows of 6h" in words and "keys without age" in words
    band = next(one for one in found if one.words.startswith("age in bands"))
    assert band.changes["derive.age_band"] == '{ field = "age", bucket = 5 }'
    assert band.numbering.keys < len(records.keys)
    both = [one for one in found if {"key", "window.length"} <= set(one.changes)]
    assert both and both[0].settings.window.length == 6 * HOUR
    (less,) = [one for one in found if one.changes == {"key": '["page"]'}]
    assert less.numbering.keys == 8 and less.settings.key == ("page",)
    assert [one.settings.window.length for one in shorter(base)] == [60_000_000]


def test_numbers_that_name_things_and_coordinates_have_no_bands(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    rows = [f"u{i},{i % 40},{(i * 7) % 40},{START + i}" for i in range(400)]
    for columns in (
        ("shop_id", "zip"), ("restaurantId", "station.code"), ("pickup_lat", "pickup_lon"),
        ("size", "age"),
    ):  # fmt: skip
        named = [one.replace(".", "_") for one in columns]
        path.write_text("\n".join([f"user,{','.join(named)},t", *rows]))
        text = INPUT.replace('["page", "age"]', json.dumps(named))
        made, records = read(path, text)
        words = [one.words for one in coarser(given(made.pipeline[0], records, None), records)]
        assert any("in bands" in one for one in words) == (named == ["size", "age"]), named
