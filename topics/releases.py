"""Records of the public topics: header names, and rows and manifests as structs.

Workers write with these names, and readers decode with these types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, TypeAlias

import msgspec

from ..errors import EngineError
from ..formats.bytes_in import BrokenBytes
from ..formats.values.codec import Described, UnknownSchema, to_json

ROW, MANIFEST, GONE = "hush-row", "hush-manifest", "hush-gone"
"""Names of headers: the first two hold the record's schema, the last a trigger's number."""

ROW_SCHEMA, MANIFEST_SCHEMA = "hush.release/2", "hush.manifest/2"

LARGEST = 1e300
"""No pipeline releases such a value; sums of smaller ones fit into a double."""

Scalar: TypeAlias = str | int | float | bool
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class WindowSpan(msgspec.Struct, frozen=True):
    """A window of event time, without its ``end``."""

    start: Time
    end: Time


class Value(msgspec.Struct, frozen=True):
    """A released number, and an interval that covers the noise but never what the bound cut."""

    value: int | float  # at most 2^62 grid steps, so an integer may have more than 64 bits
    stddev: float
    low: float
    high: float
    display_value: int | float | None = None

    def __post_init__(self) -> None:
        if not -LARGEST < self.value < LARGEST:
            raise ValueError("a value is larger than any pipeline can release")


class Row(msgspec.Struct, frozen=True):
    """A released row, with the schema's fields that tables use."""

    schema: str
    release_id: str
    pipeline: str
    window: WindowSpan
    trigger: int
    final: bool
    key: dict[str, Scalar]
    values: dict[str, Value | None]
    box: dict[str, tuple[float, float]] = {}


class Privacy(msgspec.Struct, frozen=True):
    """A manifest's statement of the guarantee."""

    unit: str
    epsilon: float
    delta: float
    epoch: int
    pipeline_epsilon_total: float | None = None
    pipeline_epsilon_limit: float | None = None


class CutTold(msgspec.Struct, frozen=True):
    """A manifest's statement of the records that the bound cut; without it the share is unknown."""

    # records of the window up to the trigger, at most ``cap`` per unit and epoch,
    # with noise
    arrived: Whole
    arrived_stddev: float  # standard deviation of its noise
    accepted: Whole  # those that the bound accepted, with independent noise
    accepted_stddev: float  # of that
    cap: int  # most records of a unit that count as arrived
    share: float | None  # estimate of the share that was cut; None if noise leaves none
    # low, high: interval of the share at the manifest's confidence level
    low: float
    high: float


class Manifest(msgspec.Struct, frozen=True):
    """Everything that all rows of one shard and trigger have in common.

    ``cut`` is None if the release does not state what the contribution bound cut.
    """

    schema: str
    pipeline: str
    window: WindowSpan
    trigger: int
    triggers: int
    final: bool
    shard: int
    shards: int
    rows: int
    key_names: tuple[str, ...]
    value_names: tuple[str, ...]
    replaces: bool
    mechanism: str
    confidence_level: float
    emitted_at: Time
    privacy: Privacy
    space: msgspec.Raw = msgspec.Raw(b"")
    public: msgspec.Raw = msgspec.Raw(b"")
    cut: CutTold | None = None
    follows: tuple[str, ...] = ()
    view: msgspec.Raw = msgspec.Raw(b"")

    @property
    def hops(self) -> tuple[int, int] | None:
        """Hops in this window, and in a whole window; None if windows do not overlap."""
        return _PUBLIC.decode(self.public).hops if self.public else None

    @property
    def beyond(self) -> tuple[int, int, int] | None:
        """Values at or above a threshold in parts per million, and both ends of the interval.

        None if the release does not state it.
        """
        return _PUBLIC.decode(self.public).beyond if self.public else None


class ToldOfWindow(msgspec.Struct, frozen=True):
    """The public figures of a manifest that are read here."""

    hops: tuple[Whole, Whole] | None = None
    beyond: tuple[Whole, Whole, Whole] | None = None


_ROW = msgspec.json.Decoder(Row)
_MANIFEST = msgspec.json.Decoder(Manifest)
_PUBLIC = msgspec.json.Decoder(ToldOfWindow)


def decode_public(
    headers: Sequence[tuple[str, bytes]],
    value: bytes | None,
    known: Mapping[int, Described] = MappingProxyType({}),
) -> Row | Manifest | None:
    """Decode a record of a release topic; None for a tombstone or another version.

    ``known`` has the known schemas by number.

    Raises:
        UnknownSchema: its schema is not known.
        EngineError: the record is damaged.
    """
    told = dict(headers)
    try:
        if told.get(ROW) == ROW_SCHEMA.encode():
            return _ROW.decode(to_json(value, known))
        if told.get(MANIFEST) == MANIFEST_SCHEMA.encode():
            manifest = _MANIFEST.decode(to_json(value, known))
            _ = manifest.hops  # refuse a damaged one here, not where it is shown
            return manifest
    except UnknownSchema:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError, BrokenBytes) as error:
        raise EngineError(f"a record of a release topic is damaged: {error}") from None
    return None
