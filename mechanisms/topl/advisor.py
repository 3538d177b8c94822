"""Advice of `hush plan` on a survey under local privacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..advice import AdviceTable, Option, Question, toml, unlike_default
from ..slots.advice import OPTIONS, value_table
from .advise import SurveyAdvice, SurveyForecast, choices, propose

FEW = 2000
"""Reports of a round below which a threshold is mostly chance."""


class ToPLAdvisor:
    """See `advice.Advisor`."""

    options: frozenset[Option] = OPTIONS
    needs_sample = False

    def ticks(self, question: Question) -> int:
        """One for each choice that is tried."""
        return len(choices(question.parameters, question.setting.horizon))

    def advise(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """Rounds, share and warm-up of least expected error, beside what is configured."""
        found = propose(
            question.parameters, question.setting, question.records, question.scale, tick
        )
        settings = unlike_default(found.proposed.parameters)
        return {
            "kind": "topl",
            "records": found.records,
            "scale": found.scale,
            "settings": settings,
            "toml": toml("topl", settings),
            "changed": found.proposed.parameters != question.parameters,
            "expected_error": {
                "proposed": found.proposed.error,
                "configured": found.configured.error,
                "ideal": found.ideal,
                "top": found.top,
            },
            "threshold": found.proposed.threshold,
            "threshold_at": found.proposed.chosen_at,
            "range_reports": found.proposed.range_reports,
            "largest_value": found.largest,
            "notes": _notes(found, question.setting.horizon),
        }

    def table(self, name: str, body: dict[str, Any]) -> AdviceTable:
        """Errors of a window's mean, and what the threshold rests on."""
        details = [
            ("threshold to expect", f"{body['threshold']:.4g}"),
            ("reports of a round that finds it", f"{body['range_reports']:,}"),
        ]
        return value_table(name, body, "window's mean", details)


def _notes(found: SurveyAdvice, horizon: int) -> list[str]:
    best = found.proposed
    notes = [f"no value is reported about a window before trigger {best.chosen_at} of {horizon}"]
    if best.range_reports < FEW:
        notes.append(
            f"a round has {best.range_reports:,} reports: below {FEW:,} a threshold is mostly "
            "chance; lengthen the window or ask more users"
        )
    if _worse_than_top(best, found):
        notes.append(
            f"a threshold gains nothing over B = {found.largest:g} here; lower `high` if a smaller "
            "bound is public"
        )
    return notes


def _worse_than_top(best: SurveyForecast, found: SurveyAdvice) -> bool:
    return best.error >= found.top
