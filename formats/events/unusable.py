"""Unusable records of a sample in words: reason, field, and the types in that field.

Only for a file that its owner reads on their own machine. A deployment names only reason and field:
the type in a record of the stream is a fact about its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .reasons import Bad, Reason

_NEEDED = {"bool": "true or false", "int": "a whole number", "number": "a number", "str": "text"}
_ORDER = ("str", "int", "number", "bool")
_BITS = 1 << 63


class Unusable(NamedTuple):
    """A reason why records cannot be used."""

    reason: str  # a word from `reasons.REASONS`
    path: str = ""  # of the field; empty if unknown
    needed: str = ""  # for a wrong type, what the field must hold; else empty
    found: str = ""  # for a wrong type, what the field holds; else empty


def unusable(
    bad: Bad, rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, set[str]]
) -> Counter[Unusable]:
    """Count the reasons by row; ``kinds`` says what each path may hold (`types.paths_of`)."""
    return Counter(_one(reason, rows[row], kinds) for row, reason in bad.items())


def _one(reason: str, row: Mapping[str, Any], kinds: Mapping[str, set[str]]) -> Unusable:
    path = reason.path if isinstance(reason, Reason) else ""
    if reason != "wrong_type" or not path:
        return Unusable(str(reason), path)
    return Unusable(str(reason), path, _needed(kinds.get(path)), _found(row, path))


def _needed(kinds: set[str] | None) -> str:
    if kinds is None:  # the path is a parent of needed ones
        return "an object"
    words = [_NEEDED[name] for name in _ORDER if name in kinds]
    return " or ".join(words)


def _found(row: Mapping[str, Any], path: str) -> str:
    return type_words(value_at(row, path))


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a row; None if there is none."""
    value: Any = row
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def type_words(value: Any) -> str:
    """The type of a value in words, without the value itself.

    >>> type_words(2.5), type_words("2.5"), type_words([2])
    ('a number with a fraction', 'text', 'a list')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "a whole number" if -_BITS <= value < _BITS else "a whole number beyond 64 bits"
    if isinstance(value, float):
        return "a number with a fraction"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else "text"


def in_words(found: Counter[Unusable], most: int = 3) -> str:
    """The most frequent reasons, with their numbers.

    >>> in_words(Counter({Unusable("wrong_type", "fare", "a number", "text"): 6433}))
    '6,433 wrong type (field fare holds text and must hold a number)'
    """
    return ", ".join(f"{n:,} {_words(one)}" for one, n in found.most_common(most))


def _words(one: Unusable) -> str:
    reason = one.reason.replace("_", " ")
    if one.needed:
        return f"{reason} (field {one.path} holds {one.found} and must hold {one.needed})"
    return f"{reason} (field {one.path})" if one.path else reason
