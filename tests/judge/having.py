"""Conditions on released rows, as a view's table states them, and the order of rows."""

import re
from collections.abc import Mapping
from typing import Any

from .conditions import after, like
from .rules import written


def cells(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that a condition may name."""
    parts = {"": "value", "_stddev": "stddev", "_low": "low", "_high": "high"}
    return {name + end: one and one[part]
            for name, one in values.items() for end, part in parts.items()}  # fmt: skip


def ordered(value: Any) -> tuple[Any, ...]:
    """A sort key: truth values, then numbers, then texts."""
    return isinstance(value, str), not isinstance(value, bool), value


def holds(row: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a row fulfils a condition of the table; a missing value fulfils none."""
    for name, how in (("any", any), ("all", all)):
        if name in asked:
            return how(holds(row, part) for part in asked[name])
    value = row.get(asked["field"])
    if "present" in asked:
        return (value is not None) == asked["present"]
    if isinstance(value, str):
        return _text(value, asked)
    listed = asked.get("one_of", asked.get("none_of", [asked.get("equals")]))
    if value is None or isinstance(value, bool):
        same = [one for one in listed if isinstance(one, bool)]
        return value is not None and bool(same) and (value in same) != ("none_of" in asked)
    if any(name in asked for name in ("equals", "one_of", "none_of")):
        known = [float(written(one)) for one in listed
                 if not isinstance(one, str | bool)]  # fmt: skip
        return bool(known) and (float(value) in known) != ("none_of" in asked)
    ends = {"at_least": float.__ge__, "above": float.__gt__,
            "at_most": float.__le__, "below": float.__lt__}  # fmt: skip
    given = [(how, float(written(asked[name]))) for name, how in ends.items() if name in asked]
    return bool(given) and all(how(float(value), end) for how, end in given)


def _text(text: str, asked: Mapping[str, Any]) -> bool:
    changed = after(text, [_step(one) for one in asked.get("text", ())])
    if changed is None:
        return False
    for name in ("like", "matches"):
        if (pattern := asked.get(name, asked.get(f"not_{name}"))) is not None:
            found = like(changed, pattern) if name == "like" else bool(re.search(pattern, changed))
            return found == (name in asked)
    listed = asked.get("one_of", asked.get("none_of", [asked.get("equals")]))
    texts = [one for one in listed if isinstance(one, str)]
    return bool(texts) and (changed in texts) != ("none_of" in asked)


def _step(table: Mapping[str, Any]) -> list[Any]:
    """A function of texts in the form of the charged configuration."""
    if "case" in table:
        return [table["case"]]
    if "start" in table:
        return ["part", table["start"], table.get("length", -1)]
    ((name, given),) = table.items()
    return [name, given]
