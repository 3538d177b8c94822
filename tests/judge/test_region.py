"""The judge against the product on maps with a region: polygons, holes, listed cells, GeoJSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.mechanisms.spatial import domain
from hushstream.mechanisms.spatial.domain import Domain
from hushstream.mechanisms.spatial.region import Region as OfProduct
from hushstream.mechanisms.spatial.region import boxes_meet_polygon, in_polygon
from hushstream.topics.config.load import loads

from .outcomes import outcome, verdict
from .published import objections
from .region import Region
from .stream import Objection
from .test_space import AXES, SIGN, placed, text
from .worlds import world

OUTER = [[0, -1.5], [0.9, -1.5], [0.3, 1.5], [-0.5, 1.5], [0, -1.5]]
HOLE = [[0.05, -1.2], [0.25, -1.2], [0.15, -0.2], [0.05, -1.2]]
FAR = [[1.0, -1.0], [1.5, -1.0], [1.5, 0.3], [1.0, -1.0]]
SHAPE = {"type": "MultiPolygon", "coordinates": [[OUTER, HOLE], [FAR]]}
REGIONS = {
    "geojson": f"region = '{json.dumps(SHAPE)}'",
    "polygon": f"polygon = {OUTER[:-1]}",
    "cells": "cells = [16, 18, 5]",
    "both": f"polygon = {OUTER[:-1]}, cells = [16, 17, 5]",
}
KINDS = {
    "phdstream": (", bound = 3, deletions = true", SIGN, 3, AXES),
    "privhp": (", k = 8, bound = 2", "", 7, AXES.replace(', kind = "integer"', "")),
}


def given(kind: str, where: str, more: str = "") -> str:
    mechanism, pipeline, depth, axes = KINDS[kind]
    made = text(kind, mechanism + more, pipeline, depth=depth, axes=axes)
    return made.replace(" axes = [", f" {where}, axes = [")


def judged(written: str, seed: int = 5) -> tuple[list[str], int]:
    made = compile_config(loads(written, environ={}), {"events": 2})
    one = world(made, Random(seed), events=500, users=60)
    return verdict(made, placed(one), one.clock)


@pytest.mark.parametrize("where", REGIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_maps_with_a_region_are_released_as_the_judge_says(kind: str, where: str) -> None:
    found, rows = judged(given(kind, REGIONS[where]))
    assert found == [] and rows > 20


@pytest.mark.parametrize(("kind", "more"), [
    ("phdstream", ', selection = "private"'), ("phdstream", ", debias = true, smoothing = 0"),
    ("phdstream", ', counter = "tree"'), ("privhp", ', decode = "single"'),
    ("privhp", ", debias = true"),
])  # fmt: skip
def test_settings_beside_a_region_are_judged_too(kind: str, more: str) -> None:
    written = given(kind, REGIONS["geojson"], more)
    if "debias" in more:  # only with insertions
        written = written.replace(", deletions = true", "").replace(SIGN, "")
    found, rows = judged(written, seed=6)
    assert found == [] and rows > 20


def test_points_and_boxes_lie_where_the_product_says() -> None:
    random = Random(3)
    shape = OfProduct.from_json(SHAPE)
    mine = Region(shape.rings, ())
    heights = [random.choice([-1.5, -1, 0.5, random.uniform(-2, 2)]) for _ in range(2000)]
    points = np.array([[random.uniform(-1, 2), y] for y in heights])
    inside = in_polygon(shape.rings, points[:, 0], points[:, 1]).tolist()
    assert inside == [mine.holds(point, 1) for point in points.tolist()]
    assert 200 < sum(inside) < 1800
    high = points + np.array([[random.choice([0.01, 0.1, 0.5])] * 2 for _ in points])
    met = boxes_meet_polygon(shape.rings, points, high).tolist()
    boxes = [list(zip(*pair, strict=True))
             for pair in zip(points.tolist(), high.tolist(), strict=True)]  # fmt: skip
    assert met == [mine.reaches(1, ends) for ends in boxes]
    assert sum(met) > sum(inside)


def test_a_region_that_was_not_charged_is_named() -> None:
    made = compile_config(loads(given("phdstream", REGIONS["geojson"]), environ={}), {"events": 1})
    one = world(made, Random(5), events=200, users=40)
    ((releases, published),) = outcome(made, placed(one), one.clock)
    assert objections(releases, published) == []
    real = Domain.to_json

    def another(self: Any) -> dict[str, Any]:
        plain = real(self)
        plain["region"] = {"type": "MultiPolygon", "coordinates": [[OUTER], [FAR]]}
        return plain

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Objection, match="than was charged"):
        patch.setattr(Domain, "to_json", another)
        list(outcome(made, placed(one), one.clock))


def _unholed(real: Any) -> Any:
    return lambda rings, x, y: real((rings[0], *rings[2:]), x, y)


def _all(real: Any) -> Any:
    return lambda *some: np.ones(len(some[-1]), bool)


MISTAKES = [
    (domain, "in_polygon", _unholed, "geojson"),
    (domain, "in_polygon", lambda real: lambda rings, x, y: ~real(rings, x, y), "polygon"),
    (domain, "covered", _all, "cells"),
    (Domain, "touches", _all, "geojson"),
    (domain, "meets_cells", _all, "cells"),
    (domain, "boxes_meet_polygon",
     lambda real: lambda rings, low, high: in_polygon(rings, low[:, 0], low[:, 1]), "polygon"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("where", "name", "wrong", "shape"), MISTAKES)
def test_a_product_that_errs_is_found_out(
    kind: str, where: Any, name: str, wrong: Any, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    found, rows = judged(given(kind, REGIONS[shape]))
    assert found != [] and rows
