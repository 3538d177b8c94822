"""Advice of ``hush plan``: it can be pasted, improves the release, and names its basis.

Covers: mechanisms/planner.py, mechanisms/workload.py
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import entries
from hushstream.mechanisms.histogram.planning import tune as histogram_propose
from hushstream.mechanisms.stated_shape import Shape
from hushstream.planning import search
from hushstream.topics.config.access.secret import write_new_key

from ..bench import typed

CONFIG = """
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[input]]
name = "trips"
topic = "trips"
unit = "trip"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
budget = { epsilon = 3.0, delta = 1e-4 }
feedback_delay = 0
mechanism = { kind = "histogram", budget = 64, debias = false, debias_cap = 90 }
[[pipeline]]
name = "fares"
input = "trips"
aggregate = [ { kind = "sum", field = "fare", low = 0, high = 500, grid = 0.5 } ]
inputs = { time = "t", value = "fare" }
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
budget = { epsilon = 1.0, delta = 1e-6 }
mechanism = { kind = "pak", warmup = 1, expected = 500, slot = 3600000000 }
[[pipeline]]
name = "ranges"
input = "trips"
aggregate = [ { kind = "sum", field = "fare", low = 0, high = 500, grid = 0.5 } ]
inputs = { time = "t", value = "fare" }
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
budget = { epsilon = 1.0, delta = 1e-6 }
mechanism = { kind = "tops", warmup = 4, expected = 500, slot = 3600000000 }
[secret]
noise_key_file = "hush.key"
"""
START, DAY = 1_551_398_400_000_000, 86_400_000_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, values in (("BUDGETS", (2.0, 8.0)), ("SHARES", (0.3, 0.7)), ("AROUND", (1.3,)),
                         ("FACTORIZATIONS", ("terminal", "toeplitz"))):  # fmt: skip
        monkeypatch.setattr(histogram_propose, name, values)  # fewer candidates: quicker
    (tmp_path / "hush.toml").write_text(CONFIG)
    write_new_key(tmp_path / "hush.key")
    work = Shape(users=300, records=2000, keys=20).workload()
    times = np.linspace(START, START + DAY - 1, 2000).astype(int).tolist()
    (tmp_path / "sample.csv").write_text(
        "\n".join(["user,page,t", *(f"u{u},p{k},{t}" for u, k, t in zip(
            work.unit.tolist(), work.key.tolist(), times, strict=True))])
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return tmp_path


def proposed(*words: str) -> dict[str, Any]:
    code, out, err = typed("plan", "--json", *words)
    assert code == 0, err
    return {one["pipeline"]: one["advice"] for one in json.loads(out)["pipelines"]}


def pages(*words: str) -> Any:
    return proposed("--pipeline", "pages", *words)["pages"]


def with_line(folder: Path, kind: str, line: str) -> None:
    """Paste a proposed line into the configuration."""
    lines = (folder / "hush.toml").read_text().split("\n")
    (place,) = (i for i, text in enumerate(lines) if f'kind = "{kind}", ' in text)
    lines[place] = line
    (folder / "hush.toml").write_text("\n".join(lines))


def test_a_sample_gives_settings_that_can_be_pasted_and_are_better(folder: Path) -> None:
    advice = pages("--tune", "--sample", "sample.csv")
    assert advice["sample"]["records"] == 2000 and advice["sample"]["units"] == 300
    assert advice["changed"] and advice["proposed"]["share"] < 0.9 * advice["configured"]["share"]
    shares = [one["share"] for one in advice["candidates"]]
    assert shares == sorted(shares) and len(shares) > 8
    assert advice["proposed"] in advice["candidates"]
    line = tomllib.loads(advice["toml"])["mechanism"]
    assert line["debias_cap"] == 90 and "delay" not in line  # configured, not default
    assert {k: line[k] for k in advice["settings"]} == advice["settings"]
    with_line(folder, "histogram", advice["toml"])
    again = pages("--tune", "--sample", "sample.csv")
    assert again["configured"]["settings"] == advice["settings"]
    assert again["configured"]["share"] == pytest.approx(advice["proposed"]["share"])
    assert again["proposed"]["share"] <= again["configured"]["share"]


@pytest.mark.thorough
def test_a_person_sees_the_warning_the_table_and_the_line(folder: Path) -> None:
    code, out, err = typed("plan", "--pipeline", "pages", "--tune", "--sample", "sample.csv")
    assert code == 0
    plain = " ".join(out.split())
    for text in ("public or synthetic", "do not shrink with a sample", "proposed", "configured",
                 "l1 last", "l1 mean", 'mechanism = { kind = "histogram", '):  # fmt: skip
        assert text in plain
    assert "trying settings of pages" in err and "trying" not in out


@pytest.mark.thorough
def test_a_sample_says_what_a_cap_leaves_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days of the same records, with a purse of a small part of a day's bound."""
    monkeypatch.setattr(search, "WORK", 1)  # no time for the search, which is not tested here
    head, *rows = (folder / "sample.csv").read_text().split("\n")
    later = [f"{row.rpartition(',')[0]},{int(row.rpartition(',')[2]) + DAY}" for row in rows]
    (folder / "sample.csv").write_text("\n".join([head, *rows, *later]))
    cap = "pipeline.pages.budget.per_unit={ epsilon = 0.8, delta = 1e-4 }"
    asked = ("plan", "--pipeline", "pages", "--sample", "sample.csv", "--set", cap)
    code, out, err = typed(*asked, "--json")
    assert code == 0, err
    (body,) = (p for p in json.loads(out)["pipelines"] if p["pipeline"] == "pages")
    found = body["per_unit_forecast"]
    assert found["windows"] == 2 and found["records"] == 4000 and 0.4 < found["kept"] < 0.9
    error = found["errors"]["count"]
    assert error["capped"] > error["uncapped"]
    code, out, err = typed(*asked)
    said = " ".join(out.split())
    assert code == 0 and f"{found['kept']:.1%} is kept of what is accepted" in said, out
    (folder / "sample.csv").write_text("\n".join([head, *rows[:5]]))
    plain = json.loads(typed("plan", "--pipeline", "pages", "--sample", "sample.csv", "--json")[1])
    assert all("per_unit_forecast" not in one for one in plain["pipelines"])


