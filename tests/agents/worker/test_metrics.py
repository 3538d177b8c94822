"""Metrics: budget figures from the ledger alone, and operator figures that add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.model import Lifetime
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from hushstream.mechanisms import catalogue
from hushstream.mechanisms.accounting.composition import Spent, charge_of, room
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.parts.bounds.lifetime import Cap
from hypothesis import given
from hypothesis import strategies as st

from ...support import deployment, trigger
from ...tree import ROOT

P = replace(deployment().pipelines[0], limit_epsilon=Fraction(80), limit_delta=Fraction(1, 100))
ONE = charge_of(P.epsilon, P.delta, P.mechanism.cost())
UNIT = {"pipeline": "p", "unit": "user"}


def charged(epochs: int) -> Ledger:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {}).encode())
    for epoch in range(epochs):
        ledger.take(ledger.next("charge", 1, charge_body(P, epoch, "1.0", "key")).encode())
    return ledger


@given(st.integers(0, 10))
def test_what_was_spent_is_a_multiple_of_the_charge(epochs):
    metrics = PublicMetrics()
    metrics.declare(P)
    metrics.spent(P, charged(epochs))
    read = metrics.series.get_sample_value
    together = Spent().plus(ONE, epochs).composed()
    assert read("hush_epsilon_spent", UNIT) == float(together)
    assert float(together) <= 8.0 * epochs * (1 if epochs < 2 else 0.8)
    assert read("hush_epsilon_sum", UNIT) == 8.0 * epochs
    assert read("hush_delta_spent", UNIT) == float(P.delta * epochs)
    assert read("hush_epsilon_limit", UNIT) == 80.0 and read("hush_delta_limit", UNIT) == 0.01
    most = room(Spent(), ONE, P.limit_epsilon, P.limit_delta, 1000)
    assert 20 < most < 1000
    assert read("hush_budget_remaining_ratio", {"pipeline": "p"}) == (most - epochs) / most
    assert read("hush_noise_stddev", {"pipeline": "p", "level": "count"}) > 0


def test_triggers_and_refusals_are_counted_by_schedule():
    metrics = PublicMetrics()
    one = trigger(P, 3, [1000])
    metrics.triggered(P, one)
    metrics.triggered(P, one)
    metrics.refused(P)
    metrics.declare(P)
    metrics.published("p")
    read = metrics.series.get_sample_value
    labels = {"pipeline": "p", "mechanism": "histogram"}
    assert read("hush_releases_total", labels | {"outcome": "fired"}) == 2
    assert read("hush_releases_total", labels | {"outcome": "published"}) == 1
    assert read("hush_releases_total", labels | {"outcome": "refused"}) == 1
    assert read("hush_last_release_timestamp_seconds", {"pipeline": "p"}) == one.scheduled / 1e6


def test_a_worker_without_a_limit_shows_none():
    metrics = PublicMetrics()
    metrics.declare(replace(P, limit_epsilon=None, limit_delta=None))
    metrics.spent(replace(P, limit_epsilon=None, limit_delta=None), charged(3))
    assert metrics.series.get_sample_value("hush_epsilon_limit", UNIT) is None
    assert not any("_cap" in m.name and m.samples for m in metrics.series.collect())
    assert metrics.series.get_sample_value("hush_budget_remaining_ratio", {"pipeline": "p"}) is None


def test_the_cap_of_each_unit_is_shown():
    metrics = PublicMetrics()
    cap = Lifetime(Fraction(8), Fraction(1, 10**8), None, ("p", "q"), Fraction(5), Cap(20))
    year = replace(cap, period=365 * 86_400_000_000)
    for lifetime, period in ((cap, "for good"), (year, "365d")):
        metrics.declare(replace(P, lifetime=lifetime))
        told = UNIT | {"period": period, "members": "p + q"}
        read = metrics.series.get_sample_value
        assert read("hush_epsilon_cap", told) == 8 and read("hush_delta_cap", told) == 1e-8


def test_the_limit_that_is_nearer_decides_what_remains():
    metrics = PublicMetrics()
    tight = replace(P, limit_epsilon=None, limit_delta=4 * P.delta)
    metrics.spent(tight, charged(3))
    left = metrics.series.get_sample_value
    assert left("hush_budget_remaining_ratio", {"pipeline": "p"}) == 0.25
    metrics.spent(replace(tight, limit_epsilon=P.epsilon), charged(1))
    assert left("hush_budget_remaining_ratio", {"pipeline": "p"}) == 0


def test_every_outcome_is_there_before_it_first_happens():
    metrics = PublicMetrics()
    metrics.declare(P)
    for outcome in ("fired", "published", "refused"):
        labels = {"pipeline": "p", "mechanism": "histogram", "outcome": outcome}
        assert metrics.series.get_sample_value("hush_releases_total", labels) == 0


COUNTS = st.fixed_dictionaries(
    {"seen": st.integers(0, 50), "late": st.integers(0, 5), "invalid:null": st.integers(0, 5),
     "invalid:malformed": st.integers(0, 5)},
)  # fmt: skip


@given(st.lists(COUNTS, max_size=5), st.integers(0, 50))
def test_operator_counters_add_up_over_steps(steps, bounded):
    metrics = OperatorMetrics()
    for step in steps:
        accepted = max(step["seen"] - bounded, 0)
        metrics.count(Counter({("p", k): n for k, n in (step | {"accepted": accepted}).items()}))
    read = metrics.series.get_sample_value

    def events(outcome: str) -> float:
        return read("hush_events_total", {"pipeline": "p", "outcome": outcome}) or 0

    total = {name: sum(s[name] for s in steps) for name in ("seen", "late")}
    assert events("seen") == total["seen"] and events("late") == total["late"]
    assert events("accepted") + events("bounded") == total["seen"]
    letters = sum(
        read("hush_dead_letters_total", {"pipeline": "p", "reason": r}) or 0
        for r in ("null", "malformed")
    )
    assert events("invalid") == letters
    assert letters == sum(s["invalid:null"] + s["invalid:malformed"] for s in steps)


def test_series_of_a_shard_that_is_gone_end_and_those_of_others_stay():
    metrics = OperatorMetrics()
    for n in ("0", "1"):
        metrics.lag.labels(store=f"raw-{n}").set(1)
        metrics.state.labels(store=f"log-{n}").set(2)
        metrics.watermark.labels(pipeline="p", partition=n).set(3)
    metrics.forget("raw-0", "log-0", "0", {"p", "q"})
    series = [s for m in metrics.series.collect() for s in m.samples if s.labels]
    left = {tuple(s.labels.values()) for s in series}
    assert left == {("raw-1",), ("log-1",), ("p", "1")}


def test_the_last_release_of_a_retired_pipeline_is_told():
    metrics = PublicMetrics()
    metrics.retired(P, 3)
    name = "hush_final_release_timestamp_seconds"
    found = metrics.series.get_sample_value(name, {"pipeline": "p"})
    assert found == P.windows.times(2)[-1] / 1e6


@pytest.mark.parametrize("windows", [{"hops": 4, "windows": 8}, {"endless": True}])
def test_noise_is_told_of_windows_of_every_kind(windows: dict[str, Any]):
    metrics = PublicMetrics()
    setting = Setting(Fraction(2), Fraction(1, 100), 1 << 20 if "endless" in windows else 1,
                      **windows)  # fmt: skip
    mechanism = catalogue.build("histogram", HistogramParameters(), setting)
    metrics.declare(replace(P, mechanism=mechanism))
    read = metrics.series.get_sample_value
    assert read("hush_noise_stddev", {"pipeline": "p", "level": "count"}) > 0


def test_the_page_for_operators_lists_every_metric():
    page = (ROOT / "docs" / "operations.md").read_text()
    both = (PublicMetrics().series, OperatorMetrics().series)
    names = {family.name for series in both for family in series.collect()}
    names = {name for name in names if not name.startswith("process_")}
    assert len(names) > 20
    assert [n for n in sorted(names) if f"`{n}`" not in page and f"`{n}_total`" not in page] == []


def test_the_lag_says_what_its_label_names():
    help_ = {one.name: one.documentation for one in OperatorMetrics().series.collect()}
    assert "`store` is the topic and partition" in help_["hush_lag_records"]
