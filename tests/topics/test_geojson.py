"""Regions as GeoJSON: what is accepted, what is refused and where, and what is charged.

Covers: mechanisms/spatial/domain.py
Covers: topics/config/pipelines/public.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hushstream.errors import ConfigError
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.region import MOST_CORNERS
from hushstream.topics.config.canonical import canonical, config_hash
from hushstream.topics.config.load import Config, loads

HEAD = """
[[input]]
name = "trips"
topic = "trips"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "map"
input = "trips"
window = { length = "8h" }
triggers = { every = "2h" }
budget = { epsilon = 1.0 }
mechanism.kind = "privhp"
[pipeline.mechanism.domain]
depth = 8
axes = [{ name = "x", low = 0, high = 2 }, { name = "y", low = -1, high = 1 }]
"""
PLAIN, POLYGON = (
    "b82ccffc399e513fc9bdd0748c046903f95e38d18605dba5d0d4a07f7153cd98",
    "081163812698f8821098f0a3e74d84a944b85dfa487013ba444bc3b6d11c8599",
)
"""Charged hashes. They stay, so that open epochs continue, unless the changelog says otherwise."""

OUTER = [[0, -1], [2, -1], [2, 1], [0, 1], [0, -1]]
HOLE = [[0.5, -0.5], [0.5, 0.5], [1.5, 0.5], [1.5, -0.5], [0.5, -0.5]]
RING: dict[str, Any] = {"type": "Polygon", "coordinates": [OUTER, HOLE]}


def square(x: float, y: float, side: float) -> list[list[list[float]]]:
    return [[[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]]


def made(setting: str, folder: Path | None = None) -> Config:
    return loads(HEAD + setting, folder=folder, environ={})


def domain_of(config: Config) -> Domain:
    domain = config.pipeline[0].mechanism.parameters.domain
    assert isinstance(domain, Domain)
    return domain


def hashed(config: Config) -> str:
    return config_hash(config, config.pipeline[0])


def inline(body: Any) -> str:
    return f"region = '''{json.dumps(body)}'''\n"


def refusal(setting: str, folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        made(setting, folder)
    return str(error.value)


def test_a_configuration_without_a_region_keeps_its_hash() -> None:
    assert hashed(made("")) == PLAIN
    assert hashed(made("polygon = [[0.0, -1.0], [2.0, -1.0], [0.0, 1.0]]\n")) == POLYGON


def test_table_text_and_file_are_one_region_with_one_hash(tmp_path: Path) -> None:
    (tmp_path / "city.geojson").write_text(json.dumps({"type": "Feature", "geometry": RING}))
    table = f'region = {{ type = "Polygon", coordinates = {json.dumps([OUTER, HOLE])} }}\n'
    settings = (table, inline(RING), 'region = "city.geojson"\n')
    configs = [made(setting, tmp_path) for setting in settings]
    assert len({hashed(config) for config in configs}) == 1
    assert len({domain_of(config) for config in configs}) == 1
    assert domain_of(configs[0]).region.polygons == (  # type: ignore[union-attr]
        (
            ((0, -1), (2, -1), (2, 1), (0, 1)),
            ((0.5, -0.5), (0.5, 0.5), (1.5, 0.5), (1.5, -0.5)),
        ),
    )


def test_the_hash_holds_a_digest_which_every_corner_changes() -> None:
    config = made(inline(RING))
    plain = json.loads(canonical(config, config.pipeline[0]))
    region = plain["mechanism"]["parameters"]["domain"]["region"]
    assert set(region) == {"polygons", "corners", "sha256"} and region["corners"] == 8
    moved = json.loads(json.dumps(RING))
    moved["coordinates"][1][1][0] += 1e-12
    assert len({hashed(config), hashed(made(inline(moved))), PLAIN}) == 3


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.geojson").write_text(json.dumps(RING))
    name = "HUSH_PIPELINE__MAP__MECHANISM__DOMAIN__REGION"
    config = loads(HEAD, folder=tmp_path, environ={name: "a.geojson"})
    assert hashed(config) == hashed(made(inline(RING)))
    with pytest.raises(ConfigError, match=f"{name}: .*b.geojson cannot be read"):
        loads(HEAD, folder=tmp_path, environ={name: "b.geojson"})


def test_districts_that_share_a_border_are_one_region() -> None:
    features = [
        {"type": "Feature", "properties": {"n": n}, "geometry": {
            "type": "Polygon", "coordinates": square(n / 2, -1, 0.5)}}
        for n in range(4)
    ]  # fmt: skip
    found = domain_of(made(inline({"type": "FeatureCollection", "features": features}))).region
    assert found is not None and len(found.polygons) == 4
    several = {"type": "MultiPolygon", "coordinates": [square(n / 2, -1, 0.5) for n in range(4)]}
    assert domain_of(made(inline(several))).region == found
    heights = [[[*corner, 12.5] for corner in ring] for ring in RING["coordinates"]]
    assert hashed(made(inline(RING | {"coordinates": heights}))) == hashed(made(inline(RING)))


LINE = HEAD.count("\n") + 1
BOW = [[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]
OUTSIDE = [[3, 3], [4, 3], [4, 4], [3, 3]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"type": "Point", "coordinates": [0, 0]}, 'type "Point" must be GeoJSON of areas'),
        (RING | {"type": ["Polygon"]}, "this value must be GeoJSON of areas"),
        ({"coordinates": [OUTER]}, "this value must be GeoJSON of areas"),
        ({"type": "Feature", "geometry": None}, "geometry: this value must be GeoJSON"),
        ({"type": "FeatureCollection", "features": []}, "has no polygon"),
        ({"type": "FeatureCollection"}, "features: must be a list"),
        (RING | {"coordinates": []}, "coordinates: needs a ring"),
        (RING | {"coordinates": [OUTER[:3]]}, "coordinates[0]: has 3 positions: a ring needs 4"),
        (RING | {"coordinates": [OUTER[:4]]}, "coordinates[0]: must end where it begins"),
        (RING | {"coordinates": [[["0", 1], *OUTER[1:]]]}, "coordinates[0][0]: must be a position"),
        (RING | {"coordinates": [[[10**400, 1], *OUTER]]}, "coordinates[0][0]: must be a position"),
        (RING | {"coordinates": [[[float("nan"), 1], *OUTER]]}, "[0][0]: must be a position"),
        (RING | {"coordinates": [BOW]}, "coordinates: is not a polygon: Self-intersection"),
        (RING | {"coordinates": [OUTER, OUTSIDE]}, "is not a polygon: Hole lies outside shell"),
        ({"type": "MultiPolygon", "coordinates": [square(0, -1, 1), square(0.5, -1, 1)]},
         "coordinates[1]: overlaps coordinates[0]: merge them"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(body: Any, message: str) -> None:
    said = refusal(inline(body))
    assert message in said and "\n" not in said
    assert said.startswith(f"hush.toml:{LINE}: pipeline[0].mechanism.domain.region: ")


def test_a_mistake_in_a_table_has_the_line_of_its_ring() -> None:
    table = f"""region.type = "Polygon"
