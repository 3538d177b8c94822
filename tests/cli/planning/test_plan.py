"""A plan states what will be paid, and a simulation what files would release.

Covers: cli/planning/simulate.py, offline/files.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.options import Flags, release_topic
from hushstream.cli.planning.plan import cost_parts, describe
from hushstream.topics.config.load import loads

from ...agents.deployment.test_sharing import text as shared
from ...recorded.pipelines import COMMON, HEAD, SETTINGS, WINDOW
from ..bench import ROWS, typed, write


def test_plan_says_what_will_be_paid(folder):
    code, out, _ = typed("plan")
    assert code == 0
    for word in ("pages", "ε=8", "δ=0.0001", "32 epochs charged", "noise of count", "one user"):
        assert word in out
    code, out, _ = typed("plan", "--json")
    (body,) = json.loads(out)["pipelines"]
    assert (body["pipeline"], body["epsilon"], body["triggers"]) == ("pages", 8.0, 4)
    assert body["noise"]["count"] > 0 and body["mu2"] > 0 and "histogram" in body


def test_plan_says_what_a_unit_loses_at_most_and_how_long_that_lasts(folder):
    cap = 'pipeline.pages.budget.per_unit={ epsilon = 20, delta = 1e-3, period = "10d" }'
    code, out, _ = typed("plan", "--set", cap)
    assert code == 0
    said = " ".join(out.replace("│", " ").split())
    assert "cap per user ε=20, δ=0.001 over 10d, however many epochs there are" in said
    (body,) = json.loads(typed("plan", "--json", "--set", cap)[1])["pipelines"]
    assert 2 < body["per_unit_bounds"] < 10 and body["per_unit_epochs"] == 10
    assert body["kept_of_full_bounds"] == body["per_unit_bounds"] / 10
    share = f"{100 * body['kept_of_full_bounds']:.3g} %"
    assert f"kept of one that uses it up in every epoch: {share}" in said
    assert (body["per_unit_epsilon"], body["per_unit_delta"]) == (20, 0.001)
    (body,) = json.loads(typed("plan", "--json")[1])["pipelines"]
    assert "per_unit_bounds" not in body and "per_unit_epsilon" not in body


def test_pipelines_that_share_a_budget_pay_it_once(folder):
    (folder / "hush.toml").write_text(shared("a = 1, b = 1", ("a", "b")))
    code, out, _ = typed("plan")
    said = " ".join(out.replace("│", " ").split())
    assert code == 0 and "its share of the budget people, ε=1, δ=1e-06 for a and b together" in said
    assert "together they charge a unit at most ε=1 if it is active" in said


def test_a_plan_says_how_shorter_windows_of_the_calendar_end(folder):
    day = '{ length = "1 day", zone = "Europe/Berlin" }'
    more = ("--set", f"pipeline.pages.window={day}", "--set", "pipeline.pages.triggers.every=6h")
    more += ("--set", 'pipeline.pages.mechanism={ kind = "histogram", min_users = 5 }')
    code, out, _ = typed("plan", *more)
    assert code == 0, out
    said = " ".join(out.replace("│", " ").split())
    (body,) = json.loads(typed("plan", "--json", *more)[1])["pipelines"]
    own, bars = body["histogram"], body["histogram"]["threshold"]
    assert body["triggers"] == 5 and bars[3] > bars[4]
    noise = own["noise_stddev"][3][0]
    told = f"end at trigger 4, with at most: count ±{noise:.4g}, threshold of a key {bars[3]:.4g}"
    assert f"shorter windows {told}" in said
    assert "last trigger of the longest windows" in said and "and at least 5 × user" in said
    assert "shorter windows" not in typed("plan")[1]


def test_all_rows_on_noise_agree_in_name_and_unit(folder):
    summed = 'kind = "sum", field = "price", low = 0, high = 100, grid = 0.01'
    more = ("--set", f"pipeline.pages.aggregate=[{{ {summed} }}]")
    said = " ".join(typed("plan", *more)[1].replace("│", " ").split())
    noise = json.loads(typed("plan", "--json", *more)[1])["pipelines"][0]["noise"]["sum:price"]
    assert f"noise of sum_price ±{noise:.4g} (" in said
    assert re.search(rf"noise over time sum_price ±\S+ at the first trigger … ±{noise:.4g} ", said)


def test_a_window_without_an_end_has_no_other_epochs(folder):
    window = 'pipeline.pages.window={ endless = true, origin = "2026-01-01T00:00:00Z" }'
    code, out, _ = typed("plan", "--set", window)
    said = " ".join(out.replace("│", " ").split())
    assert code == 0 and "over many epochs there is one, and its cost is for all" in said
    assert "30 epochs" not in said and "epochs charged" not in said


def test_a_plan_of_one_pipeline_tells_programs_of_that_one_alone(folder):
    view = '\n[[view]]\nname = "top"\nsource = "a"\nlimit = 3\n'
    (folder / "hush.toml").write_text(shared("a = 1, b = 1", ("a", "b")) + view)
    for name, views in (("a", ["top"]), ("b", [])):
        body = json.loads(typed("plan", "--json", "--pipeline", name)[1])
        assert [one["pipeline"] for one in body["pipelines"]] == [name]
        assert [one["view"] for one in body.get("views", [])] == views
    assert len(json.loads(typed("plan", "--json")[1])["pipelines"]) == 2


def test_a_configuration_without_a_pipeline_is_said_to_have_none(folder):
    text = (folder / "hush.toml").read_text()
    (folder / "hush.toml").write_text(text.partition("[[pipeline]]")[0])
    code, out, _ = typed("plan")
    said = " ".join(out.split())
    assert code == 0 and "warning: there is no [[pipeline]]: nothing will be released" in said
    assert "No record was read" not in said
    (warning,) = json.loads(typed("plan", "--json")[1])["warnings"]
    assert warning == "there is no [[pipeline]]: nothing will be released"
    assert typed("plan", "--shape", "users=5,records=5,keys=3")[0] == 0
    assert "'x' is unknown; expected one of none" in " ".join(
        typed("plan", "--pipeline", "x")[2].split()
    )


def test_views_cost_nothing(folder):
    before = json.loads(typed("plan", "--json")[1])
    with (folder / "hush.toml").open("a") as file:
        file.write('\n[[view]]\nname = "top"\nsource = "pages"\nlimit = 3\n')
    code, out, _ = typed("plan")
    assert code == 0 and "view top: count; computed from what pages released" in out
    after = json.loads(typed("plan", "--json")[1])
    assert after.pop("views") == [{"view": "top", "source": "pages", "epsilon": 0}]
    assert after == before | {
        "topics": before["topics"] + 2,
        "partitions": before["partitions"] + 2,
        "least_partitions": before["least_partitions"] + 2,
    }
    assert release_topic(Flags("hush.toml"), "top").topic == "hush.top.releases.v1"


def parts(case: str) -> list[str]:
    text = HEAD.format(partitioner="none") + COMMON.format(name=case, window=WINDOW)
    (p,) = compile_config(loads(text + SETTINGS[case], environ={})).pipelines
    return list(cost_parts(p, describe(p)))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("histogram-plain", ["μ²=0.665635: Gaussian noise; all releases with one user and",
                             "ε=5.11e-07: noise is drawn on a grid",
                             "δ=5e-07: the chance that a key which one user alone has appears"]),
        ("histogram-public", ["μ²=0.702007: Gaussian", "ε=1.52e-07: noise is drawn on a grid",
                              "δ=2.02e-30: drawn noise is not quite exact"]),
        ("phdstream", []),
        ("pak-matrix", ["δ=1e-06: noise that has a δ of its own"]),
        ("tops", ["δ=4.11e-30: drawn noise is not quite exact"]),
    ],
)  # fmt: skip
def test_each_part_of_the_cost_is_said_in_words(case: str, said: list[str]) -> None:
    found = parts(case)
    assert len(found) == len(said)
    assert all(one.startswith(begin) for one, begin in zip(found, said, strict=True)), found


def test_settings_of_flags_and_environment_reach_the_plan(folder, monkeypatch):
    tight = json.loads(typed("plan", "--json", "--set", "pipeline.pages.budget.epsilon=1")[1])
    monkeypatch.setenv("HUSH_PIPELINE__PAGES__BUDGET__EPSILON", "2")
    middle = json.loads(typed("plan", "--json")[1])
    noise = [one["pipelines"][0]["noise"]["count"] for one in (tight, middle)]
    assert [one["pipelines"][0]["epsilon"] for one in (tight, middle)] == [1.0, 2.0]
    assert noise[0] > noise[1]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "arrow", "feather"])
def test_simulate_reads_files_of_every_kind(folder, kind):
    path = folder / f"data.{kind}"
    write(path, ROWS)
    code, out, err = typed("simulate", str(path), "--json", "--seed", "s")
    assert code == 0, err
    body = json.loads(out)["pages"]
    (window,) = body["windows"]
    assert (window["keys"], window["released"], window["records"]) == (2, 2, 400)
    assert body["counts"]["accepted"] == 400
    assert typed("simulate", str(path), "--json", "--seed", "s")[1] == out
    assert typed("simulate", str(path), "--json", "--seed", "other")[1] != out
    code, out, err = typed("simulate", str(path))
    assert "the file needs 4 triggers of 1 window" in err and "4/4 triggers" in err
    assert code == 0 and "released" in out


def test_what_simulate_writes_is_for_nobody_else(folder):
    path = folder / "data.jsonl"
    write(path, ROWS)
    (folder / "there").mkdir(mode=0o755)
    (folder / "there" / "pages.parquet").touch(0o644)
    for name in ("made", "there"):
        out = folder / name
        assert typed("simulate", str(path), "--seed", "s", "--out", str(out))[0] == 0
        assert (out / "pages.parquet").stat().st_mode & 0o777 == 0o600
    assert (folder / "made").stat().st_mode & 0o777 == 0o700


def test_simulate_counts_what_is_bad(folder):
    write(folder / "d.jsonl", [*ROWS, {"user": "u"}, {"user": "u", "page": "", "t": ROWS[0]["t"]}])
    counts = json.loads(typed("simulate", "d.jsonl", "--json")[1])["pages"]["counts"]
    assert counts["invalid:missing_time"] == 1 and counts["invalid:empty_key"] == 1
    assert counts["seen"] == 400


def test_a_wrong_unit_of_time_is_warned_of(folder):
    write(folder / "milli.csv", [row | {"t": row["t"] // 1_000} for row in ROWS])
    write(folder / "good.csv", ROWS)
    for command in (["plan", "--tune", "--sample"], ["simulate"]):
        code, _, err = typed(*command, "milli.csv")
        assert code == 0 and "warning: milli.csv: field 't' is read as microseconds" in err
        assert "set time.format = 'epoch_ms'" in err
    assert "warning" not in typed("simulate", "good.csv")[2]


def test_a_bound_of_one_that_is_given_is_not_called_missing(folder):
    _, out, _ = typed("plan", "--set", 'pipeline.pages.mechanism={ kind = "histogram" }')
    assert "what the bound keeps" in out and "not given" not in out


@pytest.mark.parametrize("before", [None, b"older"])
def test_a_simulation_that_is_interrupted_leaves_no_part_of_a_file(folder, monkeypatch, before):
    def struck(_: object, file: Path) -> None:
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    write(folder / "rows.jsonl", ROWS)
    (out := folder / "out").mkdir()
    if before is not None:
        (out / "pages.parquet").write_bytes(before)
    monkeypatch.setattr("pyarrow.parquet.write_table", struck)
    assert typed("simulate", "rows.jsonl", "--out", "out")[0] == 130
    assert [one.read_bytes() for one in out.iterdir()] == ([] if before is None else [before])
