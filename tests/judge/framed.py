"""Values with schemas of a registry, read as JSON by libraries of these formats.

The producer chooses the schema, so the judge knows only Confluent's frame: a zero byte, the
schema's id in four bytes, for Protobuf the index of the message, and the value.
"""

import base64
import io
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2

from .encodings import HEAD, Texts
from .proto_classes import first_of, message_class

NOTHING = b"?"
"""Stands for a value that cannot be read: it is not JSON either."""


def unframed(encoding: str, value: bytes | None, texts: Texts) -> bytes | None:
    """A value as JSON; `NOTHING` if the value does not fit its schema, or there is no schema."""
    if encoding == "json" or value is None:
        return value
    try:
        if value[:1] != b"\0":
            return NOTHING
        of, text = texts[int.from_bytes(value[1:HEAD], "big")]
        return (
            json.dumps(told(_READERS[of](text)(value[HEAD:]))).encode()
            if of == encoding
            else NOTHING
        )
    except Exception:  # libraries raise many kinds of errors for bytes that they cannot read
        return NOTHING


def told(value: Any) -> Any:
    """A value as JSON has it; a value that no pipeline can read as a single value becomes []."""
    if isinstance(value, dict):
        return {name: told(one) for name, one in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return []


@cache
def _avro(text: str) -> Callable[[bytes], Any]:
    schema = fastavro.parse_schema(json.loads(text))

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, schema, None)
        if source.read():
            raise ValueError("bytes are left over")
        return value

    return read


@cache
def _protobuf(text: str) -> Callable[[bytes], Any]:
    try:  # some registries return the file as they received it
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        made = first_of(file)
    except ValueError:
        made = message_class(text)

    def read(data: bytes) -> Any:
        if data[:1] != b"\0":
            raise ValueError("of another message than the first")
        return _message(made.FromString(data[1:]))

    return read


def _message(message: Any) -> dict[str, Any]:
    found = dict[str, Any]()
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            value = None
        elif hasattr(value, "DESCRIPTOR"):
            value = _message(value)
        found[field.name] = value
    return found


_READERS: dict[str, Callable[[str], Callable[[bytes], Any]]] = {
    "avro": _avro, "protobuf": _protobuf, "json_schema": lambda text: json.loads,
}  # fmt: skip