region.coordinates = [
  {json.dumps(OUTER)},
  {json.dumps(HOLE[:-1])},
]
"""
    said = refusal(table)
    where = "pipeline[0].mechanism.domain.region.coordinates[1]"
    assert said == (
        f"hush.toml:{LINE + 3}: {where}: must end where it begins: repeat its first position at "
        "the end"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (inline({"type": "Polygon", "coordinates": square(30, -1, 1)}), "has longitude first"),
        (inline({"type": "Polygon", "coordinates": square(0, 1, 1)}), "lies outside y = -1 to 1"),
        (inline(RING) + "polygon = [[0, 0], [1, 0], [0, 1]]\n", "polygon exclude each other"),
        ("region = 3\n", "this value must be GeoJSON"),
        ('region = "none.geojson"\n', "none.geojson cannot be read"),
        ("region = '{'\n", "this text is not valid JSON"),
    ],
)
def test_regions_that_fit_nowhere(more: str, message: str) -> None:
    said = refusal(more)
    assert message in said and "mechanism.domain.region" in said


def test_a_region_of_too_many_corners_says_so() -> None:
    ring = [[i / MOST_CORNERS, (i % 2) / 1e6] for i in range(MOST_CORNERS)]
    ring = [*ring, [1, 1], [0, 1], ring[0]]
    said = refusal(inline({"type": "Polygon", "coordinates": [ring]}))
    assert f"has {MOST_CORNERS + 2} corners: at most {MOST_CORNERS} corners" in said
    assert len(said) < 250


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("polygn = []\n", "domain.polygn: unknown setting; did you mean 'polygon'?"),
        ("split = 'quad'\n", 'domain.split: "quad" must be one of'),
        ("polygon = [[0, 0], [1, 1]]\n", "domain.polygon: "),
    ],
)
def test_other_mistakes_of_a_domain_are_named_too(wrong: str, message: str) -> None:
    assert message in refusal(wrong) and f"hush.toml:{LINE}" in refusal(wrong)


def test_what_is_no_table_is_left_to_the_reader() -> None:
    for text in ("pipeline = 3", "[[pipeline]]\nmechanism = 3", "[[pipeline]]\nmechanism.domain=1"):
        with pytest.raises(ConfigError):
            loads(text, environ={})