@pytest.mark.thorough
def test_a_shape_takes_the_place_of_a_sample(folder: Path) -> None:
    shape = "users=3e2, records=2_000, keys=20, zipf=0.5, repeat=0.1"
    advice = pages("--shape", shape, "--goal", "mean")
    assert advice["goal"] == "mean" and advice["source"] == "the stated shape"
    assert advice["sample"]["units"] == 300 and advice["sample"]["keys"] <= 20
    best = advice["proposed"]
    assert best["share"] == pytest.approx(best["mean_l1"]["count"] / 2000)
    assert pages("--shape", shape, "--goal", "mean") == advice  # nothing random


def test_a_sample_of_no_use_is_named(folder: Path) -> None:
    few = (folder / "sample.csv").read_text().split("\n")[:6]
    (folder / "few.csv").write_text("\n".join(few))
    advice = pages("--tune", "--sample", "few.csv")
    assert not advice["changed"] and advice["proposed"]["released"] == 0
    assert any("too small" in note for note in advice["notes"])
    assert any("of a window of 1d" in note for note in advice["notes"])
    assert (
        "no change needed:"
        in typed("plan", "--pipeline", "pages", "--tune", "--sample", "few.csv")[1]
    )


@pytest.mark.thorough
def test_streams_of_values_come_with_advice(folder: Path) -> None:
    found = proposed()
    assert found["pages"] is None
    fares, ranges = found["fares"], found["ranges"]
    error = fares["expected_error"]
    assert fares["records"] == 12_000 and fares["clip"] and fares["changed"]
    assert error["proposed"] < error["configured"] and error["proposed"] < error["top"]
    assert fares["scale"] == pytest.approx(500 / 24, rel=0.01)
    assert ranges["slots_per_chunk"] % ranges["slots_per_block"] == 0
    assert (
        ranges["slots_per_chunk"] > ranges["slots_per_block"] and ranges["threshold"]["95%"] <= 500
    )
    assert any("nothing is released before trigger" in note for note in fares["notes"])
    with_line(folder, "pak", fares["toml"])
    again = proposed()["fares"]
    assert again["expected_error"]["configured"] == pytest.approx(error["proposed"])
    assert not again["changed"]
    code, out, _ = typed("plan")
    plain = " ".join(out.split())
    assert code == 0 and "a learnt threshold is better than B = 500" in plain
    assert "error of a running total, as configured" in plain and "no change needed:" in plain


