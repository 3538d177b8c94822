"""``hush map`` and ``hush points`` on a real broker: the newest release, in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hushstream.cli import maps
from hushstream.deploy.broker import Broker
from hushstream.reading.maps import cells_of, map_before, points_of
from hushstream.reading.regrid import regrid
from hushstream.topics.cut_share import in_words
from pyarrow import parquet

from ..reading.test_maps import every, last
from .bench import typed
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


def test_what_the_bound_cut_is_told_beside_a_map_or_is_called_unknown(place: Place) -> None:
    _, _, err = typed("map", "-c", str(place.folder / "hush.toml"), place.case)
    assert err == f"{in_words(last(CASE).cut)}\n" and "bound cut" in err


def test_a_map_on_another_grid_is_what_the_client_makes_of_it(place: Place) -> None:
    shared = regrid(last(CASE), h3=4, lonlat=True)
    body = json.loads(run(place, "map", "--h3", "4", "--lonlat"))
    assert body == json.loads(json.dumps(shared.to_geojson()))
    text = run(place, "map", "--geohash", "3", "--lonlat", "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(text)))
    known = regrid(last(CASE), geohash=3, lonlat=True)
    assert [line["geohash"] for line in lines] == list(known.cells.names)
    assert {"window_start", "count", "count_stddev", "count_low", "count_high"} <= set(lines[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--h3", "4"), "axes = ('x', 'y'): are not named as longitude and latitude"),
        (("--h3", "4", "--geohash", "3"), "give one of --h3 and --geohash"),
        (("--lonlat",), "--lonlat goes with --h3 or --geohash"),
        (("--h3", "16"), "16 is not in the range 0<=x<=15"),
        (("--h3", "11", "--lonlat"), "more than 200,000"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(place: Place, words: tuple[str, ...], said: str) -> None:
    config = str(place.folder / "hush.toml")
    code, _, err = typed("map", "-c", config, place.case, *words)
    assert code == 2 and said in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "a.png"), "--out a.png: no format has this suffix; there are .geojson"),
        (("--out", "a.csv", "--format", "parquet"), "is not named as --format parquet"),
    ],
)
def test_a_file_that_is_named_otherwise_is_refused(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    for command in ("map", "points"):
        config = str(place.folder / "hush.toml")
        code, _, err = typed(command, "-c", config, place.case, *words)
        assert code == 2 and said in " ".join(err.split())


def test_points_in_every_form_are_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = points_of(last(CASE), seed=4)
    body = json.loads(run(place, "points", "--seed", "4"))
    assert [f["geometry"]["coordinates"] for f in body["features"]] == [
        [row["x"], row["y"]] for row in drawn.to_pylist()
    ]
    out = place.folder / "points.parquet"
    assert run(place, "points", "--seed", "4", "--out", str(out)) == ""
    assert parquet.read_table(out).equals(drawn)
    text = run(place, "points", "--number", "7", "--format", "csv")
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(maps, "sys", terminal)  # bytes would garble a terminal
    config = str(place.folder / "hush.toml")
    code, written, err = typed("points", "-c", config, place.case, "--format", "parquet")
    assert (code, written) == (2, "") and "give --out FILE" in err
    assert len(list(csv.DictReader(io.StringIO(text)))) == 7


@pytest.mark.parametrize("smooth", [False, True])
def test_points_after_an_earlier_map_are_what_the_client_draws(place: Place, smooth: bool) -> None:
    before = map_before(every(CASE), last(CASE))
    assert before is not None
    drawn = points_of(last(CASE), seed=4, smooth=smooth, earlier=before)
    words = ("--smooth",) if smooth else ()
    body = json.loads(run(place, "points", "--seed", "4", "--earlier", *words))
    assert [f["geometry"]["coordinates"] for f in body["features"]] == [
        [row["x"], row["y"]] for row in drawn.to_pylist()
    ]
    # The recorded maps have the same leaves in both windows; smoothed, they differ inside.
    assert drawn.equals(points_of(last(CASE), seed=4, smooth=smooth)) != smooth


def test_the_first_window_has_no_map_before(place: Place) -> None:
    start = min(release.window.start for release in every(CASE)).isoformat()
    words = ("-c", str(place.folder / "hush.toml"), place.case, "--format", "csv")
    code, out, err = typed("points", *words, "--window", start, "--earlier")
    assert code == 0 and "no earlier window of this space has ended" in err
    assert out == run(place, "points", "--window", start, "--format", "csv")


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
    assert code == 4 and err.endswith("no complete release in the window of 2001-01-01\n")
