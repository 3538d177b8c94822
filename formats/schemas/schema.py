"""A registry's schema as a deployment keeps it: its text, and the texts that it refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

MAX_TEXT = 400_000  # bytes of a schema with its references: they must fit into one batch


class Verdict(Enum):
    """Answers about an id other than a schema."""

    UNKNOWN = "the registry has no such schema"
    PENDING = "it has not answered yet"


class UnusableSchema(Exception):
    """A schema cannot be understood; the message is for tests and quotes nothing private."""


@dataclass(frozen=True)
class Schema:
    """One schema, complete."""

    kind: str  # as registries name it: "AVRO", "PROTOBUF" or "JSON"
    text: str  # of the schema
    # name and text of each schema that it refers to, those without references first
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        texts = [self.text, *(part for pair in self.references for part in pair)]
        return sum(len(text.encode()) for text in texts)

    def encode(self) -> bytes:
        """Encode it as JSON, for a row of the state."""
        return msgspec.json.encode([self.kind, self.text, self.references])


class Pinned(NamedTuple):
    """A schema, and where in a partition it became known."""

    schema: Schema  # meaning of its id in this partition, whatever the registry says later
    since: int  # offset; earlier records were read while the id was unknown

    def encode(self) -> bytes:
        """Encode it as JSON, for a row of the state."""
        return b"%d %b" % (self.since, self.schema.encode())


Known = Mapping[int, Pinned]
"""The meaning of each id in one partition."""


def decode_pinned(row: bytes) -> Pinned:
    """Decode a row that `Pinned.encode` wrote.

    >>> made = Pinned(Schema("AVRO", "{}"), 7)
    >>> decode_pinned(made.encode()) == made
    True
    """
    since, _, rest = row.partition(b" ")
    kind, text, references = msgspec.json.decode(rest)
    return Pinned(Schema(kind, text, tuple((name, one) for name, one in references)), int(since))
