"""Mutually exclusive conditions: decided from their texts, never from data.

`exclusive` is sound: if it says yes, no record fulfils both, whatever its fields hold. It says no
if it cannot tell. For a finite set of values it evaluates the other condition with the code that
evaluates records, so that both read a value alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .conditions import (
    Between,
    Condition,
    Every,
    Leaf,
    NumberIn,
    Present,
    RowFits,
    Some,
    TextFits,
    TextIn,
    TruthIs,
)
from .texts import matching
from .valued import ValueFields


def exclusive(one: Condition, other: Condition) -> bool:
    """Whether no record can fulfil both; False if that cannot be decided.

    >>> exclusive(TruthIs("open", True), TruthIs("open", False))
    True
    """
    for first, second in ((one, other), (other, one)):
        if isinstance(first, Some):
            return all(exclusive(part, second) for part in first.parts)
    for first, second in ((one, other), (other, one)):
        if isinstance(first, Every):
            return any(exclusive(part, second) for part in first.parts)
    assert not isinstance(one, Every | Some)
    assert not isinstance(other, Every | Some)
    return one.field == other.field and (_apart(one, other) or _apart(other, one))


def groups(conditions: Sequence[Condition]) -> tuple[tuple[int, ...], ...]:
    """Indices of conditions in groups: within a group all pairs are exclusive; each is in one."""
    found: list[list[int]] = []
    for place, condition in enumerate(conditions):
        for group in found:
            if all(exclusive(conditions[member], condition) for member in group):
                group.append(place)
                break
        else:
            found.append([place])
    return tuple(map(tuple, found))


def _apart(one: Leaf, other: Leaf) -> bool:
    """Whether ``one`` shows that no value of their common field fulfils both."""
    if isinstance(one, RowFits) or isinstance(other, RowFits):
        return isinstance(one, RowFits) and _rows_apart(one, other)
    if isinstance(one, Present):
        return not one.value and (not isinstance(other, Present) or other.value)
    if isinstance(other, Present):
        return False
    if one.role != other.role:
        return True  # a value has one type
    if isinstance(one, TruthIs) and isinstance(other, TruthIs):
        return one.value != other.value
    if isinstance(one, NumberIn) and not one.denied:
        numbers = [float(value) for value in one.values]
        return not other.fulfilled(ValueFields(len(numbers), lambda path, role: numbers)).any()
    if isinstance(one, Between) and isinstance(other, Between):
        return _disjoint(one, other)
    if isinstance(one, TextIn | TextFits) and isinstance(other, TextIn | TextFits):
        return _texts_apart(_as_fits(one), _as_fits(other))
    return False


def _rows_apart(one: RowFits, other: Leaf) -> bool:
    """Whether no text fulfils both a condition on a row and ``other``."""
    if one.denied or not isinstance(other, RowFits):  # others say nothing about rows
        return False
    return one.keys <= other.keys if other.denied else one.keys.isdisjoint(other.keys)


def _as_fits(condition: TextIn | TextFits) -> TextFits:
    if isinstance(condition, TextFits):
        return condition
    return TextFits(condition.field, (), "in", condition.values, condition.denied)


def _texts_apart(one: TextFits, other: TextFits) -> bool:
    if one.steps != other.steps:
        return False
    if one.test == "in" and not one.denied:
        fits = matching(other.test, other.values)
        return not any(fits(value) != other.denied for value in one.values)
    same = (one.test, one.values) == (other.test, other.values)
    return same and one.denied != other.denied


def _disjoint(one: Between, other: Between) -> bool:
    """Whether two intervals have no double in common; ends are compared as doubles."""
    lows = [(-math.inf if c.low is None else float(c.low), c.low_open) for c in (one, other)]
    highs = [(math.inf if c.high is None else float(c.high), c.high_open) for c in (one, other)]
    low, high = max(end for end, _ in lows), min(end for end, _ in highs)
    if low != high:
        return low > high
    return (low, True) in lows or (high, True) in highs
