"""The bytes of released records: JSON, or the wire format of a schema registry.

A record in wire format begins with a zero byte, the number of its schema and, for Protobuf, the
place of the message in its file. JSON never begins with a zero byte, so each record shows which of
the two it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ...errors import EngineError
from ..bytes_in import HEAD, BrokenBytes, Bytes, schema_id
from ..canonical import encode
from . import avro_codec, json_codec, proto_codec, proto_read
from .shape import ValueShape

Encoding = Literal["json", "avro", "protobuf", "json_schema"]
MAGIC: Final = b"\0"
FIRST: Final = b"\0"  # the record is the first message of its file
MOST_ID: Final = (1 << 31) - 1


class Written(NamedTuple):
    """Writer and reader of records in one format."""

    first: bytes  # bytes before each value
    # makes a schema's text, as registered, from a shape and its namespace
    schema: Callable[[ValueShape, str], str]
    writer: Callable[[ValueShape], Callable[[Any, bytearray], None]]  # appends a record to bytes
    to_json: Callable[[ValueShape], Callable[[Bytes], bytes]]  # reads one as JSON


def _as_json(reader: Callable[[ValueShape], Callable[[Bytes], Any]]) -> Any:
    def of(shape: ValueShape) -> Callable[[Bytes], bytes]:
        read = reader(shape)
        return lambda data: msgspec.json.encode(read(data))

    return of


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


WRITTEN: Final[dict[str, Written]] = {
    "avro": Written(
        b"",
        lambda shape, package: _text(avro_codec.schema(shape, package)),
        avro_codec.writer,
        _as_json(avro_codec.reader),
    ),
    "protobuf": Written(FIRST, proto_codec.schema, proto_codec.writer, _as_json(proto_read.reader)),
    "json_schema": Written(
        b"",
        lambda shape, package: _text(json_codec.schema(shape, f"{package}.{shape.name}")),
        lambda shape: lambda body, out: out.extend(encode(body)),
        lambda shape: lambda data: data.take(data.left),
    ),
}
"""Encoding -> how records are written; plain JSON needs no schema."""


class UnknownSchema(EngineError, ValueError):
    """A record names a schema that the reader does not know."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"a record has schema {number}, which no announcement describes: it was not "
            "written by a pipeline whose release.encoding `hush topics` has set up"
        )


@dataclass(frozen=True)
class Described:
    """One kind of record in wire format."""

    encoding: Encoding  # of the bytes; never ``json``
    number: int  # of the schema in the registry
    shape: ValueShape  # of the record

    def encode(self, body: Any) -> bytes:
        """Write a record; the same record gives the same bytes everywhere.

        Another shape is a `KeyError` or `ValueError`.
        """
        out = bytearray(MAGIC + self.number.to_bytes(HEAD - 1, "big") + self._written.first)
        self._writer(body, out)
        return bytes(out)

    def to_json(self, value: bytes) -> bytes:
        """Read a record that has this schema's number, as JSON; raises `BrokenBytes`."""
        begin = HEAD + len(self._written.first)
        if value[HEAD:begin] != self._written.first:
            raise BrokenBytes
        data = Bytes(value, begin, len(value))
        body = self._reader(data)
        if data.left:
            raise BrokenBytes
        return body

    @property
    def _written(self) -> Written:
        return WRITTEN[self.encoding]

    @cached_property
    def _writer(self) -> Callable[[Any, bytearray], None]:
        return self._written.writer(self.shape)

    @cached_property
    def _reader(self) -> Callable[[Bytes], bytes]:
        return self._written.to_json(self.shape)


def to_json(value: bytes | None, known: Mapping[int, Described]) -> bytes:
    """Read a record of any encoding as JSON; ``known`` has schemas by number.

    Raises:
        UnknownSchema: its schema is not known.
        BrokenBytes: the bytes are not what their schema says.
    """
    number = schema_id(value)
    if number is None or value is None:
        return value or b""
    if number not in known:
        raise UnknownSchema(number)
    return known[number].to_json(value)


@dataclass(frozen=True)
class ReleaseCodec:
    """Writes the records of a pipeline, and reads them back.

    Attributes:
        records: codecs by the name of the header; empty: JSON.
    """

    records: Mapping[str, Described] = field(default_factory=dict)

    def encode(self, kind: str, body: Any) -> bytes:
        """Write the JSON record ``body`` of a kind, the name of its header."""
        return self.records[kind].encode(body) if self.records else encode(body)

    def to_json(self, value: bytes | None) -> bytes:
        """Read a record that this pipeline may have written; see the module's `to_json`."""
        return to_json(value, self._known)

    @cached_property
    def _known(self) -> Mapping[int, Described]:
        return {one.number: one for one in self.records.values()}


JSON: Final = ReleaseCodec()


class Announced(msgspec.Struct, frozen=True):
    """The schema of a kind of record, announced to readers beside the topic's owner."""

    topic: str  # release topic
    header: str  # name of the records' header
    encoding: Encoding  # of the records
    number: int  # of the schema in the registry
    shape: ValueShape  # of the record

    @property
    def described(self) -> Described:
        """The same as a `Described`, for reading."""
        return Described(self.encoding, self.number, self.shape)


def digest(text: str) -> str:
    """The SHA-256 of a schema's text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
