"""Values of a topic with schemas of a registry as JSON, read by libraries of these formats.

Whoever writes such a topic chooses the schema, so nothing is known here but Confluent's frame: a
zero byte, the schema's id in four bytes, in Protobuf the place of the message, and the value.
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
"""Is no JSON, as a value that cannot be read is none."""


def unframed(encoding: str, value: bytes | None, texts: Texts) -> bytes | None:
    """A value as JSON; `NOTHING` where it is not what its schema says, or has none."""
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
    except Exception:  # whatever a library says of bytes that it cannot read
        return NOTHING


def told(value: Any) -> Any:
    """A value as JSON has it; what no pipeline reads as a single value is a list."""
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
    try:  # some registries give the file as they got it
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
