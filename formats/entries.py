"""The formats of records: one entry each, and no branch on a format elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .events.binary.scanner import BinaryScanner
from .events.fields import InputFields, PipelineFields
from .events.framed import FramedReader, Framing
from .events.objects import ObjectReader
from .events.scanned import JsonScanner, Scanner
from .events.wires import AvroWire, ProtoWire, Wire
from .values.codec import WRITTEN, Written

Fields = Sequence[PipelineFields]


class Format(NamedTuple):
    """One format of records."""

    registered: str  # type of its schemas in a registry; empty: values carry no id
    scanner: Callable[[InputFields, Fields], Scanner]  # makes the scanner of many records at once
    # makes the reader of single records
    reader: Callable[[InputFields, Fields], ObjectReader | FramedReader]
    parts: bool  # whether scans find nested fields, not only the record's own
    written: Written | None  # how releases are written; None: as plain JSON


def _json(registered: str, written: Written | None) -> Format:
    def framing(fields: InputFields) -> Framing | None:
        return Framing(registered, fields.max_record_bytes) if registered else None

    return Format(
        registered,
        lambda fields, pipelines: JsonScanner(fields, pipelines, framing(fields)),
        lambda fields, pipelines: ObjectReader(fields, pipelines, framing(fields)),
        False,
        written,
    )


def _binary(wire: Callable[[], Wire], registered: str, parts: bool, written: Written) -> Format:
    return Format(
        registered,
        lambda fields, pipelines: BinaryScanner(wire(), fields, pipelines),
        lambda fields, pipelines: FramedReader(wire(), fields, pipelines),
        parts,
        written,
    )


FORMATS: Final[dict[str, Format]] = {
    "json": _json("", None),
    "json_schema": _json("JSON", WRITTEN["json_schema"]),
    # Scans find nested fields only in Avro, where fields come in order.
    "avro": _binary(AvroWire, "AVRO", True, WRITTEN["avro"]),
    "protobuf": _binary(ProtoWire, "PROTOBUF", False, WRITTEN["protobuf"]),
}
"""Configured name of an input's or release's format -> its entry."""
