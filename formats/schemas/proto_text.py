"""A parser of .proto files, as far as they determine how bytes are read."""

from __future__ import annotations

import re

from .proto_types import (
    MOST_DEPTH,
    SCALARS,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    from_descriptor,
    message_at,
    resolve,
    well_known,
)
from .schema import Schema, UnusableSchema

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|
    (?P<word>[.\w][\w.]*)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|
    (?P<sign>[-+={}\[\]()<>;,:/])""",
    re.VERBOSE | re.DOTALL,
)
_KEPT = 8  # parsed files
_LABELS = ("optional", "required", "repeated")


def parse_text(text: str) -> ProtoFile:
    """Parse a file; raises `UnusableSchema` for unknown syntax."""
    return _Parser(_tokens(text)).file()


def parse_protobuf(schema: Schema) -> ProtoFile:
    """Parse a schema and those that it refers to, and resolve type names.

    Raises `UnusableSchema` if it is not a Protobuf schema.
    """

    def parsed(text: str) -> ProtoFile:
        return from_descriptor(text) or parse_text(text)

    others = [parsed(text) for _, text in schema.references]
    file = parsed(schema.text)
    resolve([file, *others, well_known()])
    return file


class ParsedFiles:
    """The schemas used last, each parsed once.

    Producers choose which message of a schema each record names, and parsing the schema for each
    record would cost far more than the record.
    """

    def __init__(self) -> None:
        self._files: dict[Schema, ProtoFile | UnusableSchema] = {}

    def message(self, schema: Schema, place: tuple[int, ...]) -> ProtoMessage:
        """Find a message of a schema by its place; raises `UnusableSchema` if there is none."""
        if schema not in self._files:
            if len(self._files) >= _KEPT:
                del self._files[next(iter(self._files))]
            try:
                self._files[schema] = parse_protobuf(schema)
            except UnusableSchema as error:
                self._files[schema] = error
        file = self._files[schema]
        if isinstance(file, UnusableSchema):
            raise UnusableSchema(str(file))
        return message_at(file, place)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnusableSchema("not a .proto file")
        if match.lastgroup:
            found.append(match.group())
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._file = ProtoFile()

    def file(self) -> ProtoFile:
        while self._at < len(self._tokens):
            word = self._next()
            if word == "syntax":
                self._expect("=")
                self._file.syntax = self._next().strip("\"'")
                self._expect(";")
            elif word == "package":
                self._file.package = self._next()
                self._expect(";")
            elif word == "message":
                self._file.messages.append(self._message(()))
            elif word == "enum":
                self._enum(())
            elif word == "edition":
                raise UnusableSchema("editions are not read")
            elif word != ";":
                self._statement()
        return self._file

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            raise UnusableSchema("a .proto file ends early")
        return self._tokens[self._at]

    def _next(self) -> str:
        found = self._peek()
        self._at += 1
        return found

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise UnusableSchema(f"a .proto file lacks {token!r}")

    def _statement(self) -> None:
        """Skip a statement, up to its semicolon or the end of its block."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in "{[(") - (token in "}])")
            if depth < 0:
                raise UnusableSchema("a .proto file has a bracket too many")
            if depth == 0 and token in (";", "}"):
                return

    def _message(self, around: tuple[str, ...]) -> ProtoMessage:
        if len(around) >= MOST_DEPTH:
            raise UnusableSchema("messages are nested too deeply")
        name = self._next()
        made = ProtoMessage(self._file.full(*around, name))
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "message":
                made.inner.append(self._message((*around, name)))
            elif word == "enum":
                self._enum((*around, name))
            elif word == "oneof":
                self._oneof(made)
            elif word in ("option", "reserved", "extensions", "extend"):
                self._statement()
            elif word != ";":
                made.fields.append(self._field(word))
        return made

    def _oneof(self, made: ProtoMessage) -> None:
        group = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._statement()
            elif word != ";":
                one = self._field(word)
                one.oneof, one.explicit = group, True
                made.fields.append(one)

    def _field(self, word: str) -> ProtoField:
        label = ""
        if word in _LABELS and self._tokens[self._at + 1 : self._at + 2] != ["="]:
            label, word = word, self._next()
        repeated = label == "repeated"
        if word == "map" and self._peek() == "<":
            while self._next() != ">":
                pass
            word, repeated = "bytes", True
        if word == "group":
            raise UnusableSchema("groups are not read")
        name = self._next()
        self._expect("=")
        number = _number(self._next())
        explicit = label == "optional" or self._file.syntax == "proto2"
        self._options()
        scalar = word in SCALARS and word not in ("message", "enum")
        kind, type_name = (word, "") if scalar else ("", word)
        return ProtoField(name, number, kind, type_name, repeated, explicit)

    def _options(self) -> None:
        """Skip the rest of a field."""
        depth = 0
        while (token := self._next()) != ";" or depth:
            depth += (token in "{[(") - (token in "}])")
            if depth < 0:
                raise UnusableSchema("a .proto file lacks ';'")

    def _enum(self, around: tuple[str, ...]) -> None:
        name, symbols = self._next(), dict[int, str]()
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved"):
                self._statement()
            elif word != ";":
                self._expect("=")
                sign = self._next()
                number = -_number(self._next()) if sign == "-" else _number(sign)
                symbols.setdefault(number, word)
                self._options()
        self._file.enums[self._file.full(*around, name)] = symbols


def _number(text: str) -> int:
    try:
        return int(text, 8) if re.fullmatch("0[0-7]+", text) else int(text, 0)
    except ValueError:
        raise UnusableSchema("a .proto file lacks a number") from None
