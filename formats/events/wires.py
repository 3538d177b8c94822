"""Values after a schema id: what differs between Avro and Protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..schemas.avro import compile_avro
from ..schemas.avro_types import parse_avro
from ..schemas.batch import FieldColumn, Payloads
from ..schemas.proto_text import ParsedFiles
from ..schemas.protobuf import Message, message_indexes
from ..schemas.schema import Schema
from .binary.avro_program import avro_program
from .binary.program import Program
from .binary.proto_program import proto_program

Run = Callable[[Payloads, Any, Mapping[str, FieldColumn]], Any]
"""A compiled schema: reads fields of some rows, and marks rows that do not fit as bad."""


class AvroWire:
    """Avro: one type for each schema.

    Attributes:
        kind: type of its schemas in a registry.
        ordered: whether fields stand in the order of the schema.
        head: bytes that nearly always suffice to tell a value's type within its schema.
    """

    kind, ordered, head = "AVRO", True, 0

    def place(self, value: bytes) -> bytes | None:
        """The bytes that tell a value's type within its schema; None if they are broken."""
        return b""

    def reader(self, schema: Schema, place: bytes, wanted: Mapping[str, Any]) -> Run:
        """Compile the type at a place of a writer's schema, for records one by one.

        ``wanted`` has nested names, None for a leaf. Raises `UnusableSchema` if that is impossible.
        """
        return compile_avro(parse_avro(schema), wanted)

    def program(
        self, schema: Schema, place: bytes, wanted: Mapping[str, Any], places: Mapping[str, int]
    ) -> Program:
        """Compile a type, as `reader` does, for loops over many records.

        ``places`` has the number of each needed field, by path. Raises `NoProgram` if records must
        be read one by one, `UnusableSchema` if they cannot be read at all.
        """
        return avro_program(parse_avro(schema), wanted, places)


class ProtoWire:
    """Protobuf: a value begins with the place of its message type in the file. As `AvroWire`."""

    kind, ordered, head = "PROTOBUF", False, 1

    def __init__(self) -> None:
        self._files = ParsedFiles()

    def place(self, value: bytes) -> bytes | None:
        """As `AvroWire.place`."""
        try:
            _, size = message_indexes(value)
        except ValueError:
            return None
        return value[:size]

    def reader(self, schema: Schema, place: bytes, wanted: Mapping[str, Any]) -> Run:
        """As `AvroWire.reader`."""
        indexes, _ = message_indexes(place)
        return Message(self._files.message(schema, indexes), wanted, "").read

    def program(
        self, schema: Schema, place: bytes, wanted: Mapping[str, Any], places: Mapping[str, int]
    ) -> Program:
        """As `AvroWire.program`."""
        indexes, _ = message_indexes(place)
        return proto_program(self._files.message(schema, indexes), places)


Wire = AvroWire | ProtoWire
