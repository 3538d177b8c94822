"""Views show the released figures, for every mechanism; choices do what they say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hushstream.client.survey import octave_end
from hushstream.errors import ParameterError
from hushstream.reading.live import views
from hushstream.reading.live.declared import Declared
from hushstream.reading.live.history import History
from hushstream.reading.live.views import LINE, SIDE, Wish, _rings, flattened, shown, view
from hushstream.reading.tables import table_of
from hushstream.topics.releases import Manifest, Row, Value

from ...topics.test_assembly import Released
from .test_declared import compiled, seen
from .test_history import millis, released

PARTS = ("", "_stddev", "_low", "_high")


@cache
def known(case: str) -> tuple[Declared, History]:
    history = History()
    for release in released(case):
        history.add(release)
    return seen(compiled(case)), history


def seen_view(case: str, **asked: Any) -> dict[str, Any]:
    body = view(*known(case), Wish(**asked))
    json.dumps(body, allow_nan=False)
    return body


def newest_rows(case: str) -> list[dict[str, Any]]:
    """Rows of the newest window, by the client's table."""
    table = table_of(released(case), latest=True).to_pylist()
    last = max(row["window_start"] for row in table)
    return [row for row in table if row["window_start"] == last]


def parts(row: dict[str, Any], name: str) -> list[float]:
    return [row[name + part] for part in PARTS]


@pytest.mark.parametrize("value", ["count", "sum_fare", "mean_fare"])
def test_keys_come_with_the_largest_value_first(value: str) -> None:
    body, rows = seen_view("histogram-sums", value=value), newest_rows("histogram-sums")
    wanted = sorted(rows, key=lambda row: -row[value])
    assert [(r["key"], r["estimate"]) for r in body["rows"]] == [
        (row["zone"], parts(row, value)) for row in wanted
    ]
    assert body["matching"] == body["number"] == len(rows) and body["form"] == "keys"
    assert body["values"] == ["count", "sum_fare", "mean_fare"] and body["confidence"] == 0.95
    assert body["trend"]["key"] == wanted[0]["zone"]


def test_a_window_that_hops_tells_how_many_of_its_hops_it_holds() -> None:
    declared, plain = known("histogram-sums")
    history = History()
    for release in released("histogram-hopping"):
        history.add(release)
    first = min(sheet.start for sheet in history.sheets())
    assert view(declared, history, Wish(window=first))["hops"] == (1, 4)
    assert view(declared, history, Wish())["hops"] == (4, 4)
    assert view(declared, plain, Wish())["hops"] is None


def test_the_share_that_was_cut_is_told_or_unknown() -> None:
    assert seen_view("histogram-sums")["cut"] is None
    told = seen_view("histogram-debiased")["cut"]
    assert set(told) == {"share", "low", "high"} and 0 <= told["low"] < told["high"] <= 1


def test_how_a_key_moved_is_every_release_that_has_it() -> None:
    body = seen_view("histogram-sums", key='["z1"]')
    table = table_of(released("histogram-sums")).to_pylist()
    wanted = [(millis(r["released"]), r["trigger"], parts(r, "count")) for r in table
              if r["zone"] == "z1"]  # fmt: skip
    points = body["trend"]["points"]
    assert [(p["at"], p["trigger"], p["estimate"]) for p in points] == wanted
    (row,) = [r for r in body["rows"] if r["key"] == "z1"]
    here = [p for p in points if p["start"] == body["start"]]
    assert row["spark"] == [[p["at"], p["estimate"][0]] for p in here] and len(here) > 1


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_cells_are_those_of_the_release(case: str) -> None:
    body, rows = seen_view(case), newest_rows(case)
    wanted = {(r["x_low"], r["x_high"], r["y_low"], r["y_high"], *parts(r, "count")) for r in rows}
    assert {tuple(cell) for cell in body["cells"]} == wanted and len(wanted) == len(rows)
    assert body["axes"] == [["x", 0.0, 2.0], ["y", -1.0, 1.0]] and body["hidden_axes"] == []
    whole = body["total"]["estimate"]
    assert whole[0] == pytest.approx(sum(r["count"] for r in rows))
    assert whole[1] == pytest.approx(math.sqrt(sum(r["count_stddev"] ** 2 for r in rows)))
    assert whole[3] - whole[0] == pytest.approx(1.959964 * whole[1])
    assert body["trend"]["points"][-1] == body["total"] and len(body["trend"]["points"]) == 8


@pytest.mark.parametrize("case", ["pak", "tops"])
@pytest.mark.parametrize("value", ["sum", "prefix"])
def test_slots_have_their_times(case: str, value: str) -> None:
    body, hour = seen_view(case, value=value), 3_600_000
    rows = sorted(newest_rows(case), key=lambda row: row["slot"])
    start = millis(rows[0]["window_start"])
    assert [(s["begin"], s["end"], s["estimate"]) for s in body["slots"]] == [
        (start + r["slot"] * hour, start + (r["slot"] + 1) * hour, parts(r, value)) for r in rows
    ]
    assert all(s["dated"] for s in body["slots"]) and len(rows) > 4


