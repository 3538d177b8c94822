"""Released records in Avro, Protobuf or JSON Schema, read as JSON by libraries of these formats.

Schemas are given as texts. Where a format does not allow a name, the schema has it in a comment.
"""

import io
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import fastavro
import jsonschema
from google.protobuf.message import DecodeError, Message

from .proto_classes import message_class

Texts = Mapping[int, tuple[str, str]]  # id of a schema -> format and text
HEAD = 5
COMMENT = re.compile(r"^(?:message (\w+) \{|.* (\w+) = \d+;(?:\s*// (.*))?)$")


def plain(value: bytes | None, texts: Texts) -> bytes:
    """A record as JSON. A value that does not begin with a zero byte is JSON already.

    Args:
        value: the record's value.
        texts: texts of all schemas.

    Raises:
        ValueError, KeyError: the value does not fit its schema, or there is no such schema.
    """
    if value is None or value[:1] != b"\0":
        return value or b""
    encoding, text = texts[int.from_bytes(value[1:HEAD], "big")]
    return json.dumps(_READERS[encoding](text)(value[HEAD:])).encode()


@cache
def _avro(text: str) -> Callable[[bytes], Any]:
    raw = json.loads(text)
    schema = fastavro.parse_schema(json.loads(text), _write_hint=False)
    named: dict[str, Any] = {}

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, schema, None)
        if source.read():
            raise ValueError("bytes are left over")
        return _named(value, raw, named)

    return read


def _named(value: Any, kind: Any, named: dict[str, Any]) -> Any:
    """An Avro value with the names that it has in JSON."""
    if isinstance(kind, str):
        kind = named.get(kind, kind)
    if isinstance(kind, list):
        inner = [one for one in kind if one != "null"]
        if value is None or len(inner) == 1:
            return None if value is None else _named(value, inner[0], named)
        return int(value) if isinstance(value, bytes) else value
    if not isinstance(kind, dict):
        return value
    if kind["type"] == "array":
        return [_named(one, kind["items"], named) for one in value]
    if kind["type"] == "map":
        return {name: _named(one, kind["values"], named) for name, one in value.items()}
    named[kind["name"]] = kind
    return {
        told(one["name"], one.get("doc", "")): _named(value[one["name"]], one["type"], named)
        for one in kind["fields"]
    }


@cache
def _protobuf(text: str) -> Callable[[bytes], Any]:
    made, comments, within = message_class(text), dict[tuple[str, str], str](), ""
    for line in text.splitlines():
        if found := COMMENT.match(line.strip()):
            within = found.group(1) or within
            comments[within, found.group(2) or ""] = found.group(3) or ""

    def read(data: bytes) -> Any:
        try:
            message = made.FromString(data[1:])
        except DecodeError as error:
            raise ValueError("not a message") from error
        # Otherwise bytes are left over, or differ from those that the library writes.
        if data[:1] != b"\0" or message.SerializeToString(deterministic=True) != data[1:]:
            raise ValueError("bytes of something else")
        return _one(message, comments)

    return read


def _one(value: Any, comments: Mapping[tuple[str, str], str]) -> Any:
    """One Protobuf value as JSON has it."""
    if not isinstance(value, Message):
        return value
    name, fields = value.DESCRIPTOR.name, value.DESCRIPTOR.fields
    if name == "Scalar":
        which = value.WhichOneof("kind") or "nothing"
        return int(value.large) if which == "large" else getattr(value, which)
    if [one.name for one in fields] == ["items"]:
        return _field(value, fields[0], comments)
    return {
        told(one.name, comments.get((name, one.name), "")): _field(value, one, comments)
        for one in fields
    }


def _field(message: Any, field: Any, comments: Mapping[tuple[str, str], str]) -> Any:
    value, inner = getattr(message, field.name), field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return {name: _one(value[name], comments) for name in value}
    if hasattr(value, "extend"):
        return [_one(one, comments) for one in value]
    absent = field.has_presence and not message.HasField(field.name)
    return None if absent else _one(value, comments)


@cache
def _json(text: str) -> Callable[[bytes], Any]:
    validator = jsonschema.Draft7Validator(json.loads(text))

    def read(data: bytes) -> Any:
        body = json.loads(data)
        if not validator.is_valid(body):
            raise ValueError("not as the schema says")
        return body

    return read


def told(name: str, comment: str) -> str:
    """The JSON name of a field: the one at the start of its comment, or else its own.

    >>> told("trip_zone", "trip.zone."), told("x9_2", "9. Of a key."), told("start", "Of a window.")
    ('trip.zone', '9', 'start')
    """
    for dot in re.finditer(r"\.(?: |$)", comment):
        allowed = re.sub(r"[^A-Za-z0-9_]", "_", comment[: dot.start()])
        allowed = allowed if allowed[:1].isalpha() else f"x{allowed}"
        if re.fullmatch(rf"{re.escape(allowed)}(_\d+)?", name):
            return comment[: dot.start()]
    return name


_READERS = {"avro": _avro, "protobuf": _protobuf, "json_schema": _json}
