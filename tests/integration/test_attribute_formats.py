"""Attributes in Avro and Protobuf, with schemas of a registry: kills, evolution, replay, judge.

Covers: agents/stages/ingest/schemas.py, offline/replay_logs.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hushstream.agents.kafka.logs import read_topic
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.places import home
from ..judge.topics import deployment as judgement
from ..servers.registry import SchemaRegistry
from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
ENCODINGS = ("avro", "protobuf")
HEAD = """
[deployment]
name = "formats"
[engine]
cells_partitions = 1
session_timeout = "3s"
transaction_timeout = "10s"
"""
PAIR = """
[[input]]
name = "of-{encoding}"
topic = "of-{encoding}"
unit = "user"
partitioner = "murmur2"
time = {{ field = "t", format = "epoch_us" }}
[[input]]
name = "{encoding}"
topic = "{encoding}"
unit = "id"
format = "{encoding}"
attributes_of = "of-{encoding}"
partitioner = "murmur2"
time = {{ format = "record" }}
[[pipeline]]
name = "p-{encoding}"
input = "of-{encoding}"
key = ["origin"]
public_keys = "natural"
window = {{ length = "2h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = 16.0, delta = 1e-3 }}
mechanism = {{ kind = "histogram", budget = 16, adaptive_weight = 0 }}
aggregate = [{{ kind = "count" }}]
[pipeline.derive.origin]
of_unit = true
cases = [{{ where = [{{ field = "country", equals = "DE" }}], then = "home" }},
  {{ where = [{{ field = "country", present = true }}], then = "abroad" }}]
otherwise = "unknown"
"""
USERS, PARTITIONS = 600, 2

pytestmark = pytest.mark.broker


class Writer:
    """A producer of attributes with the serialisers of confluent-kafka, in two versions."""

    def __init__(self, client: SchemaRegistryClient, encoding: str, version: int) -> None:
        self._context = SerializationContext(encoding, MessageField.VALUE)
        if encoding == "avro":
            fields: list[Any] = [
                {"name": "id", "type": "string"},
                {"name": "country", "type": ["null", "string"], "default": None},
            ]
            if version == 2:
                fields = [{"name": "plan", "type": "int", "default": 0}, *reversed(fields)]
            text = json.dumps({"type": "record", "name": "User", "fields": fields})
            self._write = AvroSerializer(client, Schema(text, "AVRO"))
            self._make: Any = dict
        else:
            self._make = message_type(version)
            options = {"use.deprecated.format": False}
            self._write = ProtobufSerializer(self._make, client, options)
        self._more = {"plan": 3} if version == 2 else {}

    def value(self, unit: str, country: str) -> bytes:
        return self._write(self._make(id=unit, country=country, **self._more), self._context)  # type: ignore[no-any-return]


def message_type(version: int) -> Any:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"user{version}.proto", syntax="proto3")
    user = file.message_type.add(name="User")
    user.field.add(name="id", number=3, type=kind.TYPE_STRING, label=1)
    user.field.add(name="country", number=1, type=kind.TYPE_STRING, label=1)
    if version == 2:
        user.field.add(name="plan", number=2, type=kind.TYPE_INT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("User"))


def at(number: int) -> int:
    return home((f"u{number}",), "murmur2", PARTITIONS)


def events(run: Local, encoding: str, hour: int) -> None:
    """Send one record of each user."""
    for place in range(PARTITIONS):
        mine = [n for n in range(USERS) if at(n) == place]
        values = [{"user": f"u{n}", "t": ORIGIN + hour * HOUR + n} for n in mine]
        run.publish(f"of-{encoding}", values, place)


def state(run: Local, encoding: str, writer: Writer, told: dict[int, str | None]) -> None:
    """State countries of some users; None deletes a user's statement."""
    producer = run.producer()
    for number, country in told.items():
        unit = f"u{number}"
        value = None if country is None else writer.value(unit, country)
        producer.produce(encoding, value, key=unit.encode(), partition=at(number))
    producer.flush()


def asked(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "timeout": 60})


@pytest.mark.thorough
def test_attributes_in_two_formats_evolve_and_a_killed_worker_changes_nothing(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with SchemaRegistry(tmp_path / "registry") as registry, asked(registry.url) as client:
        text = f'[registry]\nurl = "{registry.url}"\n' + HEAD
        text += "".join(PAIR.format(encoding=encoding) for encoding in ENCODINGS)
        raw = {name: PARTITIONS for encoding in ENCODINGS for name in (encoding, f"of-{encoding}")}
        with local(tmp_path, empty_broker.bootstrap, text, raw) as run:
            for encoding in ENCODINGS:
                writer = Writer(client, encoding, 1)
                state(run, encoding, writer, {n: "DE" if n % 3 == 1 else "FR"
                                          for n in range(USERS) if n % 3})  # fmt: skip
                run.publish(encoding, [b"{}", bytes([0, 0x7F, 0, 0, 1]) + b"x"])
                events(run, encoding, 0)
            run.start("w")
            run.wait_ready(["w"])
            run.trigger(ORIGIN + HOUR)
            run.wait_released(run.wait_triggers(2), 300)
            for encoding in ENCODINGS:
                check(run, encoding, 1, {"unknown": 200, "home": 200, "abroad": 200})
            run.kill("w")
            for encoding in ENCODINGS:
                writer = Writer(client, encoding, 2)
                state(run, encoding, writer, {n: "FR" if n % 2 else None
                                          for n in range(USERS) if n % 3 == 1})  # fmt: skip
                events(run, encoding, 1)
            registry.kill()
            run.start("w")  # new schemas wait for the registry
            run.trigger(ORIGIN + 2 * HOUR)
            run.wait_ready(["w"])
            registry.start()
            run.wait_released(run.wait_triggers(4), 300)
            for encoding in ENCODINGS:
                check(run, encoding, 2, {"unknown": 500, "home": 200, "abroad": 500})
                assert reasons(run, encoding) == ["malformed", "unknown_schema"]
            assert run.stop("w") == 0
            registry.kill()
            outcome = replay(run.config())
            assert outcome.agrees and outcome.compared, outcome.problems
            registry.start()
            judged = judgement(run.bootstrap, run.toml, run.secret)
            assert sorted(judged) == sorted(f"p-{encoding}" for encoding in ENCODINGS)
            for one in judged.values():
                assert one.triggers == 2 and one.rows > 3 and not one.objections, one.objections[:2]


def check(run: Local, encoding: str, trigger: int, wanted: dict[str, int]) -> None:
    """Check how many records of each case count by a trigger."""
    rows = [
        body for body in run.releases(f"p-{encoding}")
        if body.get("trigger") == trigger and "key" in body
    ]  # fmt: skip
    found = {row["key"]["origin"]: row["values"]["count"] for row in rows}
    assert set(found) == set(wanted), found
    for origin, number in wanted.items():
        one = found[origin]
        assert abs(one["value"] - number) < 8 * one["stddev"] < 100, (origin, one)


def reasons(run: Local, encoding: str) -> list[str]:
    log, *_ = read_topic(run.config().kafka, f"hush.p-{encoding}.dlq", 1)
    headers = [dict(one.headers) for one in log.records]
    return sorted(one["__streams.errors.reason"].decode() for one in headers)
