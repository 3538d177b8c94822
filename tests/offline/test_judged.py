"""Reports: thresholds and dates are those of manifests, hidden keys are counted, gaps are gaps."""

from __future__ import annotations

import json

import pytest
from hushstream.offline.judged import dates, figures, manifests

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
