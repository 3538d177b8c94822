"""Roles of fields in settings, and fields that are asked for in two that contradict each other.

A record's field has one type, and a record whose field has another than a setting asks for is a
dead letter. So of a field that two settings ask for as types without a common value, every record
would be one.
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
"""Each role as messages call it."""


class Use(NamedTuple):
    """A field that a setting asks for.

    Attributes:
        place: dotted setting of the pipeline; of its input, it begins with `input`.
        field: path of the field.
        role: what it is asked for as.
    """

    place: str
    field: str
    role: str

    @property
    def shown(self) -> str:
        """The setting as other messages write it: `where[0]`."""
        return re.sub(r"\.(\d+)", r"[\1]", self.place)


def clashes(found: Iterable[Use]) -> Iterator[tuple[Use, Use]]:
    """The first use of each field without a type in common with those before, and one of them."""
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
        types[use.field] = left  # empty: one problem for a field
