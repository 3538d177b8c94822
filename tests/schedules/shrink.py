"""The smallest schedule that still objects, made from a larger one.

Faults, turns and records are left out as long as an objection of the same kind remains, many at
once at first. The rest is rounded: round times and sizes are easier to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .campaign import KINDS
from .recipe import Fault, Recipe

Run = Callable[[Sequence[Recipe]], list[dict[str, Any]]]
RECORDS = 24


def shrunk(tried: Recipe, made: dict[str, Any], run: Run) -> Recipe:
    """Shrink a schedule.

    Args:
        tried: the schedule that was run.
        made: its result.
        run: function that runs schedules in order.
    """
    wanted = {kind for kind in KINDS if made[kind]}
    least = replace(tried, faults=tuple(Fault(*one) for one in made["drawn"]))

    def objects(one: Recipe) -> bool:
        (found,) = run([one])
        return any(found[kind] for kind in wanted)

    if not objects(least):  # the objection depends on other draws than those of faults
        return tried
    least = _fewer(least, "turns", least.turns, objects)
    least = _fewer(least, "faults", least.faults or (), objects)
    kept = [n for n in range(RECORDS) if n not in least.without]
    least = _without(least, kept, objects)
    return _rounder(least, objects)


def _fewer(
    one: Recipe, name: str, parts: tuple[Any, ...], objects: Callable[[Recipe], bool]
) -> Recipe:
    """Leave out faults or turns: half of them first, then fewer at a time."""
    size = len(parts)
    while size:
        place = 0
        while place < len(parts):
            fewer = parts[:place] + parts[place + size :]
            if objects(candidate := replace(one, **{name: fewer})):
                one, parts = candidate, fewer
            else:
                place += size
        size //= 2
    return one


def _without(one: Recipe, kept: list[int], objects: Callable[[Recipe], bool]) -> Recipe:
    """Leave out records: many at a time at first."""
    size = len(kept)
    while size:
        place = 0
        while place < len(kept):
            fewer = kept[:place] + kept[place + size :]
            out = tuple(n for n in range(RECORDS) if n not in fewer)
            if objects(candidate := replace(one, without=out)):
                one, kept = candidate, fewer
            else:
                place += size
        size //= 2
    return one


def _rounder(one: Recipe, objects: Callable[[Recipe], bool]) -> Recipe:
    """Round times and sizes of faults as far as an objection remains."""
    faults = list(one.faults or ())
    for place, fault in enumerate(faults):
        for digits in (0, 1, 2):
            round_one = fault._replace(at=round(fault.at, digits), size=round(fault.size, digits))
            candidate = replace(one, faults=(*faults[:place], round_one, *faults[place + 1 :]))
            if objects(candidate):
                one, faults[place] = candidate, round_one
                break
    return one
