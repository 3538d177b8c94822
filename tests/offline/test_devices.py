"""Simulated devices: values under local privacy become reports before the stages see them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.group import hush
from hushstream.client import Budget, Client, ReportStore, Survey, published_threshold
from hushstream.client.survey import RANGE, VALUE
from hushstream.errors import ConfigError
from hushstream.mechanisms.topl.estimate import Buckets, mean
from hushstream.offline import devices
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import Config, loads

from ..support import DAY, HOUR, ORIGIN, SECRET

SURVEY = """
[deployment]
name = "test"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "slot", format = "epoch_s" }
"""
TRIPS = """
[[pipeline]]
name = "{name}"
input = "events"
unit_name = "user"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
epoch = "2d"
budget = {{ epsilon = 8.0 }}
aggregate = [{{ kind = "mean", field = "trip.minutes", low = 0, high = 400, grid = 0.01 }}]
[pipeline.mechanism]
kind = "topl"
reports = 2
period = 172800
share = "1/4"
buckets = 64
rounds = 1
"""


def survey_text(*names: str) -> str:
    return SURVEY + "".join(TRIPS.format(name=name) for name in names or ("p",))


def survey_config(*names: str) -> Config:
    return loads(survey_text(*names), environ={})


def values(n: int, seed: int = 0, days: int = 2) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"user": f"u{i}", "slot": ORIGIN // 1_000_000 + int(rng.integers(days * 86_400)),
         "trip": {"minutes": float(rng.gamma(3, 4)), "to": "x"}}
        for i in range(n)
    ]  # fmt: skip


def survey_pipeline(config: Config) -> tuple[Any, Any]:
    (source,) = compile_config(config).inputs
    return source, source.pipelines[0]


def test_values_become_reports_and_it_says_so():
    data = values(4000)
    reports, engine = simulate(survey_config(), data, "events", SECRET)
    report = reports["p"]
    assert "perturbed as devices would do it (definition: local)" in report.note
    assert [w["values"] for w in report.windows] == [
        sum((r["slot"] * 1_000_000 - ORIGIN) // DAY == d for r in data) for d in (0, 1)
    ]
    for window in report.windows:
        assert abs(window["mean"] - window["truth"]) < 5 * window["stddev"] < 0.1 * 400
    counts = report.counts
    assert counts["reported"] + counts["no threshold yet"] == len(data)
    assert counts["accepted"] == counts["reported"]
    # only the value group, in each window's first six hours
    assert counts["no threshold yet"] == pytest.approx(len(data) / 4 * 3 / 4, rel=0.2)
    manifests = [json.loads(o.value or b"") for o in engine.outs["hush.p.releases.v1"]
                 if b"hush.manifest" in (o.value or b"")]  # fmt: skip
    assert len(manifests) == 8
    for body in manifests:
        privacy = body["privacy"]
        assert privacy["definition"] == "local" and privacy["neighbouring"] == "replace_value"
        assert (privacy["epsilon"], privacy["epsilon_report"], privacy["reports"]) == (8, 4, 2)
        assert len(body["public"]["theta"]) == 1  # chosen at the first trigger of its window


def test_devices_learn_the_range_and_then_the_threshold():
    """With two rounds of six hours, a narrow device is silent until its window has a range."""
    data = values(6000)
    config = loads(survey_text().replace("rounds = 1", "rounds = 2"), environ={})
    reports, engine = simulate(config, data, "events", SECRET)
    bodies = [json.loads(o.value or b"") for o in engine.outs["hush.p.releases.v1"]]
    told = [body["public"] for body in bodies if "manifest" in body["schema"]]
    assert ["range" in one for one in told] == [True] * 8
    assert ["theta" in one for one in told] == [False, True, True, True] * 2
    counts = reports["p"].counts
    assert counts["accepted"] == counts["reported"]
    # an eighth of the users waits for a quarter of the day, three quarters for half of it
    waiting = len(data) * (1 / 8 / 4 + 3 / 4 / 2)
    assert counts["no threshold yet"] == pytest.approx(waiting, rel=0.1)
    for window in reports["p"].windows:
        assert abs(window["mean"] - window["truth"]) < 5 * window["stddev"] < 0.05 * 400


def test_no_report_holds_a_value_and_none_is_made_without_a_threshold():
    config, data = survey_config(), values(300)
    source, pipeline = survey_pipeline(config)
    crowd = devices.crowd(source, pipeline, data, SECRET)
    told = devices.Told(np.arange(1), np.array([ORIGIN + 6 * HOUR]), np.array([9]))
    made, fates = crowd.report(data, told)
    assert fates["reported"] + fates["no threshold yet"] == 300
    for before, after in zip(data, made, strict=True):
        assert after["trip"] == {"minutes": None, "to": "x"} and before["trip"]["minutes"] > 0
        assert after["survey"] == crowd.survey.number and after["slot"] == before["slot"]
        # devices learn the first window's threshold at six o'clock, and no other
        late = ORIGIN + 6 * HOUR <= after["slot"] * 1_000_000 < ORIGIN + DAY
        if after["group"] == RANGE:
            assert after["theta"] == 0 and 0 <= after["code"] < crowd.survey.square_wave.outputs
        elif late:
            assert after["theta"] == 9 and 0 <= after["code"] < crowd.survey.hybrid.outputs
        else:
            assert after["theta"] == 0 and after["code"] == -1
    again, _ = crowd.report(data, told)
    other, _ = devices.crowd(source, pipeline, data, bytes(32)).report(data, told)
    assert again == made and sum(a["code"] != b["code"] for a, b in zip(made, other, strict=True))


def client_reports(
    survey: Survey, group: int, slot: int, value: int, theta: int | None = None, salt: str = "s"
) -> list[dict[str, Any]]:
    """Reports of sixty users of one group, made by the real client."""
    users = [f"{salt}{i}" for i in range(999) if survey.group(f"{salt}{i}") == group][:60]
    with ReportStore(":memory:", Budget(Fraction(1000))) as store:
        client = Client(survey, store)
        return [json.loads(client.report(user, slot, value, theta)) for user in users]


def test_reports_are_aggregated_as_they_are():
    """Reports of the real client count once per slot; those of another survey do not count."""
    config = survey_config()
    _, pipeline = survey_pipeline(config)
    survey = devices.survey_of(pipeline)
    slot = ORIGIN // 1_000_000
    own = client_reports(survey, RANGE, slot, 10)
    foreign = client_reports(replace(survey, salt="another"), RANGE, slot, 400)
    reports, engine = simulate(config, [*own, *own, *foreign], "events", SECRET)
    assert "aggregated as they are" in reports["p"].note
    assert reports["p"].counts["accepted"] == 60
    assert reports["p"].counts["seen"] == 120  # those of another survey are not counted
    first = json.loads(engine.outs["hush.p.releases.v1"][0].value or b"")
    # Noise may carry the mean out of the range of values; then a row shows the nearer end.
    assert first["values"]["mean"]["value"] == said(survey, own)


def said(survey: Survey, reports: list[dict[str, Any]]) -> float:
    """The mean of reports in exact arithmetic, on the grid, and cut to [0, B] as in releases."""
    columns = [np.array([r[name] for r in reports]) for name in ("group", "theta", "code")]
    exact, _ = mean(survey, Buckets(*columns, np.ones(len(reports), np.int64)))
    return min(max(float(round((exact or 0) * 100) / Fraction(100)), 0.0), float(survey.bound))


def test_reports_count_for_the_threshold_of_their_window_and_the_group_of_their_unit():
    config = survey_config()
    _, pipeline = survey_pipeline(config)
    survey, slot = devices.survey_of(pipeline), ORIGIN // 1_000_000
    ranged = client_reports(survey, RANGE, slot, 10)
    _, engine = simulate(config, ranged, "events", SECRET)
    (theta,) = {published_threshold(o.value or b"", survey, slot) or 0
                for o in engine.outs["hush.p.releases.v1"]} - {0}  # fmt: skip
    later = slot + 7 * 3600
    good = client_reports(survey, VALUE, later, 10, theta)
    lies = [
        *client_reports(survey, VALUE, later, 400, theta % 64 + 1, "x"),
        *client_reports(survey, VALUE, slot, 400, theta, "y"),  # before the threshold was known
        *client_reports(survey, VALUE, slot, 400, theta, "z"),
    ]
    for report in lies[120:]:  # the value group reports for the range group
        report |= {"group": RANGE, "theta": 0, "code": survey.square_wave.outputs - 1}
    clean, _ = simulate(config, ranged + good, "events", SECRET)
    _, engine = simulate(config, ranged + good + lies, "events", SECRET)
    rows = [json.loads(o.value or b"") for o in engine.outs["hush.p.releases.v1"]]
    means = [row["values"]["mean"]["value"] for row in rows if "values" in row]
    assert means == [said(survey, ranged)] + [said(survey, ranged + good)] * 3
    assert clean["p"].counts["accepted"] == 120


def test_a_device_makes_so_many_reports_in_a_period_and_no_more():
    begin = ORIGIN // 1_000_000 - ORIGIN // 1_000_000 % 172_800
    data = [{"user": "u", "slot": begin + hour * 3600, "trip": {"minutes": 1.0}}
            for hour in (0, 30, 30, 40, 47, 48, 60, 70)]  # fmt: skip
    source, pipeline = survey_pipeline(survey_config())
    told = devices.Told(np.arange(-1, 3), np.full(4, ORIGIN - 9 * DAY), np.full(4, 9))
    _, fates = devices.crowd(source, pipeline, data, SECRET).report(data, told)
    assert fates == {"reported": 5, "no report left": 3}  # the second at hour 30 is a retry


def test_without_a_slot_the_time_in_seconds_takes_its_place():
    text = SURVEY.replace('field = "slot", format = "epoch_s"', 'field = "t", format = "epoch_us"')
    trips = TRIPS.format(name="p").replace("period = 172800\n", "")  # slots could be anything
    source, pipeline = survey_pipeline(loads(text + trips, environ={}))
    data = [{"user": "u", "t": ORIGIN + 1_500_000, "trip": {"minutes": 1.0}}]
    crowd = devices.crowd(source, pipeline, data, SECRET)
    assert crowd.slot.tolist() == [ORIGIN // 1_000_000 + 1]
    assert not len(devices.crowd(source, pipeline, [data[0] | {"slot": 0.5}], SECRET).row)


@pytest.mark.parametrize("value", ["many", None, True, float("nan"), float("inf"), [1]])
def test_values_that_are_none_are_bad_records(value):
    data = [*values(40), {"user": "u", "slot": ORIGIN // 1_000_000, "trip": {"minutes": value}}]
    counts = simulate(survey_config(), data, "events", SECRET)[0]["p"].counts
    assert sum(n for name, n in counts.items() if name.startswith("invalid:")) == 1
    assert counts["reported"] + counts.get("no threshold yet", 0) == 40


def test_values_of_two_surveys_are_refused():
    with pytest.raises(ConfigError, match="'p' and 'q' are surveys of one input"):
        simulate(survey_config("p", "q"), values(3), "events", SECRET)


def test_the_command_says_what_was_done_to_the_values(tmp_path: Path, capsys):
    toml, file = tmp_path / "hush.toml", tmp_path / "d.jsonl"
    toml.write_text(SURVEY + TRIPS.format(name="p"))
    file.write_text("\n".join(json.dumps(row) for row in values(200)))
    command = ["-c", str(toml), str(file), "--seed", "1"]
    hush.main(["simulate", *command], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "definition: local" in shown and "truth" in shown
    hush.main(["simulate", *command, "--json"], standalone_mode=False)
    body = json.loads(capsys.readouterr().out)["p"]
    assert "definition: local" in body["note"] and body["windows"][0]["truth"]
    hush.main(["plan", "-c", str(toml), "--json"], standalone_mode=False)
    (plan,) = json.loads(capsys.readouterr().out)["pipelines"]
    assert (plan["definition"], plan["epsilon_report"], plan["reports"]) == ("local", 4, 2)
    asked = Survey.from_json(json.dumps(plan["survey"]))
    assert asked == devices.survey_of(survey_pipeline(survey_config())[1])
    hush.main(["plan", "-c", str(toml)], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "ε=4 per report, at most 2 reports of one user" in shown and "never leave" in shown
