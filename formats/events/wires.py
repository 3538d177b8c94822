"""Values behind the id of a schema: what differs between Avro and Protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64
from ..schemas.avro import compile_avro
from ..schemas.avro_types import parse_avro
from ..schemas.batch import FieldColumn, Payloads
from ..schemas.proto_text import ParsedFiles
from ..schemas.protobuf import Message, message_indexes
from ..schemas.schema import Schema, UnusableSchema
from .binary.avro_program import avro_program
from .binary.program import NoProgram, Program
from .binary.proto_program import proto_program

_MESSAGES = 4  # message types of one schema that are told apart in one list of records
_PLACE = 16  # bytes of a message's place in its file; nearly all have one

Run = Callable[[Payloads, Any, Mapping[str, FieldColumn]], Any]
"""A compiled schema: reads fields of some rows; rows that do not fit are marked in the batch."""


class Wire(Protocol):
    """How values of one format stand behind their schema's id.

    Attributes:
        kind: type of their schemas in a registry.
        ordered: whether fields stand in the order of the schema.
        head: bytes that nearly always say which type of a schema a value has.
    """

    kind: str
    ordered: bool
    head: int

    def place(self, value: bytes) -> bytes:
        """The bytes that say which type of its schema a value has; empty if there are none."""

    def places(
        self, data: NDArray[np.uint8], begin: I64, end: I64, rows: I64
    ) -> Iterator[tuple[bytes, I64]]:
        """Rows by `place`, as far as there are few of these.

        Args:
            data: a buffer with all values.
            begin, end: (n,) where each stands.
            rows: those of one schema.
        """

    def reader(self, schema: Schema, place: bytes, wanted: Mapping[str, Any]) -> Run:
        """Compile a type, for records one by one.

        Args:
            schema: of the writer.
            place: of the type.
            wanted: nested names of the needed fields; a leaf has None.

        Raises:
            UnusableSchema: it cannot be used.
        """

    def program(
        self, schema: Schema, place: bytes, wanted: Mapping[str, Any], places: Mapping[str, int]
    ) -> Program:
        """Compile a type, for loops over many records.

        Args:
            schema, place, wanted: as for `reader`.
            places: number of each needed field, by path.

        Raises:
            NoProgram: its records are read one by one.
            UnusableSchema: it cannot be used.
            ValueError: no type is named.
        """


class AvroWire:
    """Avro: one type for each schema."""

    kind, ordered, head = "AVRO", True, 0

    def place(self, value: bytes) -> bytes:
        """As `Wire.place`."""
        return b""

    def places(
        self, data: NDArray[np.uint8], begin: I64, end: I64, rows: I64
    ) -> Iterator[tuple[bytes, I64]]:
        """As `Wire.places`."""
        yield b"", rows

    def reader(self, schema: Schema, place: bytes, wanted: Mapping[str, Any]) -> Run:
        """As `Wire.reader`."""
        return compile_avro(parse_avro(schema), wanted)

    def program(
        self, schema: Schema, place: bytes, wanted: Mapping[str, Any], places: Mapping[str, int]
    ) -> Program:
        """As `Wire.program`."""
        return avro_program(parse_avro(schema), wanted, places)


class ProtoWire:
    """Protobuf: a value begins with the place of its message type in the file."""

    kind, ordered, head = "PROTOBUF", False, 1

    def __init__(self) -> None:
        self._files = ParsedFiles()

    def place(self, value: bytes) -> bytes:
        """As `Wire.place`."""
        try:
            _, size = message_indexes(value)
        except ValueError:
            return b""
        return value[:size]

    def places(
        self, data: NDArray[np.uint8], begin: I64, end: I64, rows: I64
    ) -> Iterator[tuple[bytes, I64]]:
        """As `Wire.places`."""
        rows = rows[end[rows] > begin[rows]]
        for _ in range(_MESSAGES):
            if not len(rows):
                return
            at = int(begin[rows[0]])
            head = self.place(data[at : min(at + _PLACE, int(end[rows[0]]))].tobytes())
            if not head:
                rows = rows[1:]
                continue
            same = begin[rows] + len(head) <= end[rows]
            for n, byte in enumerate(head):
                same &= data[np.minimum(begin[rows] + n, len(data) - 1)] == byte
            yield head, rows[same]
            rows = rows[~same]

    def reader(self, schema: Schema, place: bytes, wanted: Mapping[str, Any]) -> Run:
        """As `Wire.reader`."""
        try:
            indexes, _ = message_indexes(place)
        except ValueError as error:
            raise UnusableSchema("no message is named") from error
        return Message(self._files.message(schema, indexes), wanted, "").read

    def program(
        self, schema: Schema, place: bytes, wanted: Mapping[str, Any], places: Mapping[str, int]
    ) -> Program:
        """As `Wire.program`."""
        indexes, size = message_indexes(place)
        if size != len(place):
            raise NoProgram
        return proto_program(self._files.message(schema, indexes), places)
