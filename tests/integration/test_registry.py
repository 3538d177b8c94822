"""Values with schemas of a real registry: three formats, evolution, crashes, outages, bad ids.

Covers: offline/replay_logs.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hushstream.agents.kafka.logs import read_topic
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..servers.guard import Guard
from ..servers.registry import SchemaRegistry
from .local import Local, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
FORMATS = ("avro", "protobuf", "json_schema")
PASSWORD = "s3cret of the registry"

HEAD = """
[deployment]
name = "reg"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
"""
PART = """
[[input]]
name = "{plain}"
topic = "{encoding}"
unit = "user.id"
format = "{encoding}"
partitioner = "none"
dlq_payload = "none"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "p-{plain}"
input = "{plain}"
key = ["page"]
public_keys = [["a"], ["b"]]
aggregate = [{{ kind = "count" }}, {{ kind = "sum", field = "fare", low = 0, high = 9 }}]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "12h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4 }}
"""
pytestmark = [pytest.mark.broker, pytest.mark.slow]
Row = dict[str, Any]


def rows(begin: int, number: int = 40) -> list[Row]:
    return [
        {"user": {"id": f"u{n}"}, "page": "ab"[n % 2], "fare": float(n % 9), "t": ORIGIN + n}
        for n in range(begin, begin + number)
    ]


def avro_schema(version: int) -> Schema:
    """A schema; version 2 has a new first field, and the user as the last one."""
    user = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "string"}]}
    fields: list[Row] = [
        {"name": "user", "type": user},
        {"name": "page", "type": {"type": "enum", "name": "Page", "symbols": ["a", "b"]}},
        {"name": "fare", "type": ["null", "double"], "default": None},
        {"name": "t", "type": "long"},
    ]
    if version == 2:
        tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
        fields = [tags, *reversed(fields)]
    return Schema(json.dumps({"type": "record", "name": "E", "fields": fields}), "AVRO")


def message_type(version: int) -> Any:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"e{version}.proto", syntax="proto3")
    user = file.message_type.add(name="User")
    user.field.add(name="id", number=1, type=kind.TYPE_STRING, label=1)
    event = file.message_type.add(name="E")
    event.field.add(name="user", number=4, type=kind.TYPE_MESSAGE, label=1, type_name=".User")
    event.field.add(name="page", number=1, type=kind.TYPE_STRING, label=1)
    event.field.add(name="fare", number=2, type=kind.TYPE_DOUBLE, label=1)
    event.field.add(name="t", number=3, type=kind.TYPE_INT64, label=1)
    if version == 2:
        event.field.add(name="tags", number=9, type=kind.TYPE_STRING, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("E"))


def json_schema(version: int) -> str:
    fields = {"user": {"type": "object"}, "page": {"type": "string"}, "fare": {"type": "number"}}
    fields |= {"t": {"type": "integer"}} | ({"tags": {"type": "array"}} if version == 2 else {})
    return json.dumps({"title": "E", "type": "object", "properties": fields})


class Writers:
    """Producers with the serialisers of confluent-kafka, in two versions of each schema."""

    def __init__(self, url: str) -> None:
        # Without a limit, it waits for ever if the registry loses an answer, as one did.
        self.client = SchemaRegistryClient({"url": url, "timeout": 60})

    def encode(self, encoding: str, version: int, many: list[Row]) -> list[bytes]:
        client, context = self.client, SerializationContext(encoding, MessageField.VALUE)
        extra = {"tags": ["x"]} if version == 2 else {}
        every = [row | extra for row in many]
        if encoding == "avro":
            avro = AvroSerializer(client, avro_schema(version))
            return [avro(row, context) for row in every]
        if encoding == "json_schema":
            objects = JSONSerializer(json_schema(version), client)
            return [objects(row, context) for row in every]
        kind = message_type(version)
        proto = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        return [proto(kind(**row), context) for row in every]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def settings(url: str, formats: tuple[str, ...] = FORMATS, more: str = "") -> str:
    parts = [PART.format(encoding=f, plain=f.replace("_", "-")) for f in formats]
    return f'[registry]\nurl = "{url}"\n{more}\n' + HEAD + "".join(parts)


def counts(run: Local, encoding: str) -> dict[str, float]:
    """The newest count of each page."""
    bodies = run.releases(f"p-{encoding.replace('_', '-')}")
    released = [body for body in bodies if body["schema"] == "hush.release/2"]
    return {body["key"]["page"]: body["values"]["count"]["value"] for body in released}


def reasons(run: Local, encoding: str) -> list[str]:
    topic = f"hush.p-{encoding.replace('_', '-')}.dlq"
    (log,) = read_topic(run.config().kafka, topic, 1)
    headers = [dict(one.headers) for one in log.records]
    return sorted(one["__streams.errors.reason"].decode() for one in headers)


@pytest.mark.thorough
def test_three_formats_evolve_and_a_killed_worker_changes_nothing(
    empty_broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    """With TLS and a password; afterwards, the registry is no longer needed."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    with (
        Writers(registry.url) as writers,
        Guard(registry.port, tmp_path, "hush", PASSWORD) as guard,
    ):
        more = f'username = "hush"\npassword_file = "password"\nssl_cafile = "{guard.cafile}"'
        text = settings(guard.url, more=more)
        with local(tmp_path, empty_broker.bootstrap, text, dict.fromkeys(FORMATS, 1)) as run:
            for encoding in FORMATS:
                run.publish(encoding, writers.encode(encoding, 1, rows(0)))
                bad = [bytes([0, 0x7F, 0, 0, 1]) + b"x", b"\x01\0\0\0\x01x", b"{}", b"\0\0"]
                run.publish(encoding, bad)
            run.start("w")
            run.wait_ready(["w"])
            run.trigger(ORIGIN + DAY // 2)
            run.wait_released(run.wait_triggers(3))
            for encoding in FORMATS:
                # The old writer continues while the new one begins.
                new, old = (
                    writers.encode(encoding, 2, rows(40)),
                    writers.encode(encoding, 1, rows(80)),
                )
                run.publish(encoding, [one for pair in zip(new, old, strict=True) for one in pair])
            time.sleep(1.0)
            run.kill("w")
            registry.kill()
            mark = run.log("w").stat().st_size
            run.start("w")  # it knows what it has counted; new schemas wait for the registry
            until = time.monotonic() + 60
            while "ready:" not in run.log("w").read_text()[mark:]:
                assert time.monotonic() < until, run.tail("w")
                time.sleep(0.2)
            time.sleep(1.0)
            registry.start()
            run.trigger(ORIGIN + DAY)
            run.wait_released(run.wait_triggers(6))
            assert run.stop("w") == 0
            assert guard.refused == 0
            for encoding in FORMATS:
                found = counts(run, encoding)
                assert all(abs(found[page] - 60) < 25 for page in "ab"), (encoding, found)
                assert reasons(run, encoding) == ["malformed"] * 3 + ["unknown_schema"], encoding
            outcome = replay(run.config())
            assert outcome.agrees and outcome.figures()["compared"] > 0, outcome.problems


@pytest.mark.thorough
def test_an_unreachable_registry_is_waited_for_and_given_up_aloud(
    empty_broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    with Writers(registry.url) as writers:
        values = writers.encode("avro", 1, rows(0))
    nowhere = "http://127.0.0.1:1/"
    text = settings(nowhere, ("avro",), 'outage_timeout = "6s"')
    with local(tmp_path, empty_broker.bootstrap, text, {"avro": 1}) as run:
        run.publish("avro", values)
        child = run.start("w")
        assert child.wait(150), run.tail("w")
        assert child.returncode == 4
        said = run.log("w").read_text()
        assert "records wait for the schema registry (ConnectError)" in said
        assert "no clear answer of the schema registry for 6 s" in said
        assert reasons(run, "avro") == []
        # With the right address, nothing is lost.
        run.toml.write_text(settings(registry.url, ("avro",)))
        run.start("w")
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2))
        assert run.stop("w") == 0
        assert reasons(run, "avro") == []
        assert all(abs(one - 20) < 20 for one in counts(run, "avro").values())
