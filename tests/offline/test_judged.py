"""Reports: thresholds and dates come from manifests, hidden keys are counted, gaps stay gaps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.offline.judged import dates, figures, manifests
from hushstream.offline.simulate import simulate
from hushstream.planning.records import read_records
from hushstream.planning.search import Search
from hushstream.topics.config.load import loads

from ..recorded.pipelines import ORIGIN
from .test_exact import run


def body(value: float, low: float, high: float) -> dict:
    return {"values": {"v": {"value": value, "low": low, "high": high}, "none": None}}


def test_figures_of_a_few_rows_by_hand() -> None:
    rows = {b"a": body(12, 9, 15), b"b": body(5, 4, 6), b"c": body(1, 0, 2), b"d": body(3, 1, 5)}
    told = figures(rows, "v", {b"a": 10.0, b"b": 8.0, b"c": 0.0, b"d": float("nan")})
    assert told["rows"] == 3  # there is no truth for d
    assert told["error"] == 2 and told["relative"] == pytest.approx((0.2 + 0.375) / 2)
    assert told["total"] == pytest.approx(6 / 18) and told["coverage"] == pytest.approx(2 / 3)
    empty = figures(rows, "none", {})
    assert empty == {
        "rows": 0, "error": None, "relative": None, "total": None, "coverage": None
    }  # fmt: skip


def test_hidden_keys_are_those_without_a_row() -> None:
    _, report, _ = run("histogram-sums")
    for window in report.windows:
        assert window["hidden"] == window["keys"] - window["released"] > 0
        share = 1 - window["covered"] / window["records"]
        assert window["hidden_share"] == pytest.approx(share) and 0 < share < 1
        assert window["l1"] >= window["l2"] >= window["linf"] > 0


def test_thresholds_are_those_that_were_published() -> None:
    pipeline, report, engine = run("histogram-sums")
    outs = [json.loads(o.value or b"") for o in engine.outs[pipeline.release_topic]]
    told = {b["key_threshold"] for b in outs if "key_threshold" in b and b["final"]}
    assert {w["threshold"] for w in report.windows} == told and len(told) == 1
    pipeline, report, engine = run("pak")
    learnt = {n: m["public"]["threshold"][0] for n, m in manifests(pipeline, engine).items()}
    assert {w["window"]: w["threshold"] for w in report.windows} == learnt and len(learnt) == 2
    assert all("threshold" not in w for w in run("phdstream")[1].windows)


def test_windows_have_their_dates() -> None:
    pipeline, report, _ = run("tops")
    assert [(w["start"], w["end"]) for w in report.windows] == [
        ("2019-03-01T00:00:00Z", "2019-03-01T08:00:00Z"),
        ("2019-03-01T08:00:00Z", "2019-03-01T16:00:00Z"),
    ]
    assert dates(pipeline, 0) == {k: report.windows[0][k] for k in ("start", "end")}


UNITS = """
[[input]]
name = "visits"
topic = "visits"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "visits"
key = ["page"]
window = { length = "1h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
budget = { epsilon = 4.0, delta = 1e-6 }
mechanism = { kind = "histogram", bound = "per-key", per_key = 1, budget = 2 }
"""


@pytest.mark.thorough
def test_plan_and_simulation_compare_distinct_units_with_distinct_units(tmp_path: Path) -> None:
    """Units visit each of three pages twenty times; the bound allows two pages."""
    rows = [
        {"user": f"u{n % 300}", "page": f"p{(n // 300 + n) % 3}", "t": ORIGIN + n * 100_000}
        for n in range(300 * 60)
    ]
    config = loads(UNITS, environ={})
    report = simulate(config, rows, "visits", bytes(32))[0]["pages"]
    total = report.windows[0]["figures"]["count"]["total"]
    assert report.counted == "distinct units (unit)" and total == pytest.approx(1 / 3, abs=0.1)
    assert report.cut == pytest.approx(1 / 3, abs=0.001)
    path = tmp_path / "visits.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    deployment = compile_config(config)
    (source,) = deployment.inputs
    records = read_records(source.pipelines[0], source, (), path)
    way = Search(source.pipelines[0], config.pipeline[0], records).answer(path).ways[0]
    assert way.as_given is not None and way.as_given.score == pytest.approx(total, abs=0.05)
    assert way.as_given.cut == pytest.approx(1 / 3, abs=0.001) and way.best.score < 0.1


def test_a_small_bound_over_records_still_counts_records() -> None:
    text = UNITS.replace(', bound = "per-key", per_key = 1, budget = 2', ", budget = 1")
    rows = [{"user": f"u{n % 99}", "page": "p", "t": ORIGIN + n} for n in range(990)]
    report = simulate(loads(text, environ={}), rows, "visits", bytes(32))[0]["pages"]
    assert report.counted == "records" and report.cut == pytest.approx(0.9)
    assert report.windows[0]["figures"]["count"]["total"] == pytest.approx(0.9, abs=0.05)
