"""A survey is refused if its devices may send more reports than an epoch pays for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.compiling.surveys import check_period
from hushstream.cli.planning.plan import describe
from hushstream.client import Survey
from hushstream.errors import ConfigError
from hushstream.formats.events.fields import InputFields
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.schedule import Schedule
from hypothesis import given
from hypothesis import strategies as st

TEXT = """
[deployment]
name = "survey"
[[input]]
name = "reports"
topic = "reports"
unit = "user"
time = {time}
[[pipeline]]
name = "trips"
input = "reports"
unit_name = "user"
window = {window}
triggers = {{ every = "6h" }}
{epoch}
budget = {{ epsilon = 7.0 }}
aggregate = [{{ kind = "mean", field = "minutes", low = 0, high = 1440, grid = 0.01 }}]
inputs = {inputs}
mechanism = {{ kind = "topl", reports = 7, period = {period} }}
"""
SLOT = '{ field = "slot", format = "epoch_s" }'
WEEK = 604_800


def compiled(period: int, **other: str) -> Any:
    given_ = {"time": SLOT, "window": '{ length = "1d" }', "epoch": 'epoch = "7d"', "inputs": "{}"}
    return compile_config(loads(TEXT.format(period=period, **(given_ | other)), environ={}))


@pytest.mark.parametrize("period", [0, WEEK, 4 * WEEK])
def test_epochs_within_a_period_are_accepted(period: int) -> None:
    (pipeline,) = compiled(period).pipelines
    plan = describe(pipeline)
    assert (plan["epsilon"], plan["reports"], plan["survey"]["period"]) == (7, 7, period)


def test_windows_of_the_calendar_are_refused() -> None:
    with pytest.raises(ConfigError, match="topl needs windows of one length"):
        compiled(0, window='{ length = "1 day" }', epoch="")


@pytest.mark.parametrize(
    ("period", "other", "hint"),
    [
        (3600, {}, "up to 1176 reports in one epoch of 7d, which pays for reports = 7"),
        (1, {}, "up to 4233600 reports"),
        (WEEK - 1, {}, "up to 14 reports"),
        (WEEK + 86_400, {}, "up to 14 reports"),
        (WEEK, {"window": '{ length = "1d", origin = "1970-01-02T00:00:00Z" }'}, "up to 14"),
        (WEEK, {"time": '{ field = "slot", format = "epoch_ms" }'}, "counts slots"),
        (WEEK, {"time": '{ field = "t", format = "epoch_s" }'}, "counts slots"),
        (WEEK, {"time": '{ format = "record" }'}, "counts slots"),
        (WEEK, {"inputs": '{ slot = "day" }'}, "counts slots"),
        (WEEK, {"window": "{ horizon = 4 }", "epoch": ""}, "counts slots"),
    ],
)
def test_more_reports_than_the_budget_pays_for_are_refused(
    period: int, other: dict[str, str], hint: str
) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        compiled(period, **other)
    assert f"'trips': period = {period}" in str(caught.value)


SECOND = 1_000_000


@given(
    period=st.integers(1, 12),
    length=st.integers(1, 6),
    per_epoch=st.integers(1, 3),
    origin=st.integers(0, 20),
    reports=st.integers(1, 3),
)
def test_the_refusal_is_exact(
    period: int, length: int, per_epoch: int, origin: int, reports: int
) -> None:
    """Compare with all periods that overlap each epoch of a long time, second by second."""
    survey = Survey(Fraction(1), Fraction(1), "s", reports, period=period)
    schedule = Schedule(origin * SECOND, length * SECOND, per_epoch, every=length * SECOND)
    reached: dict[int, set[int]] = {}
    for second in range(origin, origin + 12 * 6 * 3 * 2):
        epoch = schedule.epoch(schedule.window(second * SECOND))
        reached.setdefault(epoch, set()).add(survey.period_of(second)[0])
    most = max(map(len, reached.values())) * reports
    fields = InputFields("slot", "epoch_s", "UTC", ("user",))
    if most == reports:
        check_period("p", survey, "slot", fields, schedule)
    else:
        with pytest.raises(ConfigError, match=f"up to {most} reports"):
            check_period("p", survey, "slot", fields, schedule)
