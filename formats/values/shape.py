"""The shape of a released record: one description that determines schemas and bytes.

A shape has the content of the JSON record, in the same order and under the same names. Avro and
Protobuf allow fewer names; `plain_names` gives their replacements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Kind = Literal["text", "whole", "real", "number", "truth", "scalar", "record", "list", "map"]
SIMPLE = ("text", "whole", "real", "number", "truth")

INT64 = range(-(1 << 63), 1 << 63)


class ValueShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value and all that it consists of."""

    # ``whole`` has 64 bits; ``number`` is a double, read as an integer if it is one; a
    # ``scalar`` is a text, an integer of any size or a truth value
    kind: Kind
    name: str = ""  # of a record's type; equal names mean equal shapes
    fields: tuple[tuple[str, ValueShape], ...] = ()  # of a record: name and shape
    item: ValueShape | None = None  # of a list, or of a map from texts
    optional: bool = False  # whether null may stand in its place
    doc: str = ""  # one sentence for readers

    @property
    def inner(self) -> ValueShape:
        """The shape of the items of a list or a map."""
        assert self.item is not None
        return self.item


TEXT, WHOLE, REAL, NUMBER = (
    ValueShape("text"),
    ValueShape("whole"),
    ValueShape("real"),
    ValueShape("number"),
)
TRUTH, SCALAR = ValueShape("truth"), ValueShape("scalar")


def record(name: str, fields: Iterable[tuple[str, ValueShape]], doc: str = "") -> ValueShape:
    return ValueShape("record", name, tuple(fields), doc=doc)


def listed(item: ValueShape) -> ValueShape:
    """A list whose items have one shape."""
    return ValueShape("list", item=item)


def mapped(item: ValueShape) -> ValueShape:
    """A map from texts to values of one shape."""
    return ValueShape("map", item=item)


def maybe(shape: ValueShape) -> ValueShape:
    """The same shape, or null."""
    return msgspec.structs.replace(shape, optional=True)


def shape_of(value: object, name: str) -> ValueShape:
    """The shape of a public constant, such as a stated bound.

    Args:
        value: a JSON value whose lists have items of one shape; anything else is a `TypeError`.
        name: name of the record, if it is one; records within are named after their field.

    >>> shape_of({"budget": 2}, "Bounds") == record("Bounds", [("budget", WHOLE)])
    True
    """
    if isinstance(value, dict):
        inner = ((str(k), shape_of(v, name + str(k).title())) for k, v in value.items())
        return record(name, inner)
    if isinstance(value, list | tuple):
        items = [shape_of(one, name) for one in value]
        whole = next((one for one in items if one != WHOLE), items[0] if items else REAL)
        whole = NUMBER if whole == REAL else whole
        if any(one not in (whole, WHOLE if whole == NUMBER else whole, REAL) for one in items):
            raise TypeError("a list of different things")
        return listed(whole)
    for kind, shape in ((bool, TRUTH), (int, WHOLE), (float, NUMBER), (str, TEXT)):
        if isinstance(value, kind):
            return shape
    if value is None:
        return maybe(TEXT)
    raise TypeError(type(value).__name__)


def plain_names(names: Iterable[str]) -> list[str]:
    """Names that Avro and Protobuf allow, in the same order and distinct.

    >>> plain_names(["trip.zone", "trip_zone", "9"])
    ['trip_zone', 'trip_zone_2', 'x9']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if plain[:1].isalpha() else f"x{plain}"
        made, number = plain, 1
        while _folded(made) in taken:
            number += 1
            made = f"{plain}_{number}"
        taken.add(_folded(made))
        found.append(made)
    return found


def _folded(name: str) -> str:
    """A name as generated code may write it: names that differ only in case would collide."""
    return name.replace("_", "").lower()


def names_of(shape: ValueShape) -> Iterator[tuple[str, str, ValueShape]]:
    """Name, plain name (see `plain_names`), and shape of each field of a record."""
    plain = plain_names(name for name, _ in shape.fields)
    for (name, inner), allowed in zip(shape.fields, plain, strict=True):
        yield name, allowed, inner


def namespace(pipeline: str) -> str:
    """The namespace, or package, of a pipeline's records.

    >>> namespace("purchases-eu"), namespace("2b")
    ('hush.purchases_eu', 'hush._2b')
    """
    plain = pipeline.replace("-", "_")
    return f"hush.{plain if plain[0].isalpha() else '_' + plain}"
