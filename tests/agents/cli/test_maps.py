"""``hush map`` and ``hush points`` on a real broker: the newest release, in every form."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hushstream.agents.reading.maps import cells_of, points_of
from hushstream.deploy.broker import Broker
from pyarrow import parquet

from ..reading.test_maps import last
from .test_group import typed
from .test_releases import Place

CASE = "phdstream"


@pytest.fixture(scope="module")
def place(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(broker, tmp_path_factory.mktemp("maps"), "shown-maps", CASE)


def run(place: Place, command: str, *words: str) -> str:
    code, out, err = typed(command, "-c", str(place.folder / "hush.toml"), place.case, *words)
    assert code == 0, err
    return out


def test_a_map_is_that_of_the_newest_release(place: Place) -> None:
    release = last(CASE)
    assert json.loads(run(place, "map")) == json.loads(json.dumps(cells_of(release)))
    lines = list(csv.DictReader(io.StringIO(run(place, "map", "--format", "csv"))))
    assert len(lines) == len(release.rows)
    assert {"x_low", "x_high", "y_low", "y_high", "count", "count_low"} <= set(lines[0])
    first = json.loads(run(place, "map", "--window", "2019-03-01T01:00"))
    assert first != json.loads(run(place, "map"))


def test_points_in_every_form_are_the_same(place: Place) -> None:
    drawn = points_of(last(CASE), seed=4)
    body = json.loads(run(place, "points", "--seed", "4"))
    assert [f["geometry"]["coordinates"] for f in body["features"]] == [
        [row["x"], row["y"]] for row in drawn.to_pylist()
    ]
    out = place.folder / "points.parquet"
    assert run(place, "points", "--seed", "4", "--format", "parquet", "--out", str(out)) == ""
    assert parquet.read_table(out).equals(drawn)
    text = run(place, "points", "--number", "7", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(text)))) == 7


def test_what_has_no_map_is_refused(
    place: Place, broker: Broker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    other = Place(broker, tmp_path, unique("shown"), "histogram-plain")
    settings = ("-c", str(other.folder / "hush.toml"))
    code, _, err = typed("map", *settings, other.case)
    assert code == 2 and "histogram" in err
    code, _, err = typed("points", *settings, "nobody")
    assert code == 2 and "unknown" in err
    code, _, err = typed("map", *settings, other.case, "--window", "2001-01-01")
    assert code == 4 and "no complete release in the window of 2001-01-01" in err
