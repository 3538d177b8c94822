"""Reasons why a record cannot be used: public words, and the place that the configuration names."""

from __future__ import annotations

import re
from collections.abc import Collection

Bad = dict[int, str]  # row -> reason, a word from `REASONS`

REASONS = (
    "null",
    "oversized",
    "malformed",
    "unknown_schema",
    "wrong_schema",
    "wrong_type",
    "missing_unit",
    "huge_unit",
    "missing_time",
    "bad_time",
    "missing_key",
    "empty_key",
    "huge_key",
    "missing_value",
    "not_finite",
    "bad_sign",
    "wrong_partition",
    "huge_batch",
)
_PATH = re.compile(r" - at `\$\.([^`]*)`$")


class Reason(str):
    """A reason with the path of its field."""

    path: str  # as the configuration writes it; empty if there is none

    @classmethod
    def at(cls, word: str, path: str) -> Reason:
        made = cls(word)
        made.path = path
        return made


class Unread(bytes):
    """The empty value of a record, or of a whole batch, that was not read."""

    reason: str  # a word from `REASONS`
    first: int  # first offset that it stands for; its record has the last one

    @classmethod
    def of(cls, reason: str, first: int) -> Unread:
        made = cls()
        made.reason, made.first = reason, first
        return made


def path_of(error: Exception, known: Collection[str]) -> str:
    """The path in a msgspec error; empty unless ``known`` from the configuration.

    The error's text may quote a record's content, so nothing else of it is passed on.

    >>> path_of(ValueError("Expected `str`, got `int` - at `$.user.id`"), ["user.id"])
    'user.id'
    >>> path_of(ValueError("Expected `str`, got `int` - at `$.user`"), ["user.id"])
    'user'
    >>> path_of(ValueError("Expected `str`, got `int` - at `$.secret`"), ["user.id"])
    ''
    """
    found = _PATH.search(str(error))
    path = found.group(1) if found else ""
    listed = any(one == path or one.startswith(f"{path}.") for one in known)
    return path if path and listed else ""
