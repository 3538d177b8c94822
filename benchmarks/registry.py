"""Speed of decoding the formats of a schema registry, as ratios to JSON in the same run.

The same trips (nine fields, of which a pipeline reads five) are written by each format's reference
encoder, in the registry's frame, and decoded to columns by the workers' decoder: once with one
schema, and once with two alternating schemas. Rounds of all formats alternate, so that a busy
machine slows all of them.

    python benchmarks/registry.py [--quick] [--json]

The last line under ``--json``: for each format ``ratio`` (its time over that of JSON, medians of
the rounds), ``microseconds`` of a record, and ``bytes`` of a record.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from fractions import Fraction
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.fields import InputFields, NumericField, PipelineFields
from hushstream.formats.schemas.schema import Pinned, Schema

Row = dict[str, Any]
AVRO = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "trip", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "zone", "type": "string"},
        {"name": "fare", "type": "double"},
        {"name": "tip", "type": ["null", "double"]},
        {"name": "passengers", "type": "int"},
        {"name": "note", "type": "string"},
        {"name": "vendor", "type": {"type": "enum", "name": "V", "symbols": ["a", "b"]}},
        {"name": "paid", "type": "boolean"},
    ],
}
PROTO = """syntax = "proto3";
enum V { a = 0; b = 1; }
message Trip {
  string trip = 1; int64 at = 2; string zone = 3; double fare = 4; optional double tip = 5;
  int32 passengers = 6; string note = 7; V vendor = 8; bool paid = 9;
}
"""


class Plain:
    """A mechanism grouped by key."""

    inputs: tuple[str, ...] = ()


def trips(number: int) -> list[Row]:
    """Trips like those of a taxi company."""
    rng = random.Random(7)
    zones = [f"zone {i}" for i in range(260)]
    return [
        {
            "trip": f"trip-{rng.randrange(10**8):08d}",
            "at": 1_700_000_000_000 + i * 9,
            "zone": rng.choice(zones),
            "fare": round(rng.random() * 50, 2),
            "tip": round(rng.random() * 5, 2) if rng.random() < 0.7 else None,
            "passengers": rng.randrange(1, 6),
            "note": f"nobody reads this, number {i}",
            "vendor": rng.choice("ab"),
            "paid": rng.random() < 0.9,
        }
        for i in range(number)
    ]


def in_avro(rows: list[Row]) -> list[bytes]:
    """Encode with fastavro, as confluent-kafka's serialiser does."""
    schema, out = fastavro.parse_schema(AVRO), []
    for row in rows:
        to = io.BytesIO()
        fastavro.schemaless_writer(to, schema, row)
        out.append(to.getvalue())
    return out


def in_protobuf(rows: list[Row]) -> list[bytes]:
    """Encode with Google's library, preceded by the place of the first message."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", syntax="proto3")
    vendor = file.enum_type.add(name="V")
    vendor.value.add(name="a", number=0)
    vendor.value.add(name="b", number=1)
    message = file.message_type.add(name="Trip")
    message.oneof_decl.add(name="_tip")
    types = [9, 3, 9, 1, 1, 5, 9, 14, 8]
    for number, (name, word) in enumerate(zip(rows[0], types, strict=True), 1):
        one = message.field.add(name=name, number=number, type=kind.Type.Name(word), label=1)
        if name == "vendor":
            one.type_name = ".V"
        if name == "tip":
            one.oneof_index, one.proto3_optional = 0, True
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Trip"))
    texts = [{k: ord(v) - 97 if k == "vendor" else v for k, v in r.items()} for r in rows]
    return [b"\0" + made(**row).SerializeToString() for row in texts]


def in_json(rows: list[Row]) -> list[bytes]:
    """Encode as JSON."""
    return [json.dumps(row, separators=(",", ":")).encode() for row in rows]


def decoder(encoding: str) -> Decoder:
    """The decoder of a pipeline that counts by zone and sums fares."""
    fields = InputFields("at", "epoch_ms", "UTC", ("trip",), format=encoding)
    fare = NumericField("fare", Fraction(0), Fraction(50), Fraction(1, 100))
    one = PipelineFields(("zone", "vendor"), (fare,))
    return Decoder(fields, [one], [Plain()])  # type: ignore[list-item]


def framed(values: list[bytes], ids: int) -> list[RawRecord]:
    """Records whose frames name ``ids`` schemas in turn; without frames if it is 0."""
    head = [bytes(3) + b"\0" + bytes([i % ids + 1]) if ids else b"" for i in range(len(values))]
    pairs = enumerate(zip(head, values, strict=True))
    return [RawRecord(i, 0, None, one + value) for i, (one, value) in pairs]


def cases(rows: list[Row]) -> dict[str, tuple[Decoder, list[RawRecord], dict[int, Pinned]]]:
    """Decoder, records and schemas of each format."""
    texts = {"avro": ("AVRO", json.dumps(AVRO)), "protobuf": ("PROTOBUF", PROTO)}
    found = {"json": (decoder("json"), framed(in_json(rows), 0), dict[int, Pinned]())}
    encoded = {"avro": in_avro, "protobuf": in_protobuf, "json_schema": in_json}
    for encoding, encode in encoded.items():
        kind, text = texts.get(encoding, ("JSON", "{}"))
        # Schemas that differ only in text are different schemas for the decoder.
        known = {n: Pinned(Schema(kind, text + " " * n), 0) for n in (1, 2)}
        values = encode(rows)
        found[encoding] = decoder(encoding), framed(values, 1), known
        found[f"{encoding}, two schemas"] = decoder(encoding), framed(values, 2), known
    return found


def measure(number: int, rounds: int) -> dict[str, dict[str, float]]:
    """Decode the same records in every format, in turns."""
    made = cases(trips(number))
    spent: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, (one, records, known) in made.items():
            begun = time.perf_counter()
            decoded = one.decode(records, known)
            spent[name].append(time.perf_counter() - begun)
            if decoded.bad or decoded.views[0].bad or len(decoded.views[0].rows) != number:
                raise SystemExit(f"{name}: records were refused")
    base = statistics.median(spent["json"])
    return {
        name: {
            "ratio": round(statistics.median(times) / base, 3),
            "microseconds": round(statistics.median(times) / number * 1e6, 3),
            "bytes": round(sum(len(r.value or b"") for r in made[name][1]) / number, 1),
        }
        for name, times in spent.items()
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(20_000, 5 if given.quick else 40)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{'format':24}{'of JSON':>10}{'µs':>10}{'bytes':>10}")
    for name, one in found.items():
        print(f"{name:24}{one['ratio']:10.2f}{one['microseconds']:10.2f}{one['bytes']:10.1f}")


if __name__ == "__main__":
    main()
