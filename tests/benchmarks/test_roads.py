"""Maps along roads: the axis is a bijection, readers lose no record, and errors fall."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.topics.config.load import loads

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import roads
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("place", roads.PLACES)
def test_the_axis_measures_length_and_the_plane_lies_in_the_square(place: str) -> None:
    network = roads.PLACES[place]()
    count = len(network.start)
    every, middle = np.arange(count), np.full(count, 0.5)
    begin, end = (network.arc(every, np.full(count, part))[:, 0] for part in (0.0, 1.0))
    assert begin[0] == 0 and end[-1] == pytest.approx(1) and begin[1:] == pytest.approx(end[:-1])
    assert end - begin == pytest.approx(network.length / network.length.sum())
    assert ((network.points(every, middle) >= 0) & (network.points(every, middle) < 1)).all()


@pytest.mark.parametrize("place", roads.PLACES)
def test_routes_are_eight_adjoining_roads(place: str) -> None:
    network = roads.PLACES[place]()
    routes = roads.stretches(network)["route"]
    of_roads = [set((route // roads.FINE).tolist()) for route in routes]
    assert np.mean([len(route) == 8 for route in of_roads]) > 0.95
    for route in of_roads[:50]:
        assert all(set(network.ways[road]) & route for road in route) or len(route) == 1


def test_a_reader_keeps_every_record_and_exact_fine_cells_give_exact_counts() -> None:
    network = roads.roads()
    road, along = roads.records(network, 5_000)
    exact = np.bincount(road, minlength=len(network.start))
    for way in roads.maps(network, "phdstream"):
        codes, counts = np.unique(way.domain.place(way.place(road, along)), return_counts=True)
        whole = np.arange(1 << way.domain.bits, 2 << way.domain.bits, dtype=np.uint64)
        held = np.zeros(len(whole))
        held[(codes - whole[0]).astype(np.intp)] = counts
        fine = roads.spread(network, way, whole, held)
        assert fine.sum() == pytest.approx(5_000)
        told = fine.reshape(-1, roads.FINE).sum(axis=1)
        # A finest cell extends a little beyond its road's end, mostly where several roads meet.
        assert abs(told - exact).sum() < (0.02 if way.name == "axis" else 0.2) * 5_000


@pytest.mark.parametrize("mechanism", roads.MECHANISMS)
def test_roads_and_routes_have_less_error_on_the_axis(mechanism: str) -> None:
    *plane, axis = roads.rows("roads", mechanism, 24_000, 2)
    assert axis["map"] == "axis"
    for size in ("road", "route"):
        assert axis[size] < min(row[size] for row in plane)


ON_ROADS = """\
[[input]]
name = "trips"
topic = "trips"
unit = "trip"
time = { field = "at", format = "epoch_ms" }

[[pipeline]]
name = "roads"
input = "trips"
inputs = { metres = "road.metres" }
window = { length = "1d" }
triggers = { every = "1h" }
budget = { epsilon = 0.5 }

[pipeline.mechanism]
kind = "KIND"

[pipeline.mechanism.domain]
depth = 16
axes = [{ name = "metres", low = 0, high = 84000 }]
"""


@pytest.mark.parametrize("mechanism", roads.MECHANISMS)
def test_the_axis_is_a_field_of_the_record(mechanism: str) -> None:
    (pipeline,) = compile_config(loads(ON_ROADS.replace("KIND", mechanism))).pipelines
    assert pipeline.traits.inputs == ("metres",)
