"""Message classes of the official library for a .proto text of ours, without the compiler."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

KIND = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "string": KIND.TYPE_STRING, "int64": KIND.TYPE_INT64, "double": KIND.TYPE_DOUBLE,
    "bool": KIND.TYPE_BOOL, "bytes": KIND.TYPE_BYTES,
}  # fmt: skip
FIELD = re.compile(r"(repeated |optional )?(map<string, \w+>|\w+) (\w+) = (\d+);$")


def message_class(text: str) -> Any:
    """The class of the first message of a .proto text."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", syntax="proto3")
    message, oneof = None, False
    for line in (raw.partition("//")[0].strip() for raw in text.splitlines()):
        if line.startswith("package "):
            file.package = line.removeprefix("package ").rstrip(";")
        elif line.startswith("message "):
            message = file.message_type.add(name=line.split()[1])
        elif line.startswith("oneof "):
            assert message is not None
            message.oneof_decl.add(name=line.split()[1])
            oneof = True
        elif line == "}" and oneof:
            oneof = False
        elif found := FIELD.match(line):
            assert message is not None
            _add(file.package, message, oneof, *found.groups())
        else:
            assert line in ("", "}", 'syntax = "proto3";'), line
    for message in file.message_type:  # oneofs of optional fields come after all others
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    return first_of(file)


def first_of(file: descriptor_pb2.FileDescriptorProto) -> Any:
    """The class of the first message of a file."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    first = ".".join(filter(None, (file.package, file.message_type[0].name)))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(first))


def _add(
    package: str, message: Any, oneof: bool, label: str | None, kind: str, name: str, number: str
) -> None:
    field = message.field.add(name=name, number=int(number), label=KIND.LABEL_OPTIONAL)
    if kind.startswith("map<"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(package, entry, False, None, "string", "key", "1")
        _add(package, entry, False, None, kind[12:-1], "value", "2")
        field.label, field.type = KIND.LABEL_REPEATED, KIND.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
        return
    if label == "repeated ":
        field.label = KIND.LABEL_REPEATED
    if kind in TYPES:
        field.type = TYPES[kind]
        field.proto3_optional = label == "optional "
    else:
        field.type, field.type_name = KIND.TYPE_MESSAGE, f".{package}.{kind}"
    if oneof:
        field.oneof_index = 0
