"""Avro schemas to programs: one step for each value of a record, in byte order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schemas.avro_types import AvroType
from .program import FAR, MOST_DEPTH, Maker, NoProgram, Program

END, REFUSE, JUMP, NEXT, TRUTH, NARROW, WIDE, SKIP, NUMBER, SYMBOL, BYTES, UNION, BLOCK = range(13)
"""Steps. From `TRUTH` on they read bytes; from `NUMBER` on the bytes begin with a number.

Operands: each step has its field (-1 if no pipeline reads it) unless noted otherwise. `SYMBOL`:
also its first symbol and their number. `SKIP`: bytes. `UNION`: the place of its first branch in the
jumps, and their number. `JUMP`: the target. `BLOCK`: the end of the list. `NEXT`: its `BLOCK`.
"""

_LEAVES = {
    "int": NUMBER, "long": NUMBER, "float": NARROW, "double": WIDE, "boolean": TRUTH,
    "enum": SYMBOL, "string": BYTES,
}  # fmt: skip


def avro_program(schema: AvroType, wanted: Mapping[str, Any], places: Mapping[str, int]) -> Program:
    """Make the program of a writer's schema.

    ``wanted`` has nested names, None for a leaf; ``places`` maps the path of each needed field to
    its number. Raises `NoProgram` if the schema is too deep or too long, or no program can express
    it.
    """
    made = _Maker(places)
    made.read(schema, wanted, "", 0)
    made.step(END)
    return made.made()


class _Maker(Maker):
    def __init__(self, places: Mapping[str, int]) -> None:
        super().__init__(len(places))
        self._places = places

    def read(self, kind: AvroType, wanted: Mapping[str, Any] | None, path: str, depth: int) -> None:
        """Add the steps of a value that contains a needed field, as `compile_avro` reads it."""
        if depth > MOST_DEPTH:
            raise NoProgram
        if wanted is not None and not wanted:
            self._skip(kind, depth)
        elif kind.kind == "union":
            self._union(kind, wanted, path, depth)
        elif wanted is None and kind.kind in _LEAVES:
            self._leaf(kind, self._places[path])
        elif wanted is not None and kind.kind == "record":
            for name, part in zip(kind.names, kind.parts, strict=True):
                inner = f"{path}.{name}" if path else name
                self.read(part, wanted.get(name, {}), inner, depth + 1)
        else:  # null, or a type that no field may have
            self.step(REFUSE)

    def _union(
        self, kind: AvroType, wanted: Mapping[str, Any] | None, path: str, depth: int
    ) -> None:
        first = len(self.jumps)
        self.jumps += [0] * len(kind.parts)
        self.step(UNION, first, len(kind.parts))
        ends = []
        for branch, part in enumerate(kind.parts):
            self.jumps[first + branch] = len(self.code)
            self.read(part, wanted, path, depth + 1)
            ends.append(self.step(JUMP))
        for end in ends:
            self.code[end][1] = len(self.code)

    def _leaf(self, kind: AvroType, place: int) -> None:
        if kind.kind == "enum":
            words = dict(enumerate(kind.symbols)) if place >= 0 else {}
            first, _ = self.symbols(words)
            self.step(SYMBOL, place, first, len(kind.symbols))
        else:
            self.step(_LEAVES[kind.kind], place)

    def _skip(self, kind: AvroType, depth: int) -> None:
        if kind.kind == "bytes":
            self.step(BYTES, -1)
        elif kind.kind == "fixed":
            if kind.size:
                self.step(SKIP, min(kind.size, FAR))
        elif kind.kind in _LEAVES:
            self._leaf(kind, -1)
        elif kind.kind == "union":
            self._union(kind, {}, "", depth)
        elif kind.kind in ("array", "map"):
            self._blocks(kind, depth)
        else:
            for part in kind.parts:  # of a record; null has none
                self.read(part, {}, "", depth + 1)

    def _blocks(self, kind: AvroType, depth: int) -> None:
        begin = self.step(BLOCK)
        if kind.kind == "map":
            self.step(BYTES, -1)
        self.read(kind.parts[0], {}, "", depth + 1)
        if len(self.code) == begin + 1:  # items without bytes: any number would fit
            raise NoProgram
        self.step(NEXT, begin)
        self.code[begin][1] = len(self.code)
