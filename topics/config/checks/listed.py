"""Public keys that no record can have: nothing but noise would be released of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

import numpy as np

from ....formats.events.expressions.derived import Band, Derived, TextPart, TimePart
from ....formats.events.expressions.looked_up import Lookup
from ....formats.events.keys import MAX_KEY, encode_key
from ..pipelines.pipeline import PipelineSettings, Scalar

Typed = tuple[type, Scalar]


def of_listed(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Say which listed keys no record can have: the first of each kind.

    The pipeline's own settings must be valid.
    """
    keys = pipeline.public_keys or ()
    for place, key in enumerate(keys):
        if len(encode_key(key)) > MAX_KEY:
            why = f"is longer than {MAX_KEY:,} bytes, and no record has such a key: leave it out"
            yield f"public_keys.{place}", why
            break
    for column, name in enumerate(pipeline.key):
        settings = pipeline.derive.get(name)
        derived = None if settings is None else settings.meant()
        first: dict[Typed, int] = {}  # in Python True == 1
        for place, key in enumerate(keys):
            first.setdefault((type(key[column]), key[column]), place)
        if (str, "") in first:
            why = f"has an empty text for {name}, and no record's key has one: leave it out"
            yield f"public_keys.{first[str, '']}", why
        if derived is not None and (wrong := _never(derived, first)):
            why = f"has {_json(wrong[0][1])} for {name}, and no record has that"
            told = f"{why}: write values such as {_example(derived)}"
            yield f"public_keys.{first[wrong[0]]}", told


def _never(derived: Derived, listed: Iterable[Typed]) -> list[Typed]:
    """The values that no record can have in a derived column, as far as its settings tell."""
    if derived.domain is not None:
        # A table that is still to be read may hold any.
        had = {(type(one), one) for one in derived.domain}
        unread = isinstance(derived, Lookup) and not derived.table.rows
        return [] if unread else [one for one in listed if one not in had]
    return [one for one in listed if not _had(derived, one[1])]


def _had(derived: Derived, value: Scalar) -> bool:
    """Whether a record can have a value in a derived column without a domain."""
    if isinstance(derived, Band):
        try:
            (found,) = derived.values(np.array([float(value)]))
        except (ValueError, OverflowError):
            return False
        return type(found) is type(value) and found == value
    if isinstance(derived, TimePart):
        return _dated(value) if derived.part == "date" else type(value) is int
    return not isinstance(derived, TextPart) or isinstance(value, str)


def _dated(value: Scalar) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _example(derived: Derived) -> str:
    """Give one or two values of a column, as JSON."""
    found: Sequence[object] = ["a text"]
    if isinstance(derived, Band):
        found = derived.values(np.array([0.0, float(derived.width)]))
    elif derived.domain is not None:
        found = derived.domain[:2]
    elif isinstance(derived, TimePart):
        found = derived.values(np.array([1_767_225_600_000_000]))  # 2026-01-01
    return " and ".join(map(_json, found))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