def test_a_stream_has_its_distribution_and_its_values() -> None:
    body = seen_view("topl")
    last = released("topl")[-1]
    public = json.loads(bytes(last.manifest.public))
    told, high = public["distribution"], 400 * float(octave_end(public["range"][0], 64))
    assert [b[2] for b in body["bins"]] == [n / sum(told) for n in told]
    assert (body["bins"][0][0], body["bins"][-1][1]) == (0.0, pytest.approx(high))
    assert high < 400  # in two rounds: the second covers the range found in the first
    assert body["binned"] == millis(last.scheduled) and body["measured"] == "minutes"
    means = [r.rows[0].values["mean"] for r in released("topl") if r.rows]
    assert [p["estimate"][0] for p in body["trend"]["points"]] == [m.value for m in means if m]
    between = seen_view("topl", trigger=3)  # only the second and last triggers have a distribution
    first = [r for r in released("topl") if r.window == last.window and r.trigger == 2]
    assert between["binned"] == millis(first[0].scheduled)


def many(number: int, null: int = 0) -> tuple[Declared, History]:
    """A release of ``number`` keys; the first ``null`` of them have no value."""
    (one, *_) = released("histogram-plain")
    told: Manifest = one.manifest
    rows = tuple(
        Row("", f"{n}", told.pipeline, told.window, 1, False,
            {"zone": f"Zone {n:06d}", "hot": True},
            {"count": None if n < null else Value(n, 1.0, n - 2.0, n + 2.0)})
        for n in range(number)
    )  # fmt: skip
    history = History()
    history.add(Released(rows, (told,)))
    return seen(compiled("histogram-plain")), history


@pytest.mark.thorough
def test_many_keys_are_paged_and_filtered() -> None:
    pipeline, history = many(100_000)
    body = view(pipeline, history, Wish())
    assert body["number"] == body["matching"] == 100_000 and len(body["rows"]) == 12
    assert body["rows"][0]["key"] == "Zone 099999 / true"
    last = view(pipeline, history, Wish(page=499, size=200))
    assert last["rows"][-1]["key"] == "Zone 000000 / true"
    found = view(pipeline, history, Wish(search="zONE 00123"))
    assert found["matching"] == 10 and found["rows"][0]["key"].startswith("Zone 001239")
    assert view(pipeline, history, Wish(search="no such"))["rows"] == []
    assert len(json.dumps(body)) < 10_000


def test_hours_come_in_their_order_and_other_keys_by_size() -> None:
    pipeline, history = known("histogram-plain")
    (one, *_) = released("histogram-plain")
    rows = tuple(
        Row("", f"{n}", one.manifest.pipeline, one.manifest.window, 1, False, {"hour": n},
            {"count": Value(n % 7, 1.0, 0.0, 9.0)})
        for n in (10, 2, 23, 9)
    )  # fmt: skip
    history = History()
    history.add(Released(rows, (one.manifest,)))
    hours = {"key": ["hour"], "derive": {"hour": {"time": "hour", "zone": "UTC"}}}
    timed = replace(pipeline, config={**pipeline.config, **hours})
    body = view(timed, history, Wish())
    assert body["ordered"] and [row["key"] for row in body["rows"]] == ["2", "9", "10", "23"]
    zones = replace(pipeline, config={**pipeline.config, "key": ["zone"]})  # here numbers are names
    body = view(zones, history, Wish())
    assert not body["ordered"] and [r["key"] for r in body["rows"]] == ["10", "23", "2", "9"]


def test_keys_without_a_value_come_last_and_have_none() -> None:
    body = view(*many(5, null=2), Wish())
    assert [r["estimate"] is None for r in body["rows"]] == [False, False, False, True, True]
    assert body["total"]["estimate"][0] == 2 + 3 + 4


def test_another_window_and_an_earlier_release() -> None:
    pipeline, history = known("histogram-sums")
    first = history.windows()[-1]["start"]
    body = view(pipeline, history, Wish(window=first, trigger=2))
    table = table_of([r for r in released("histogram-sums") if r.trigger <= 2], latest=True)
    wanted = {r["zone"]: parts(r, "count") for r in table.to_pylist()
              if millis(r["window_start"]) == first}  # fmt: skip
    assert {r["key"]: r["estimate"] for r in body["rows"]} == wanted
    assert (body["start"], body["trigger"]) == (first, 2)
    assert view(pipeline, history, Wish(window=5)) == {"empty": True}


def test_a_choice_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be one of count"):
        view(*known("histogram-plain"), Wish(value="nothing"))
    with pytest.raises(ParameterError, match="size"):
        Wish(size=100_000)
    with pytest.raises(ParameterError, match="page"):
        Wish(page=-1)


