"""Roles of fields in settings, and fields used in two contradictory roles.

A record's field has one type, and a record whose field has another type than a setting requires is
a dead letter. So if two settings require types without a common value of one field, every record
would be a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .types import types_of

WORDS = {
    "text": "a text", "number": "a number", "unit": "a text or a whole number",
    "key": "a column of the key", "sign": "a sign", "truth": "true or false",
    "scalar": "a single value",
}  # fmt: skip
"""The name of each role in messages."""


class Use(NamedTuple):
    """A field that a setting uses.

    Attributes:
        place: dotted setting of the pipeline, or of its input if it begins with `input`.
        field: path of the field.
        role: role in which the setting uses it.
    """

    place: str
    field: str
    role: str

    @property
    def shown(self) -> str:
        """The setting as other messages write it: `where[0]`."""
        return re.sub(r"\.(\d+)", r"[\1]", self.place)


def clashes(found: Iterable[Use]) -> Iterator[tuple[Use, Use]]:
    """The first use of each field whose types exclude those of earlier uses, and an earlier use."""
    before: dict[str, list[Use]] = {}
    types: dict[str, frozenset[type]] = {}
    for use in found:
        allowed = types_of(use.role)
        left = types.get(use.field, allowed) & allowed
        if left or not types.get(use.field, allowed):
            before.setdefault(use.field, []).append(use)
            types[use.field] = left
            continue
        others = before[use.field]
        apart = [one for one in others if not types_of(one.role) & allowed]
        yield use, (apart or others[-1:])[0]
        types[use.field] = left  # empty after a clash: one problem per field
