"""Exact answers, recomputed from the file's raw records by boxes, slots and keys."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.formats.events.views import View
from hushstream.mechanisms.keys import Keys
from hushstream.offline.engine import OfflineEngine
from hushstream.offline.exact import counts_units, kept_share, of_keys
from hushstream.offline.judged import last_rows
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads

from ..recorded.pipelines import COMMON, HEAD, HOUR, ORIGIN, SECRET, SETTINGS, WINDOW, rows

DATA = rows(1500)


@cache
def run(case: str) -> tuple[Pipeline, Any, OfflineEngine]:
    """Pipeline, report and engine of a recorded case."""
    text = HEAD.format(partitioner="none") + COMMON.format(name=case, window=WINDOW)
    config = loads(text + SETTINGS[case], environ={})
    reports, engine = simulate(config, DATA, "trips", SECRET)
    return compile_config(config).pipelines[0], reports[case], engine


def mine(window: int) -> list[dict[str, Any]]:
    return [r for r in DATA if (r["t"] - ORIGIN) // (8 * HOUR) == window]


def median(pairs: list[tuple[float, float]], relative: bool) -> float | None:
    kept = [(one, true) for one, true in pairs if true or not relative]
    errors = [abs(one - true) / (abs(true) if relative else 1) for one, true in kept]
    return float(np.median(errors)) if errors else None


def check(case: str, window: dict[str, Any], name: str, truth: dict[str, float]) -> None:
    """Check the figures of one value against truths, by the JSON of released keys."""
    pipeline, _, engine = run(case)
    found = last_rows(pipeline, engine).get(window["window"], {})
    said = [(b["values"][name], truth[json.dumps(b["key"])]) for b in found.values()
            if b["values"].get(name)]  # fmt: skip
    pairs = [(one["value"], true) for one, true in said]
    told = window["figures"][name]
    assert told["rows"] == len(pairs) > 0
    assert told["error"] == pytest.approx(median(pairs, False))
    assert told["relative"] == pytest.approx(median(pairs, True))
    assert told["total"] == pytest.approx(
        sum(abs(one - true) for one, true in pairs) / sum(abs(true) for _, true in pairs)
    )
    inside = [one["low"] <= true <= one["high"] for one, true in said]
    assert told["coverage"] == sum(inside) / len(inside)


@pytest.mark.parametrize("name", ["count", "sum_fare", "mean_fare"])
def test_keys_are_counted_summed_and_averaged(name: str) -> None:
    _, report, _ = run("histogram-sums")
    for window in report.windows:
        fares = defaultdict(list)
        for row in mine(window["window"]):
            fares[json.dumps({"zone": row["zone"]})].append(min(max(round(row["fare"]), 0), 100))
        answer = {"count": len, "sum_fare": sum, "mean_fare": np.mean}[name]
        check("histogram-sums", window, name, {key: float(answer(v)) for key, v in fares.items()})
        assert window["records"] == len(mine(window["window"]))


def test_variances_are_those_of_the_clipped_records() -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name="spread", window=WINDOW)
    fare = 'field = "fare", low = 0, high = 100'
    text += f"""key = "zone"
mechanism = {{ kind = "histogram", budget = 4 }}
public_keys = [["a"], ["b"], ["nobody"]]
aggregate = [{{ kind = "variance", {fare} }}, {{ kind = "stddev", {fare}, sample = true }}]
"""
    pipeline = compile_config(loads(text, environ={})).pipelines[0]
    names, signs = ["a", "a", "a", "b", "a", "a"], [1, 1, 1, 1, 1, -1]
    fares = np.array([[3], [8], [100], [7], [41], [41]])
    keys = Keys.of(json.dumps([name]).encode() for name in ("a", "b"))
    view = View(
        np.arange(6), keys, np.array([name == "b" for name in names], np.intp), fares,
        np.array(signs, np.int8), {},
    )  # fmt: skip
    truth = of_keys(pipeline, view, np.ones(6, np.bool_), np.arange(6))
    values = np.array([3, 8, 100])
    assert truth.values["variance_fare"][b'["a"]'] == pytest.approx(np.var(values))
    assert truth.values["stddev_fare"][b'["a"]'] == pytest.approx(np.std(values, ddof=1))
    assert truth.values["variance_fare"][b'["b"]'] == 0
    assert np.isnan(truth.values["stddev_fare"][b'["b"]'])


def test_variances_of_some_records_are_those_of_no_others() -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name="spread", window=WINDOW)
    fare = 'field = "fare", low = 5, high = 100, where = [{ field = "fare", above = 4 }]'
    text += f"""key = "zone"
