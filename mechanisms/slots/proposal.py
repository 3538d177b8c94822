"""Common parts of proposals for streams of values: units and table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..planner import PlanTable, Question


def grid_of(question: Question) -> float:
    """Size of one grid step of the value."""
    return float(question.setting.grids[0])


def steps_of(question: Question) -> float | None:
    """The stated scale in grid steps; None if no scale was stated."""
    return None if question.scale is None else question.scale / grid_of(question)


def value_table(
    name: str, body: dict[str, Any], what: str, details: Sequence[tuple[str, str]]
) -> PlanTable:
    """Errors of ``what`` with each choice, then further rows."""
    intro = (
        f"{name}: no records were read. Assumed are {body['records']:,} records per window, and "
        f"large values that get e times rarer every {body['scale']:g}. --records N and "
        "--tail-scale S state your own guess, and --sample FILE reads public or synthetic records."
    )
    title = f"{name}: expected errors"
    names = {
        "proposed": "as proposed",
        "configured": "as configured",
        "ideal": "with the ideal threshold",
        "top": f"with B = {body['largest_value']:g}",
    }
    rows = [
        (f"error of a {what}, {names[one]}", _error(error))
        for one, error in body["expected_error"].items()
    ]
    return PlanTable(intro, title, (), (*rows, *details))


def _error(error: float | None) -> str:
    return "no useful threshold" if error is None else f"±{error:,.4g}"
