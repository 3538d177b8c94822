"""Alerting rules: valid YAML, limits that follow the schedules, one rule for all pipelines.

Covers: cli/topics.py
"""

from __future__ import annotations

import re

import pytest
import yaml
from hushstream.cli.topics import gaps
from hushstream.deploy.alerts import RUNBOOKS, limit, rules, text
from hushstream.topics.config.load import loads
from hypothesis import given
from hypothesis import strategies as st

from ..tree import ROOT

CONFIG = """
[[input]]
name = "i"
topic = "t"
unit = "u"
time = { format = "record" }
"""
PIPELINE = """
[[pipeline]]
name = "NAME"
input = "i"
key = ["k"]
window = { length = "1d", origin = 2019-03-01T00:00:00Z }
triggers = { every = "6h" }
budget = { epsilon = 1.0, delta = 1e-6 }
"""

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)


@given(st.dictionaries(NAMES, st.floats(0.5, 1e7), max_size=4))
def test_the_file_says_what_the_rules_are(found):
    assert yaml.safe_load(text(found)) == rules(found)
    named = [r["alert"] for g in rules(found)["groups"] for r in g["rules"]]
    assert len(set(named)) == len(named)
    assert ("ReleaseOverdue" in named) == bool(found)


def overdue(found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Limit and look-back range of each pipeline, both in seconds."""
    (rule,) = (r for g in rules(found)["groups"] for r in g["rules"] if "Overdue" in r["alert"])
    parts = rule["expr"].removeprefix("(").partition(") unless ")[0].split(" or ")
    pattern = r'time\(\) - max by .*pipeline="(.+)"}\[(\d+)s\]\)\) > (\d+)'
    matched = [re.fullmatch(pattern, part) for part in parts]
    return {m[1]: (float(m[3]), float(m[2])) for m in matched if m is not None}


def test_each_pipeline_has_a_limit_of_its_own_that_waits_for_its_next_trigger():
    found = {"daily": 86_400.0, "quick": 1.0}
    limits = overdue(found)
    assert limits["daily"][0] == 129_600 and limits["quick"][0] == 61
    for name, (most, reach) in limits.items():
        assert most > found[name] and reach > 2 * most
        assert most == limit(found[name])


def pipelines(*changes: tuple[str, str, str]) -> dict[str, float]:
    made = CONFIG
    for name, old, new in changes:
        assert old in PIPELINE
        made += PIPELINE.replace("NAME", name).replace(old, new)
    return gaps(loads(made, environ={}))


def test_gaps_follow_the_schedule_and_external_ones_have_none():
    found = pipelines(
        ("plain", "key", "key"),
        ("cron", '{ every = "6h" }', '{ cron = "0 9,17 * * *", count = 3 }'),
        ("asked", "triggers", 'schedule = "external"\ntriggers'),
        ("late", "triggers", 'lateness = "2h"\ntriggers'),
    )
    assert found == {"plain": 21_600.0, "cron": 16 * 3600.0, "late": 21_600.0}


@pytest.mark.parametrize("name", ["LedgerWriteFailed", "ReleaseOverdue"])
def test_failures_of_what_matters_most_are_critical(name):
    every = [r for g in rules({"p": 60.0})["groups"] for r in g["rules"]]
    (rule,) = (r for r in every if r["alert"] == name)
    assert rule["labels"]["severity"] == "critical"


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    page = (ROOT / RUNBOOKS).read_text()
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))
    every = [r for g in rules({"p": 60.0})["groups"] for r in g["rules"]]
    for rule in every:
        place, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert place == RUNBOOKS and anchor == rule["alert"].lower()
        said = sections[rule["alert"]]
        for part in ("**Means.**", "**Look at.**", "**Do.**"):
            assert part in said, (rule["alert"], part)
    own = {r["alert"] for r in every}
    assert own <= set(sections) and "NoSuchAlert" not in sections


def test_the_page_of_runbooks_may_lie_elsewhere() -> None:
    (rule, *_) = rules({}, "https://wiki.example/hush")["groups"][0]["rules"]
    assert rule["annotations"]["runbook_url"] == "https://wiki.example/hush#workerdown"
    assert yaml.safe_load(text({}, "https://w/x")) == rules({}, "https://w/x")