@pytest.mark.thorough
def test_a_forecast_from_a_sample_is_the_only_proposal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WORK", 100_000)  # fewer candidates: quicker
    times = np.linspace(START, START + DAY - 1, 200).astype(int).tolist()
    lines = [f"t{i},{t},{5 + i % 40}" for i, t in enumerate(times)]
    (folder / "fares.csv").write_text("\n".join(["trip,t,fare", *lines]))
    code, out, err = typed("plan", "--pipeline", "fares", "--sample", "fares.csv")
    plain = " ".join(out.split())
    assert code == 0, err
    assert "1. as it is asked for" in plain and "no records were read" not in plain
    assert proposed("--pipeline", "fares", "--sample", "fares.csv")["fares"] is not None


@pytest.mark.thorough
def test_without_records_it_is_told_that_none_were_read_and_what_is_assumed(folder: Path) -> None:
    code, out, _ = typed("plan")
    plain = " ".join(out.split())
    assert code == 0 and "No record was read: bounds, cost, noise and thresholds follow" in plain
    assert "fares: no records were read. Assumed are 12,000 records per window" in plain
    _, shaped, _ = typed("plan", "--shape", "users=30,records=40,keys=3", "--pipeline", "pages")
    assert "No record was read" not in " ".join(shaped.split())


def test_a_pipeline_that_is_named_is_planned_alone(folder: Path) -> None:
    out = typed("plan", "--pipeline", "pages")[1]
    assert "pages: histogram" in out and "fares: pak" not in out
    assert "fares: pak" in typed("plan")[1]


def test_a_sample_that_is_not_there_is_refused_before_anything_is_printed(folder: Path) -> None:
    assert typed("plan", "--sample", "absent.csv")[:2] == (2, "")


def test_the_largest_value_is_advised_where_it_is_better(folder: Path) -> None:
    found = proposed("--pipeline", "fares", "--records", "48", "--tail-scale", "400")
    assert set(found) == {"fares"} and not found["fares"]["clip"]
    line = tomllib.loads(found["fares"]["toml"])["mechanism"]
    assert line["threshold"] == "top" and found["fares"]["scale"] == 400
    with_line(folder, "pak", found["fares"]["toml"])
    _, out, _ = typed("plan", "--pipeline", "fares", "--records", "48", "--tail-scale", "400")
    assert 'take threshold = "top"' in " ".join(out.split())


def test_numbers_are_for_the_pipelines_that_they_describe(folder: Path) -> None:
    plain = proposed()
    found = proposed("--pipeline", "ranges", "--records", "240_000".replace("_", ""))
    assert set(found) == {"ranges"} and found["ranges"]["records"] == 240_000
    assert plain["ranges"]["records"] == 12_000


WRONG = [
    (["--sample", "sample.csv", "--shape", "users=1,records=1,keys=1"], "not both"),
    (["--sample", "absent.csv"], "file not found"),
    (["--sample", "sample.txt"], ".csv"),
    (["--sample", "empty.csv"], "no record"),
    (["--sample", "other.csv"], "no record has the field 'page'"),
    (["--sample", "folder.csv"], "a folder"),
    (["--tune"], "--tune needs a --sample"),
    (["--goal", "mean", "--sample", "sample.csv"], "--goal is for --shape"),
    (["--records", "9", "--sample", "sample.csv"], "--records is a guess, and --sample tells it"),
    (["--tail-scale", "9", "--sample", "sample.csv"], "--tail-scale is a guess"),
    (
        ["--pipeline", "fares", "--tune", "--sample", "sample.csv"],
        "--sample does not apply to fares",
    ),
    (["--records", "100"], "--records does not apply"),
    (["--tail-scale", "nan", "--pipeline", "fares"], "finite"),
    (["--pipeline", "nothing", "--records", "5"], "pipeline 'nothing' is unknown"),
    (["--shape", "users=5"], "records is missing"),
    (["--shape", "users=5,records=2,keys=1"], "at least 5"),
    (["--shape", "user=5"], "'user' is unknown; expected one of users"),
    (["--shape", "users=five"], "is not a number"),
    (["--shape", "users=1.5"], "is not a number"),
]


