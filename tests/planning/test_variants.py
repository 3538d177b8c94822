"""Variants of a pipeline: longer, rarer, coarser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.planning.variants import coarser, given, oftener, shorter

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


@pytest.mark.parametrize(
    ("length", "every", "found"),
    [
        ('"1d"', '"1d"', '"1h"'),
        ('"1d"', '"12h"', '"1h"'),
        ('"1d"', '"90m"', None),  # sixteen a day are enough
        ('"1h"', '"1h"', '"2m"'),
        ('"1h"', '"20m"', '"2m"'),
        ('"7d"', '"7d"', '"6h"'),
        ('"35m"', '"35m"', '"1m"'),
        ('"7s"', '"7s"', '"1s"'),
        ('"1s"', '"1s"', None),
        ('"1 day"', '"1 day"', '"1h"'),
        ('"1 week"', '"1 day"', '"6h"'),
        ('"1 month"', '"1 month"', '"1 day"'),
        ('"1 year"', '"1 month"', None),
        ('"3 years"', '"3 years"', None),
        ('"5d"', '"5d"', '"6h"'),
        ('"97s"', '"97s"', None),
        ('"89s"', '"89s"', '"1s"'),
    ],
)
def test_early_releases_keep_the_old_times_and_are_about_two_dozen(
    tmp_path: Path, length: str, every: str, found: str | None
) -> None:
    text = INPUT.replace('length = "1h"', f"length = {length}").replace('"30m"', every)
    made, records = read(write(tmp_path / "visits.csv", rows=100), text)
    one = oftener(given(made.pipeline[0], records, None))
    assert (one and one.changes) == (found and {"triggers.every": found})
    if one is not None:
        changed = text.replace(f"every = {every}", f"every = {found}")
        again, _ = read(tmp_path / "visits.csv", changed)
        assert again.pipeline[0] == one.settings


@pytest.mark.parametrize(
    "changed",
    [
        ('every = "30m"', 'cron = "*/30 * * * *", count = 2'),
        ('every = "30m" }', 'every = "30m" }\nschedule = "external"'),
        ('length = "1h"', 'length = "1h", hop = "30m"'),
        ('length = "1h"', "horizon = 2"),
    ],
)
def test_triggers_at_no_interval_or_on_demand_have_no_early_releases(
    tmp_path: Path, changed: tuple[str, str]
) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=100), INPUT.replace(*changed))
    assert oftener(given(made.pipeline[0], records, None)) is None
