"""Alerting rules on series of numbers, in Prometheus's own tool: when each fires, and when not.

Covers: deploy/alerts.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hushstream.deploy.alerts import rules, text

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: Debian's package prometheus has it"
)
FINAL = 'hush_final_release_timestamp_seconds{pipeline="p",instance="a"}'
LAST = 'hush_last_release_timestamp_seconds{pipeline="p",instance="a"}'
LEFT = 'hush_budget_remaining_ratio{pipeline="p",instance="%s"}'
REFUSED = 'hush_releases_total{pipeline="p",outcome="refused",mechanism="histogram",instance="a"}'
PUBLISHED = REFUSED.replace("refused", "published")
FIRED = REFUSED.replace("refused", "fired")
BEGAN = 'hush_start_timestamp_seconds{instance="a"}'
MARK = 'hush_watermark_timestamp_seconds{pipeline="p",partition="%s",instance="a"}'
UP = 'up{job="hush-public",instance="a"}'
READY = 'hush_ready{instance="a",process="%s"}'
FAILED = 'hush_ledger_write_failures_total{instance="a"}'
LAG = 'hush_lag_records{store="ingest-trips-0",instance="a"}'
DEAD = 'hush_dead_letters_total{pipeline="p",reason="%s",process="%s",instance="a"}'
LOST = 'hush_loss_alarm{pipeline="p",cause="%s",instance="a"}'
EVENTS = 'hush_events_total{pipeline="p",outcome="%s",instance="a"}'
RESTORED = 'hush_recovery_remaining_records{store="aggregate-p-0",instance="a"}'
ROOM = 'hush_state_free_bytes{instance="a"}'


def delays(samples: int, quick: int) -> dict[str, str]:
    """A histogram with one release per sample, within five seconds or within five minutes."""
    name = 'hush_release_delay_seconds_bucket{pipeline="p",instance="a",le="%s"}'
    steps = {"5": quick, "60": quick, "300": 1, "+Inf": 1}
    return {name % le: f"0+{step}x{samples}" for le, step in steps.items()}


def tried(name: str, wrong: bool) -> dict[str, Any]:
    """One case for promtool; if ``wrong``, it expects one alert too many."""
    alert, series, at, wanted = CASES[name]
    unit = "h" if alert in DAYS else "m"
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    asked = {
        "expr": f'label_replace({firing}, "case", "{name}", "", "")',  # a failure shows the name
        "eval_time": f"{at}{unit}",
        "exp_samples": [{"labels": f'{{case="{name}"}}', "value": wanted + wrong}],
    }
    inputs = [{"series": each, "values": values} for each, values in series.items()]
    return {"interval": f"1{unit}", "input_series": inputs, "promql_expr_test": [asked]}


def judge(folder: Path, wrong: bool) -> str:
    """Run all cases at once; promtool's output names the failed ones."""
    (folder / "rules.yml").write_text(text({"p": 3600.0}))
    files = []
    for unit, days in (("1m", False), ("1h", True)):
        names = [name for name, case in CASES.items() if (case[0] in DAYS) == days]
        body = {
            "rule_files": ["rules.yml"],
            "evaluation_interval": unit,
            "tests": [tried(name, wrong) for name in names],
        }
        files.append(folder / f"{unit}.yml")
        files[-1].write_text(json.dumps(body))
    command = [PROMTOOL or "", "test", "rules", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode != 0) == ("FAILED" in said), said
    return said


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, str]:
    return {wrong: judge(tmp_path_factory.mktemp("rules"), wrong) for wrong in (False, True)}