@pytest.mark.parametrize("words,hint", WRONG, ids=[" ".join(w) for w, _ in WRONG])
def test_what_is_wrong_is_refused_and_says_why(folder: Path, words: list[str], hint: str) -> None:
    (folder / "empty.csv").write_text("user,page,t\n")
    (folder / "folder.csv").mkdir()
    (folder / "other.csv").write_text("a,b\n1,2\n")
    code, _, err = typed("plan", *words)
    assert code == 2 and hint in err and "Traceback" not in err


def test_a_shape_plans_the_pipelines_that_it_describes(folder: Path) -> None:
    own = (
        CONFIG.partition("[[pipeline]]")[2].partition("[[pipeline]]")[0].partition("\n[secret]")[0]
    )
    sums = 'aggregate = [ { kind = "sum", field = "x", low = 0, high = 5 } ]'
    second = own.replace('key = ["page"]', f'key = ["page"]\n{sums}').replace('"pages"', '"sums"')
    (folder / "hush.toml").write_text(CONFIG.replace(own, f"{own}\n[[pipeline]]{second}\n", 1))
    shape = ("--shape", "users=50,records=90,keys=3")
    code, out, err = typed("plan", "--json", *shape)
    told = {one["pipeline"]: one["advice"] for one in json.loads(out)["pipelines"]}
    assert code == 0 and told["pages"] is not None and told["sums"] is None
    assert "'sums' sums values" in err and "the others are planned, and --pipeline NAME" in err
    code, _, err = typed("plan", "--pipeline", "sums", *shape)
    assert code == 2 and "sums values" in err and "the others" not in err
    assert typed("plan", "--pipeline", "pages", *shape)[2].count("sums") == 0


def test_a_shape_says_nothing_of_values_or_other_keys(folder: Path) -> None:
    text = CONFIG.replace('key = ["page"]', 'key = ["page"]\npublic_keys = ["a", "b"]', 1)
    (folder / "hush.toml").write_text(text)
    assert "2 public keys" in typed("plan", "--shape", "users=5,records=5,keys=3")[2]
    sums = '[ { kind = "sum", field = "x", low = 0, high = 5 } ]'
    text = CONFIG.replace('key = ["page"]', f'key = ["page"]\naggregate = {sums}', 1)
    (folder / "hush.toml").write_text(text)
    assert "sums values" in typed("plan", "--shape", "users=5,records=5,keys=3")[2]
    sums = '[ { kind = "sum", field = "session_events", low = 0, high = 5 } ]'
    more = f'session = "1h"\nlateness = "1h"\naggregate = {sums}'
    (folder / "hush.toml").write_text(
        CONFIG.replace('key = ["page"]', f'key = ["page"]\n{more}', 1)
    )
    assert "sums values" in typed("plan", "--shape", "users=5,records=5,keys=3")[2]


@pytest.mark.thorough
def test_epochs_of_several_windows_are_played_or_told(folder: Path) -> None:
    (folder / "hush.toml").write_text(CONFIG.replace("feedback_delay = 0", 'epoch = "3d"'))
    advice = pages("--shape", "users=50,records=200,keys=4")
    assert advice["sample"]["windows"] == 3 and advice["sample"]["records"] == 600
    assert not any("epoch" in note for note in advice["notes"])
    notes = pages("--tune", "--sample", "sample.csv")["notes"]
    assert any("3 windows of an epoch share one bound" in note for note in notes)


def test_the_help_warns_of_the_protected_stream() -> None:
    plain = " ".join(typed("plan", "--help")[1].split())
    assert "PUBLIC OR SYNTHETIC data only" in plain and "--shape" in plain
    wanted = {name for name, entry in entries().items() if entry.planner}
    assert wanted == {"histogram", "pak", "phdstream", "privhp", "quantile", "topl", "tops"}


def test_a_pipeline_that_is_named_has_the_only_table(folder: Path) -> None:
    names = [one["pipeline"] for one in json.loads(typed("plan", "--json")[1])["pipelines"]]
    _, out, _ = typed("plan", "--pipeline", names[0])
    assert f"{names[0]}: " in out and len(names) > 1
    assert not any(f"\n{one}: " in f"\n{out}" for one in names[1:])