public_keys = [["a"]]
mechanism = {{ kind = "histogram", budget = 4 }}
aggregate = [{{ kind = "variance", {fare} }}, {{ kind = "count" }}]
"""
    pipeline = compile_config(loads(text, environ={})).pipelines[0]
    values = np.array([[8, 1], [60, 1], [0, 0], [0, 0]])  # values as in columns, and their count
    view = View(
        np.arange(4), Keys.of([b'["a"]']), np.zeros(4, np.intp), values, np.ones(4, np.int8), {}
    )
    truth = of_keys(pipeline, view, np.ones(4, np.bool_), np.arange(4))
    assert truth.values["variance_fare"][b'["a"]'] == pytest.approx(26**2)
    assert truth.values["count"][b'["a"]'] == 4


def test_distinct_values_are_those_of_the_records() -> None:
    text = HEAD.format(partitioner="none") + COMMON.format(name="values", window=WINDOW)
    text += """key = "zone"
mechanism = { kind = "histogram" }
aggregate = [{ kind = "distinct", field = "fare" }]
"""
    config = loads(text, environ={})
    pipeline = compile_config(config).pipelines[0]
    keys = Keys.of([b'["a",1]', b'["a",2]', b'["b",1]', b'["c",5]'])
    view = View(
        np.arange(6), keys, np.array([0, 1, 0, 2, 3, 1], np.intp), np.zeros((6, 0), np.int64),
        np.ones(6, np.int8), {},
    )  # fmt: skip
    mine = np.array([True, True, True, True, False, False])
    truth = of_keys(pipeline, view, mine, np.arange(6))
    assert truth.values["distinct_fare"] == {b'["a"]': 2, b'["b"]': 1} == truth.held
    listed = of_keys(replace(pipeline, public_keys=(b'["b"]',)), view, mine, np.arange(6))
    assert listed.held == {b'["b"]': 1} and listed.records == 1
    assert not of_keys(pipeline, view, np.zeros(6, np.bool_), np.arange(6)).held


def test_distinct_counts_are_compared_with_distinct_counts() -> None:
    pipeline, report, _ = run("histogram-users")
    assert counts_units(pipeline) and report.counted == "distinct units (user)"
    plain, other, _ = run("histogram-sums")
    assert not counts_units(plain) and other.counted == "records"
    for window in report.windows:
        users = defaultdict(set)
        for row in mine(window["window"]):
            users[json.dumps({"zone": row["zone"]})].add(row["user"])
        truth = {key: float(len(found)) for key, found in users.items()}
        check("histogram-users", window, "count", truth)
        assert window["hidden_share"] == pytest.approx(1 - window["covered"] / sum(truth.values()))


@pytest.mark.parametrize("case", ["phdstream", "phdstream-tree", "privhp"])
def test_cells_hold_the_points_that_lie_in_their_boxes(case: str) -> None:
    """A box is half open, except at the upper end of the domain; deletions are taken away."""
    pipeline, report, engine = run(case)
    deletes = pipeline.fields.sign is not None
    for window in report.windows:
        truth = {}
        for body in last_rows(pipeline, engine)[window["window"]].values():
            inside = 0
            for row in mine(window["window"]):
                held = all(
                    low <= row["at"][axis] < high or row["at"][axis] == high == top
                    for (axis, (low, high)), top in zip(
                        sorted(body["box"].items()), (2.0, 1.0), strict=True
                    )
                )
                inside += held * (-1 if deletes and row["gone"] else 1)
            truth[json.dumps(body["key"])] = float(inside)
        for name in window["figures"]:
            check(case, window, name, truth)


@pytest.mark.parametrize("case", ["pak", "tops"])
def test_slots_are_summed_by_the_hour(case: str) -> None:
    pipeline, report, engine = run(case)
    for window in report.windows:
        found = last_rows(pipeline, engine)[window["window"]]
        first = min(body["key"]["slot"] for body in found.values())
        fares = defaultdict(float)
        for row in mine(window["window"]):
            fares[(row["t"] - ORIGIN) % (8 * HOUR) // HOUR] += min(round(row["fare"]), 100)
        begin = 0 if case == "pak" else first  # pak sums up its warm-up in its first row
        sums, prefixes = {}, {}
        for slot in range(first, 8):
            key = json.dumps({"slot": slot})
            prefixes[key] = sum(fares[s] for s in range(begin, slot + 1))
            sums[key] = prefixes[key] if case == "pak" and slot == first else fares[slot]
        check(case, window, "sum", sums)
        check(case, window, "prefix", prefixes)


def test_the_share_that_the_bound_keeps() -> None:
    class Records:
        key = np.zeros(6, np.intp)

    unit, epoch = np.array([1, 1, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 0, 0])
    kept: Any = Records
    assert kept_share(kept, unit, epoch, 1) == 3 / 6
    assert kept_share(kept, unit, epoch, 2) == 5 / 6
    assert kept_share(kept, unit, epoch, 9) == 1


@pytest.mark.parametrize("case", ["histogram-sums", "privhp", "pak"])
def test_what_the_bound_cuts_off_is_said(case: str) -> None:
    _, report, _ = run(case)
    if case == "histogram-sums":
        assert report.cut == 1 - report.counts["accepted"] / len(DATA)
        return
    units = {(row["user"], (row["t"] - ORIGIN) // (8 * HOUR)) for row in DATA}
    assert report.cut == pytest.approx(1 - len(units) / len(DATA))  # one record of each unit counts
