"""Conditions and functions of texts on one record, specified a second time."""

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any


class Bad(Exception):
    """The record is a dead letter."""


def at(record: Any, path: str, kinds: tuple[type, ...]) -> Any:
    """The value at a path; None if there is none."""
    for name in path.split("."):
        if record is None:
            return None
        if not isinstance(record, dict):
            raise Bad
        record = record.get(name)
    if record is not None and type(record) not in kinds:
        raise Bad
    return record


def fulfils(record: Any, condition: dict[str, Any] | None) -> bool:
    """Whether a record fulfils a condition, as the charged configuration states the condition."""
    if condition is None:
        return True
    kind = condition["kind"]
    if kind in ("every", "some"):
        found = [fulfils(record, part) for part in condition["parts"]]
        return all(found) if kind == "every" else any(found)
    path = condition["field"]
    if kind == "present":
        there = at(record, path, (str, int, float, bool)) is not None
        return there == condition["value"]
    if kind == "truthis":
        return at(record, path, (bool,)) is condition["value"]
    if kind == "textin":
        text = at(record, path, (str,))
        return text is not None and (text in condition["values"]) != condition["denied"]
    if kind == "textfits":
        return fits(at(record, path, (str,)), condition)
    if kind == "rowfits":
        return row_fits(condition["rows"].get(str(at(record, path, (str, int)))), condition["test"])
    number = at(record, path, (int, float))
    if number is None:
        return False
    value = double(number)
    if kind == "numberin":
        known = [float(Fraction(one)) for one in condition["values"]]
        return (value in known) != condition["denied"]
    return within(value, condition)


def row_fits(value: Any, test: dict[str, Any]) -> bool:
    """Whether the value that a table has for a record, or None, fulfils a condition."""
    if test["kind"] in ("between", "numberin") and isinstance(value, str):
        value = float(value)  # a table may give numbers as texts with decimals
    return fulfils({"row": value}, {**test, "field": "row"})


def fits(text: str | None, condition: dict[str, Any]) -> bool:
    """Whether a text fulfils a condition, after the condition's functions."""
    text = after(text, condition["steps"])
    if text is None:
        return False
    values, test = condition["values"], condition["test"]
    if test == "in":
        found = text in values
    else:
        found = bool(re.search(values[0], text)) if test == "matches" else like(text, values[0])
    return found != condition["denied"]


def after(text: str | None, steps: Sequence[Sequence[Any]]) -> str | None:
    """A text after some functions; None if there is no text."""
    for name, *given in steps:
        if text is None:
            return None
        if name in ("lower", "upper"):
            text = text.lower() if name == "lower" else text.upper()
        elif name == "extract":
            found = re.search(given[0], text)
            text = None if found is None else found[min(found.re.groups, 1)]
        elif name == "trim":
            while given[0] != "right" and text[:1] == " ":
                text = text[1:]
            while given[0] != "left" and text[-1:] == " ":
                text = text[:-1]
        else:
            start, length = given
            letters = [*text]
            first = start - 1 if start > 0 else max(0, len(letters) + start)
            text = "".join(letters[first:][: None if length == -1 else length])
    return text


def like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern of LIKE: tracks which prefixes of the text match so far."""
    reached, place = {0}, 0
    while place < len(pattern):
        one = pattern[place]
        if one == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            exact = one == "\\" and place + 1 < len(pattern)
            place += exact
            wanted = pattern[place]
            reached = {n + 1 for n in reached if n < len(text)
                       and (text[n] == wanted or (wanted == "_" and not exact))}  # fmt: skip
        place += 1
    return len(text) in reached


def double(number: float) -> float:
    """A number as a double; infinite if an integer is too large for a double."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number > 0 or -1)


def within(value: float, interval: dict[str, Any]) -> bool:
    """Whether a number is in an interval, whose ends may be open or missing."""
    if interval["low"] is not None:
        low = float(Fraction(interval["low"]))
        if value < low or (value == low and interval["low_open"]):
            return False
    if interval["high"] is not None:
        high = float(Fraction(interval["high"]))
        if value > high or (value == high and interval["high_open"]):
            return False
    return True
