"""The planner of streams of values with prefix sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from typing import Any

from ..planner import PlanTable, Question, toml, unlike_default
from ..slots.planner import SlotPlanner
from ..slots.proposal import grid_of, steps_of, value_table
from .proposal import PakProposal, propose

_OF_THRESHOLD = ("warmup", "tail", "safety", "factor", "split")


class PakPlanner(SlotPlanner):
    """See `planner.Planner`."""

    rates = (Fraction(1), Fraction(1, 2), Fraction(2))
    further = ({"threshold": "top"},)

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """The optimiser's choice, and its error compared with the configuration's and B's."""
        grid = grid_of(question)
        found = propose(question.parameters, question.setting, question.records, steps_of(question))
        choice, top = found.choice, question.setting.columns[0][2] * grid
        settings = _settings(found)
        configured = None if found.configured is None else found.configured * grid
        return {
            "kind": "pak",
            "records": found.records,
            "scale": float(found.scale) * grid,
            "settings": settings,
            "toml": toml("pak", settings),
            "changed": found.parameters != question.parameters,
            "expected_error": {
                "proposed": found.error * grid,
                "configured": configured,
                "top": found.top * grid,
            },
            "largest_value": top,
            "rank": choice.rank if choice and found.clip else None,
            "break_even": found.break_even * grid if found.clip else None,
            "clip": found.clip,
            "notes": [_sentence(found, grid, top), *_warmup(question, found)],
        }

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """Errors of running totals, and the rank of the threshold."""
        rank = body["rank"]
        place = "largest value" if rank == 1 else f"{rank}-th largest value"
        details = [("threshold from the warm-up's", place)] if rank else []
        return value_table(name, body, "running total", details)


def _settings(found: PakProposal) -> dict[str, Any]:
    """Settings that differ from the defaults; for a learnt threshold, all that were optimised."""
    chosen = unlike_default(found.parameters)
    if not found.clip:
        return chosen
    given = {one.name: getattr(found.parameters, one.name) for one in fields(found.parameters)}
    return {n: v for n, v in given.items() if n in chosen or (n in _OF_THRESHOLD and v)}


def _sentence(found: PakProposal, grid: float, top: float) -> str:
    if not found.clip:
        return (
            f"the largest value B = {top:g} is better than any learnt threshold here: take "
            'threshold = "top"'
        )
    share, even = float(found.tail), found.break_even * grid
    if even >= top:
        return f"a learnt threshold is better than B = {top:g} whatever it turns out to be"
    return (
        f"a learnt threshold is better than B = {top:g} as long as at most {share:.2%} of the "
        f"values exceed {even:.4g}; beyond that B is"
    )


def _warmup(question: Question, found: PakProposal) -> list[str]:
    longer = found.parameters.warmup
    if longer <= question.parameters.warmup:
        return []
    return [
        f"with the longer warm-up nothing is released before trigger {longer} of "
        f"{question.setting.horizon}"
    ]