def test_a_key_is_text_as_it_was() -> None:
    assert shown('["<script>alert(1)</script>", 2.5, false]') == (
        "<script>alert(1)</script> / 2.5 / false"
    )


def test_the_region_of_a_map_comes_as_rings() -> None:
    square, hole = [[0, 0], [2, 0], [2, 2]], [[0.5, 0.2], [1, 0.2], [1, 0.5]]
    assert _rings({"polygon": square}) == [square] and _rings({}) == []
    region = {"type": "MultiPolygon", "coordinates": [[square, hole], [hole]]}
    assert _rings({"polygon": [], "region": region}) == [square, hole, hole]


def test_cells_of_one_or_two_axes_stay_as_they_are() -> None:
    for axes in (1, 2):
        boxes, column = np.ones((3, axes, 2)), np.ones((3, 4))
        kept = flattened(boxes, column)
        assert kept[0] is boxes and kept[1] is column


def test_cells_above_each_other_add_up() -> None:
    """Two layers of cells cover the left half, one cell the right half."""
    boxes = np.array([
        [[0, 1], [0, 1], [0, 5]], [[0, 1], [0, 1], [5, 10]], [[1, 2], [0, 1], [0, 10]],
    ], float)  # fmt: skip
    column = np.array([[10, 3, 4, 16], [20, 4, 12, 28], [7, 1, 5, 9]], float)
    flat, told = flattened(boxes, column)
    assert flat.shape == (SIDE * SIDE, 2, 2) and abs(told[:, 0].sum() - 37) < 1e-9
    left = flat[:, 0, 1] <= 1
    assert left.sum() == SIDE * SIDE // 2
    each = SIDE * SIDE // 2
    assert np.allclose(told[left, 0], 30 / each) and np.allclose(told[~left, 0], 7 / each)
    assert np.allclose(told[left, 1], 5 / each) and np.allclose(told[~left, 1], 1 / each)
    assert np.allclose(told[left, 3] - told[left, 0], 10 / each)  # 10 = √(6² + 8²)
    assert flat[:, :, 0].min(axis=0).tolist() == [0, 0]
    assert flat[:, :, 1].max(axis=0).tolist() == [2, 1]


def test_many_cells_of_one_axis_add_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = np.array([[[0, 1]], [[1, 2]], [[2, 4]]], float)
    column = np.array([[10, 3, 4, 16], [20, 4, 12, 28], [7, 1, 5, 9]], float)
    assert flattened(boxes, column)[0] is boxes
    monkeypatch.setattr(views, "MOST_CELLS", 2)
    flat, told = flattened(boxes, column)
    assert flat.shape == (LINE, 1, 2) and told.shape == (LINE, 4)
    quarter = LINE // 4
    assert np.allclose(told[:quarter, 0], 10 / quarter)
    assert np.allclose(told[2 * quarter :, 1], 1 / (2 * quarter))
    assert np.isclose(told[:, 0].sum(), 37) and flat[-1].tolist() == [[4 - 4 / LINE, 4]]


def test_a_cell_without_a_value_adds_nothing() -> None:
    boxes = np.array([[[0, 1], [0, 1], [0, 1]]] * 2, float)
    column = np.array([[np.nan] * 4, [5, 0, 5, 5]])
    assert abs(flattened(boxes, column)[1][:, 0].sum() - 5) < 1e-9


def test_an_interval_that_is_cut_at_zero_reaches_as_far_as_it_does_upwards() -> None:
    """Two layers of 1 with an error of 3 add up to 2, with a lower end of 0."""
    boxes = np.array([[[0, 1], [0, 1], [0, 1]], [[0, 1], [0, 1], [1, 2]]], float)
    cut = np.array([[1, 1.5, 0, 4]] * 2, float)
    told = flattened(boxes, cut)[1] * SIDE * SIDE
    assert np.allclose(told[:, 2], 0) and np.allclose(told[:, 3], 2 + 3 * np.sqrt(2))
    whole = flattened(boxes, np.array([[1, 1.5, -2, 4]] * 2, float))[1] * SIDE * SIDE
    assert np.allclose(whole[:, 2], 2 - 3 * np.sqrt(2))


def test_what_is_shown_at_once_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seen_view("phdstream")
    monkeypatch.setattr(views, "MOST_CELLS", 1)
    body = seen_view("phdstream")
    assert len(body["cells"]) == SIDE**2 and body["number"] == whole["number"]
    values = [sum(cell[4] for cell in one["cells"]) for one in (whole, body)]
    assert math.isclose(*values, abs_tol=1e-6)
    every = seen_view("tops")["slots"]
    monkeypatch.setattr(views, "MOST_SLOTS", 2)
    assert seen_view("tops")["slots"] == every[-2:]
