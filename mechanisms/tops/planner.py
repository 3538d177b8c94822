"""The planner of streams of values with sums of ranges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ..planner import PlanTable, Question, toml, unlike_default
from ..slots.planner import SlotPlanner
from ..slots.proposal import grid_of, steps_of, value_table
from .proposal import TopsProposal, propose


class TopsPlanner(SlotPlanner):
    """See `planner.Planner`.

    The penalty of ToPS is inverse to the excess, so a step of ``excesses`` is a step in the number
    of records above the threshold. With steps of factor 2, that number is off by at most a factor
    of 1.4: with a tail of exponent 2.2 the threshold is off by a factor of 1.17, and the error,
    which is flat there, by a few per cent.
    """

    excesses = tuple(Fraction(one) for one in ("2", "1/2", "4", "1/4", "16", "1/16"))

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """The public choices, the expected threshold, and the errors of ranges with it."""
        grid = grid_of(question)
        found = propose(question.parameters, question.setting, question.records, steps_of(question))
        settings = unlike_default(found.parameters)
        low, middle, high = (x * grid for x in found.thresholds)
        return {
            "kind": "tops",
            "records": found.records,
            "scale": float(found.excess) * grid,
            "settings": settings,
            "toml": toml("tops", settings),
            "changed": found.parameters != question.parameters,
            "skip": found.skip,
            "slots_per_block": found.width,
            "slots_per_chunk": found.chunk,
            "skip_errors": {str(s): error for s, error in found.skips},
            "threshold": {"5%": low, "50%": middle, "95%": high, "ideal": found.ideal * grid},
            "expected_error": {
                "configured": found.error * grid,
                "ideal": found.ideal_error * grid,
                "top": found.top_error * grid,
            },
            "largest_value": question.setting.columns[0][2] * grid,
            "clip": found.clip,
            "notes": [_sentence(found, question.setting.columns[0][2] * grid)],
        }

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """Errors of ranges, the expected threshold, and the grouping of slots."""
        threshold, chunk = body["threshold"], body["slots_per_chunk"]
        spread = f"{threshold['5%']:g} to {threshold['95%']:g}, ideal {threshold['ideal']:g}"
        block = f"{body['slots_per_block']:,} (skip = {body['skip']})"
        details = [
            ("threshold, with 90 % probability", spread),
            ("slots of the finest sum with its own noise", block),
            ("slots of one hierarchy", f"{chunk:,}" if chunk else "unbounded"),
        ]
        return value_table(name, body, "sum of a range", details)


def _sentence(found: TopsProposal, top: float) -> str:
    if found.clip:
        return f"the learnt threshold is better than the largest value B = {top:g}"
    return (
        f"the learnt threshold gains nothing over the largest value B = {top:g}: lengthen the "
        'warm-up, lower `high` if a smaller bound is public, or take PAK with threshold = "top"'
    )
