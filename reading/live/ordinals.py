"""Keys with a natural order: parts of a time, days, months and bands."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...formats.events.expressions.derived import PARTS

Rank = float | str
Family = Callable[[Any], Rank | None]
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
LETTERS = 3  # of the short name of a day or a month
ENDS = ("at_least", "above", "at_most", "below")
_NAMED = re.compile(
    r"(?:^|[^a-z])(?:hours?|hod|weekday|dow|day|week|month|quarter|year|minute)(?:$|[^a-z])"
)
_DATE = re.compile(r"\d{4}-(?:\d\d(?:-\d\d)?|[QW]\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)")
_NUMBER = r"([-−]?\d+(?:\.\d+)?)"
_BAND = re.compile(rf"[\[(]?\s*{_NUMBER}\s*(?:-|–|to|\.\.|,)\s*{_NUMBER}\s*[\])]?")
_LEAST = re.compile(rf"(?:[>≥]=?|over|above|from)\s*{_NUMBER}|{_NUMBER}\s*(?:\+|and over|or more)")
_MOST = re.compile(rf"(?:[<≤]=?|under|below|up to)\s*{_NUMBER}")


def ranks(config: Mapping[str, Any], ids: Sequence[str]) -> list[tuple[Rank, ...]] | None:
    """Rank keys in their natural order; None if one of their columns has none.

    Args:
        config: canonical public configuration of the pipeline.
        ids: JSON lists of key values, one value for each column of the key.

    Returns:
        One rank for each key, to sort by.
    """
    derive, columns = config.get("derive") or {}, []
    for place, name in enumerate(config.get("key") or ()):
        families = _families(str(name), derive.get(name) or {})
        found = next((f for f in (_ranked(ids, place, one) for one in families) if f), None)
        if found is None:
            return None
        columns.append(found)
    return list(zip(*columns, strict=True)) if columns else None


def _ranked(ids: Sequence[str], place: int, rank: Family) -> list[Rank] | None:
    """Ranks of one column; None if one of its values has none."""
    found = []
    for text in ids:
        one = rank(json.loads(text)[place])
        if one is None:
            return None
        found.append(one)
    return found


def _families(name: str, derived: Mapping[str, Any]) -> tuple[Family, ...]:
    """Possible orders of a column's values, the likeliest first."""
    if derived.get("time") in PARTS or {"bucket", "round"} & derived.keys():
        return _number, _date
    if (listed := _steps(derived)) is not None:
        return (lambda value: _place(listed, value),)
    named = (_number,) if _NAMED.search(name.lower()) else ()
    return *named, _day, _month, _date, _clock, _band


def _steps(derived: Mapping[str, Any]) -> list[Any] | None:
    """Values of cases that split the range of one number, in the order of the cases."""
    cases = derived.get("cases")
    if not cases:
        return None
    where = [condition for case in cases for condition in case["where"]]
    if len({one.get("field") for one in where}) != 1:
        return None
    if not all(set(ENDS) & one.keys() for one in where):
        return None
    return [*(case["then"] for case in cases), derived.get("otherwise")]


def _place(listed: Sequence[Any], value: Any) -> Rank | None:
    return float(listed.index(value)) if value in listed else None


def _number(value: Any) -> Rank | None:
    """The value of a number, or of a text that is one."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and not isinstance(value, bool) else None


def _named(names: Sequence[str], value: Any) -> Rank | None:
    text = value.casefold() if isinstance(value, str) else ""
    found = [n for n, name in enumerate(names) if text in (name, name[:LETTERS])]
    return float(found[0]) if found else None


def _day(value: Any) -> Rank | None:
    return _named(DAYS, value)


def _month(value: Any) -> Rank | None:
    return _named(MONTHS, value)


def _date(value: Any) -> Rank | None:
    return value if isinstance(value, str) and _DATE.fullmatch(value) else None


def _clock(value: Any) -> Rank | None:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else int(found[1]) * 60.0 + int(found[2])


def _band(value: Any) -> Rank | None:
    """The lower end of a band such as 10-20, under 10 or 65+."""
    text = value.strip().casefold() if isinstance(value, str) else ""
    if (found := _BAND.fullmatch(text)) is not None:
        low, high = (float(end.replace("−", "-")) for end in found.groups())
        return low if low <= high else None
    if (found := _LEAST.fullmatch(text)) is not None:
        return float((found[1] or found[2]).replace("−", "-"))
    return -math.inf if _MOST.fullmatch(text) else None
