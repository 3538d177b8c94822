"""Protobuf message types to programs: one line for each field that must be examined."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.proto_types import ProtoField, ProtoMessage
from .program import Maker, NoProgram, Program

(INT32, INT64, UINT32, UINT64, SINT32, SINT64, TRUTH, ENUM, FIXED32, SFIXED32, FLOAT,
 FIXED64, SFIXED64, DOUBLE, TEXT_OF, REFUSE) = range(16)  # fmt: skip
"""Kinds of fields. A line is a field's number, kind, place, first symbol, and symbol count."""

_KINDS = {
    "int32": INT32, "int64": INT64, "uint32": UINT32, "uint64": UINT64, "sint32": SINT32,
    "sint64": SINT64, "bool": TRUTH, "enum": ENUM, "fixed32": FIXED32, "sfixed32": SFIXED32,
    "float": FLOAT, "fixed64": FIXED64, "sfixed64": SFIXED64, "double": DOUBLE, "string": TEXT_OF,
}  # fmt: skip
_LAST = (1 << 29) - 1  # highest number of a field


def proto_program(message: ProtoMessage, places: Mapping[str, int]) -> Program:
    """Make the program of a writer's message; ``places`` has each needed field's number, by path.

    Raises `NoProgram` if a needed field is not a single value, or the type is not well-formed.
    """
    numbers = {one.number for one in message.fields}
    names = {one.name for one in message.fields}
    if not len(numbers) == len(names) == len(message.fields):
        raise NoProgram
    if not all(0 < number <= _LAST for number in numbers):
        raise NoProgram
    made = Maker(len(places))
    needed = [one for one in message.fields if one.name in places]
    for one in needed:
        _add(made, one, places[one.name], alone=_alone(one, needed))
    groups = {one.oneof for one in needed if one.oneof}
    for one in message.fields:
        if one.oneof in groups and one not in needed:  # it clears what a needed one has set
            made.step(one.number, REFUSE)
    return made.made()


def _alone(one: ProtoField, needed: list[ProtoField]) -> bool:
    """Whether a field is the only needed one of its group."""
    return not one.oneof or sum(other.oneof == one.oneof for other in needed) == 1


def _add(made: Maker, one: ProtoField, place: int, alone: bool) -> None:
    if one.repeated or one.kind not in _KINDS:
        raise NoProgram
    words = {n: word for n, word in one.symbols.items() if -(1 << 31) <= n < 1 << 31}
    first, count = made.symbols(words if one.kind == "enum" else {})
    made.step(one.number, _KINDS[one.kind] if alone else REFUSE, place, first, count)
    if one.explicit:
        return
    zeros: dict[str, str | float] = {"string": "", "bool": False, "float": 0.0, "double": 0.0}
    made.default(place, words.get(0, 0) if one.kind == "enum" else zeros.get(one.kind, 0))
