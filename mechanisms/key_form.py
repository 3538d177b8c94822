"""The form of released keys: columns of the record (`RecordKeys`), or a mechanism's own bytes.

The rest of the product asks a key's form for names, texts, places and types of columns, and never
depends on the kind of mechanism that made the key.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from .keys import Keys

Kind = Literal["text", "whole"]


class Place(NamedTuple):
    """Meaning of a key in terms that need no mechanism code.

    Attributes:
        key: a value per key column.
        box: lower and upper end per coordinate, in the unit of the input; {} where keys do not
            divide a space.
    """

    key: dict[str, Any]
    box: dict[str, tuple[float, float]]


class KeyForm(ABC):
    """Form of released keys.

    Attributes:
        of_record: whether keys are columns of the record; a mechanism may have inputs besides.
        replaces: whether a key absent from a release is gone; otherwise its last value stays.
        kinds: type of each key column that the mechanism defines itself.
    """

    of_record: ClassVar[bool]
    replaces: ClassVar[bool] = False
    kinds: ClassVar[Mapping[str, Kind]] = MappingProxyType({})

    @abstractmethod
    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Names of a released key's columns; ``columns`` are the pipeline's."""

    @abstractmethod
    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """Meaning of released keys, in their order."""

    @abstractmethod
    def text(self, key: bytes) -> str:
        """The key as the last part of a record key."""

    @abstractmethod
    def key(self, text: str) -> bytes:
        """The key that `text` gives as this text; raises `ValueError` if there is none."""

    def geometry(self) -> dict[str, Any]:
        """The public space that keys divide, as plain JSON for manifests; {} where there is none.

        It states axes, depth and split, and a region: polygons, cells, or neither.
        """
        return {}


class RecordKeys(KeyForm):
    """Keys are columns of the record, in canonical JSON.

    >>> form = RecordKeys()
    >>> list(form.places(Keys.of([b'["Queens",4]']), ("zone", "hour")))
    [Place(key={'zone': 'Queens', 'hour': 4}, box={})]
    """

    of_record = True

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The pipeline's columns."""
        return tuple(columns)

    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """The values of each column."""
        values = json.loads(b"[%b]" % b",".join(keys.tolist()))  # at once: a call costs more
        return (Place(dict(zip(columns, one, strict=True)), {}) for one in values)

    def text(self, key: bytes) -> str:
        """The JSON itself."""
        return key.decode()

    def key(self, text: str) -> bytes:
        """The JSON itself."""
        return text.encode()


class OwnKeys(KeyForm):
    """Keys are a mechanism's own bytes; this base class describes a single row without columns."""

    of_record = False

    def names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The names of `kinds`."""
        return tuple(self.kinds)

    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """No column and no box."""
        return [Place({}, {}) for _ in range(len(keys))]

    def text(self, key: bytes) -> str:
        """The bytes, in hexadecimal."""
        return key.hex()

    def key(self, text: str) -> bytes:
        """The bytes of hexadecimal digits."""
        return bytes.fromhex(text)


RECORD_KEYS, ONE_ROW = RecordKeys(), OwnKeys()