DAYS = ("BudgetNearlyExhausted", "StateGrowing")  # a sample is an hour there, else a minute
HALF, SPENT = {LEFT % "a": "0.5x300"}, {LEFT % "a": "0x300"}
CASES: dict[str, tuple[str, dict[str, str], int, int]] = {
    "a step of the budget two hours after the start": (
        "BudgetNearlyExhausted", {LEFT % "a": "1x1 0.9667x10"}, 3, 0),
    "a week took a tenth of the budget": (
        "BudgetNearlyExhausted", {LEFT % "a": "0.9x84 0.8x100"}, 172, 0),
    "a week took more than is left": (
        "BudgetNearlyExhausted", {LEFT % "a": "0.9x84 0.4x100"}, 172, 1),
    "two workers see the same, one of them late": (
        "BudgetNearlyExhausted", {LEFT % "a": "0.05x60", LEFT % "b": "0.15x60"}, 50, 1),
    "much is left": ("BudgetNearlyExhausted", {LEFT % "a": "0.5x60"}, 50, 0),
    "the first refusal": ("BudgetRefused", {REFUSED: "0x10 1x60"}, 30, 1),
    "no refusal": ("BudgetRefused", {REFUSED: "0x70"}, 30, 0),
    "no trigger for hours": (
        "ReleaseOverdue", {LAST: "0x300", REFUSED: "0x300"} | HALF,
        200, 1),
    "a trigger each hour": (
        "ReleaseOverdue", {LAST: "0x59 3600x59 7200x59 10800x59"}, 200, 0),
    "no trigger since the budget is exhausted": (
        "ReleaseOverdue", {LAST: "0x300", REFUSED: "0x60 1x240"} | SPENT, 200, 0),
    "no trigger in the last epoch that is paid for": (
        "ReleaseOverdue", {LAST: "0x300", REFUSED: "0x300"} | SPENT,
        200, 1),
    "no trigger after a limit was raised": (
        "ReleaseOverdue", {LAST: "0x300", REFUSED: "1x300"} | HALF,
        200, 1),
    "no trigger since the last one of a retired pipeline": (
        "ReleaseOverdue", {LAST: "0x59 3600x240", FINAL: "3600x300"}, 290, 0),
    "no trigger since the one before the last of a retired pipeline": (
        "ReleaseOverdue", {LAST: "0x300", FINAL: "3600x300"}, 200, 1),
    "little is left to a retired pipeline": (
        "BudgetNearlyExhausted", {LEFT % "a": "0.05x60", FINAL: "3600x60"}, 50, 0),
    "little is left to a pipeline that will be retired": (
        "BudgetNearlyExhausted", {LEFT % "a": "0.05x60", FINAL: "360000x60"}, 50, 1),
    "one partition of two is stalled": (
        "WatermarkStalled", {MARK % 0: "0+60x60", MARK % 1: "0x60"}, 50, 1),
    "all partitions move": (
        "WatermarkStalled", {MARK % 0: "0+60x60", MARK % 1: "0+60x60"}, 50, 0),
    "a worker that cannot be scraped": ("WorkerDown", {UP: "1x5 0x20"}, 15, 1),
    "no worker is known any more": ("WorkerDown", {UP: "1x5 stale"}, 15, 1),
    "a worker that can be scraped": ("WorkerDown", {UP: "1x20"}, 15, 0),
    "one process of two is not ready": (
        "WorkerNotReady", {READY % 0: "1x20", READY % 1: "0x20"}, 10, 1),
    "a process becomes ready after four minutes": (
        "WorkerNotReady", {READY % 0: "0x4 1x20"}, 10, 0),
    "the clock loses one transaction": ("LedgerWriteFailed", {FAILED: "0x10 1x20"}, 15, 0),
    "it loses two, as a rolling restart may do": (
        "LedgerWriteFailed", {FAILED: "0x10 1x3 2x20"}, 18, 0),
    "it loses one every two minutes": (
        "LedgerWriteFailed", {FAILED: "0x10 1 1 2 2 3 3 4 4 5 5 6 6"}, 20, 1),
    "two owners lose some in turn": (
        "LedgerWriteFailed", {FAILED: "0x5 1x5 2x9", FAILED.replace('"a"', '"b"'): "0x8 1x2 2x9"},
        16, 1),
    "it lost many an hour ago": ("LedgerWriteFailed", {FAILED: "0x10 9x90"}, 80, 0),
    "a worker that starts each minute": ("WorkerRestarting", {BEGAN: "0+60x60"}, 30, 1),
    "a worker that was restarted twice": ("WorkerRestarting", {BEGAN: "0x10 600x3 900x60"}, 15, 0),
    "triggers fire and nothing appears": (
        "FiredNotPublished", {FIRED: "0+1x60", PUBLISHED: "0x60"}, 50, 1),
    "a worker that starts again fires and publishes nothing": (
        "FiredNotPublished", {FIRED: "0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5 0 5",
                              PUBLISHED: "0x60"}, 29, 1),
    "each trigger appears a minute later, in two shards": (
        "FiredNotPublished", {FIRED: "0x5 1x60", PUBLISHED: "0x6 2x60"}, 30, 0),
    "nothing is due": ("FiredNotPublished", {FIRED: "7x60", PUBLISHED: "7x60"}, 50, 0),
    "a shard lags for half an hour": ("ConsumerLagGrowing", {LAG: "200000x60"}, 30, 1),
    "a shard lags for a moment": ("ConsumerLagGrowing", {LAG: "0x20 900000x3 0x60"}, 30, 0),
    "two bad records a second, in two processes": (
        "DeadLettersRising",
        {DEAD % ("malformed", 0): "0+60x60", DEAD % ("malformed", 1): "0+60x60"}, 30, 1),
    "a bad record a minute, for each of two reasons": (
        "DeadLettersRising", {DEAD % ("malformed", 0): "0+1x60", DEAD % ("null", 0): "0+1x60"},
        30, 0),
    "many records are lost": ("RecordsLost", {LOST % "cut": "0x5 1x20"}, 10, 1),
    "few records are lost": ("RecordsLost", {LOST % "cut": "0x20", LOST % "late": "0x20"}, 10, 0),
    "records come from the future": ("ClockSkewEvents", {EVENTS % "future": "0+1x60"}, 40, 1),
    "records come from the past": (
        "ClockSkewEvents", {EVENTS % "future": "0x60", EVENTS % "late": "0+9x60"}, 40, 0),
    "releases take minutes": ("ReleasesSlow", delays(60, quick=0), 50, 1),
    "releases take seconds": ("ReleasesSlow", delays(60, quick=1), 50, 0),
    "a table is not restored": ("RecoveryStuck", {RESTORED: "9000x60"}, 40, 1),
    "a table is being restored": ("RecoveryStuck", {RESTORED: "9000-100x60"}, 40, 0),
    "all tables are restored": ("RecoveryStuck", {RESTORED: "0x60"}, 40, 0),
    "a disk of 100 GB loses a gigabyte an hour": ("StateGrowing", {ROOM: "1e11-1e9x40"}, 20, 1),
    "a disk of 10 TB loses a gigabyte an hour": ("StateGrowing", {ROOM: "1e13-1e9x40"}, 20, 0),
    "a small disk that is used evenly": ("StateGrowing", {ROOM: "5e8x40"}, 20, 0),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_only_then(name: str, verdicts: dict[bool, str]) -> None:
    assert f'"{name}' not in verdicts[False].replace("\\", ""), verdicts[False]
    assert f'"{name}' in verdicts[True].replace("\\", "")


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    named = {r["alert"] for g in rules({"p": 3600.0})["groups"] for r in g["rules"]}
    assert named == {alert for alert, _, _, wanted in CASES.values() if wanted}
    assert named == {alert for alert, _, _, wanted in CASES.values() if not wanted}


def test_the_rules_are_valid(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(text({"p": 3600.0, "q": 60.0}))
    command = [PROMTOOL or "", "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
