"""Advice on a survey: proposals are better, and settings that are nearly as good stay.

Covers: mechanisms/topl/trial.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.topl.planner import ToPLPlanner
from hushstream.mechanisms.topl.proposal import choices, propose
from hushstream.mechanisms.topl.settings import ToPLParameters, build

SETTING = Setting(
    Fraction(1), Fraction(0), 12, columns=(("v", 0, 1440),), grids=(Fraction(1),)
)  # fmt: skip
SMALL = ToPLParameters(buckets=64, levels=64)


@pytest.mark.thorough
def test_a_longer_warmup_is_proposed_where_a_round_has_few_reports() -> None:
    found = propose(SMALL, SETTING, 60_000, 12.0)
    assert found.configured.parameters == SMALL and found.proposed.parameters != SMALL
    assert found.proposed.error < found.configured.error < found.top
    assert found.ideal <= found.proposed.error
    assert found.proposed.parameters.warmup > found.configured.parameters.warmup
    assert found.proposed.range_reports >= found.configured.range_reports  # over more rounds
    assert found.proposed.chosen_at <= 4  # a third of the window
    again = propose(found.proposed.parameters, SETTING, 60_000, 12.0)
    assert again.proposed.error >= 0.97 * found.proposed.error
    assert propose(SMALL, SETTING, 60_000, 12.0) == found  # seeds are fixed


def test_choices_are_all_possible_and_the_configuration_is_the_first() -> None:
    made = choices(replace(SMALL, warmup=3), 12)
    assert made[0] == replace(SMALL, warmup=3)
    assert {one.rounds for one in made[1:]} == {1, 2}
    for one in made:
        assert build(one, SETTING).chosen_at < 12
    odd = choices(replace(SMALL, buckets=60), 12)
    assert {one.rounds for one in odd} <= {0, 1}


def question(parameters: ToPLParameters, records: int, scale: float) -> Question:
    made = build(parameters, SETTING)
    return Question("trips", parameters, SETTING, made, None, "", "last", records, scale)


def test_the_body_is_whole_and_the_table_shows_it() -> None:
    planner, asked = ToPLPlanner(), question(SMALL, 3_000, 600.0)
    ticks = list[None]()
    body = planner.propose(asked, lambda: ticks.append(None))
    assert len(ticks) == planner.ticks(asked)
    assert body["kind"] == "topl" and body["toml"].startswith('mechanism = { kind = "topl"')
    errors = body["expected_error"]
    assert body["changed"] == (errors["proposed"] < errors["configured"])
    assert any("mostly chance" in note for note in body["notes"])
    assert any("before trigger" in note for note in body["notes"])
    table = planner.table("trips", body)
    assert "3,000 records" in table.intro and len(table.rows) == 6


def test_arguments_out_of_range_are_named() -> None:
    with pytest.raises(ParameterError, match="records"):
        propose(SMALL, SETTING, 10)
    with pytest.raises(ParameterError, match="tail-scale"):
        propose(SMALL, SETTING, 1000, -1.0)
