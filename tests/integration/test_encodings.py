"""Releases with schemas of a real registry, read by its own deserialisers and by ours.

Covers: agents/registry/subjects.py, agents/registry/announced.py, reading/schemas.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hushstream import follow_releases, read_releases
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.deployment.published.schema_pins import pins, subjects
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.registry import subjects as registering
from hushstream.cli.group import exit_code, hush
from hushstream.client import published_threshold
from hushstream.client.survey import RANGE, VALUE
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, free_port
from hushstream.errors import EngineError, LedgerError
from hushstream.formats.bytes_in import schema_id
from hushstream.formats.entries import FORMATS
from hushstream.formats.values.codec import WRITTEN
from hushstream.offline.replay import replay
from hushstream.reading.live.board import Watched
from hushstream.reading.live.declared import declared
from hushstream.reading.schemas import Schemas
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import RegistrySettings
from hushstream.topics.releases import ROW

from ..formats.values.records import bodies
from ..judge.proto_classes import message_class
from ..judge.topics import deployment as judge
from ..recorded.pipelines import cases, text_of
from ..servers.registry import SchemaRegistry
from .local import Local
from .test_mechanisms import COMMON, HEAD, HOUR, ORIGIN, SPATIAL, VALUES, trips
from .test_surveys import SURVEY, Devices

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Read = Callable[[str, bytes], Any]

SUMS = """
key = ["zone"]
aggregate = [{{ kind = "count" }}, {{ kind = "mean", field = "fare", low = 0, high = 100 }}]
mechanism = {{ kind = "histogram", budget = 4 }}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def configuration(name: str, url: str) -> str:
    """One pipeline for each mechanism, with every encoding including JSON."""
    end = '[pipeline.release]\nencoding = "{encoding}"\n'
    blocks = [
        (COMMON + SUMS, "avro", "histogram"),
        (COMMON + SPATIAL.replace("{depth}", "3").replace("{split}", "all"), "protobuf",
         "phdstream"),
        (COMMON + SPATIAL.replace("{depth}", "8").replace("{split}", "binary"), "json_schema",
         "privhp"),
        (COMMON + VALUES, "avro", "pak"),
        (COMMON + VALUES, "json", "tops"),
    ]  # fmt: skip
    settings = {"phdstream": "bound = 2\nfloor = 2", "privhp": "k = 16"}
    parts = [f'[registry]\nurl = "{url}"\n', HEAD.format(name=name)]
    for text, encoding, kind in blocks:
        told = {"name": name, "kind": kind, "settings": settings.get(kind, "")}
        parts.append(text.format(**told) + end.format(encoding=encoding))
    survey = SURVEY[SURVEY.index("[[input]]") :]  # over reports of clients
    survey = survey.replace("{name}-raw", "{name}-reports").replace("-trips", "-topl")
    return "".join([*parts, survey.format(name=name), end.format(encoding="avro")])


def run_hush(run: Local, *words: str, registry: str = "") -> Result:
    """Run a command as an operator does, with this registry in place of the file's."""
    more = ["-c", str(run.toml), "--bootstrap", run.bootstrap]
    more += ["--set", f"engine.data_dir={run.folder / 'state'}"]
    more += ["--set", f"registry.url={registry}"] if registry else []
    return CliRunner().invoke(hush, [words[0], *more, *words[1:]])


def deserialisers(client: SchemaRegistryClient, p: Pipeline) -> Read:
    """A consumer's readers: confluent-kafka's own deserialisers.

    The one for Protobuf gets no client: it would ask for a form of the file that this registry
    writes differently. The class has everything that it needs.
    """
    texts = {one.header: one.text for one in subjects(p)}
    context = SerializationContext(p.release_topic, MessageField.VALUE)
    conf = {"subject.name.strategy": topic_record_subject_name_strategy}
    made: dict[str, Any] = {}
    for header, text in texts.items():
        if p.encoding == "avro":
            made[header] = AvroDeserializer(client, conf=conf)
        elif p.encoding == "json_schema":
            made[header] = JSONDeserializer(text, conf=conf, schema_registry_client=client)
        else:
            made[header] = ProtobufDeserializer(
                message_class(text), {"use.deprecated.format": False} | conf
            )
    return lambda header, value: made[header](value, context)


def figures(found: Any) -> list[float]:
    """The values of a row, from any reader."""
    if isinstance(found, dict):
        return sorted(one["value"] for one in found["values"].values() if one is not None)
    return sorted(one.value for _, one in found.values.ListFields())


def released(p: Pipeline, run: Local, topic: str) -> list[Any]:
    logs = read_topic(run.config().kafka, topic, p.release_partitions)
    return [one for log in logs for one in log.records]


@pytest.mark.thorough
def test_every_mechanism_is_released_replayed_and_read_without_its_registry(
    empty_broker: Broker, tmp_path: Path, registry: SchemaRegistry
) -> None:
    url, nobody = registry.url, f"http://{HOST}:{free_port()}"
    # No registry answers at the file's address; only commands that must ask are given another.
    text, raw = configuration("enc", nobody), {"enc-raw": 1, "enc-reports": 1}
    run = Local(tmp_path, empty_broker.bootstrap, text, raw)
    with pytest.raises(EngineError, match="without the ids of its schemas"):
        run.begin()  # nothing is declared without ids of schemas
    found = run_hush(run, "topics")
    assert isinstance(found.exception, EngineError) and exit_code(found.exception) == 4
    assert "no clear answer (ConnectError)" in str(found.exception)
    with pytest.raises(LedgerError, match=r"there is no ledger|is empty"):
        read_ledger(run.cluster, "enc")
    assert run_hush(run, "topics", registry=url).exit_code == 0
    head = read_ledger(run.cluster, "enc").head
    assert run_hush(run, "topics", registry=url).exit_code == 0
    assert read_ledger(run.cluster, "enc").head == head
    said = run_hush(run, "check", registry=url)
    assert said.exit_code == 0 and "15 subjects as the ledger pinned them" in said.output
    ledger = read_ledger(run.cluster, "enc")
    assert "schemas" not in ledger.pipelines["enc-tops"]
    assert set(ledger.pipelines["enc-pak"]["schemas"]) == {"hush-row", "hush-manifest"}
    try:
        said = run_hush(run, "check")
        assert said.exit_code == 4 and "no clear answer" in said.output, said.output
        devices = Devices(run, "enc-topl")
        run.publish("enc-raw", [r | {"zone": f"z{n % 3}"} for n, r in
                                enumerate(trips(5, 0, 4, 3000))])  # fmt: skip
        run.publish("enc-reports", devices.report(range(2000), 0, RANGE))
        run.start("w")
        run.wait_ready(["w"])
        run.trigger(ORIGIN + 4 * HOUR)
        run.wait_released(run.wait_triggers(12))
        theta = devices.theta()
        run.kill("w")
        run.publish("enc-reports", devices.report(range(2000), 5, VALUE, theta))
        run.start("w")
        run.trigger(ORIGIN + 8 * HOUR)
        run.wait_released(run.wait_triggers(24))
        assert run.stop("w") == 0
    finally:
        run.close()
    outcome = replay(run.config())
    assert outcome.agrees and outcome.compared > 100, outcome.problems
    check_readers(run)
    with SchemaRegistryClient({"url": url, "timeout": 60}) as client:
        check_deserialisers(run, client)
        check_survey(run, devices, theta, client)
    found = judge(run.bootstrap, run.toml, run.secret, url)["enc-histogram"]
    assert (found.objections, found.triggers) == ([], 4) and found.rows >= 3
    assert replay_of_changed(run)


def check_survey(run: Local, devices: Devices, theta: Any, client: SchemaRegistryClient) -> None:
    """Devices read the threshold with a deserialiser, and the mean is that of all devices."""
    p = devices.pipeline
    read = deserialisers(client, p)
    records = [(one.headers[0][0], one.value) for one in released(p, run, p.release_topic)]
    told = {published_threshold(read(*one), devices.survey) for one in records}
    assert theta is not None and told - {None} == {theta}
    means = [read(*one)["values"]["mean"]["value"] for one in records if one[0] == ROW]
    assert float(devices.expected(len(devices.made))) in means


def replay_of_changed(run: Local) -> bool:
    """Whether replay notices a copy of a released record with one byte changed."""
    p = next(one for one in run.deployment.pipelines if one.name == "enc-histogram")
    record = next(one for one in released(p, run, p.release_topic) if one.headers[0][0] == ROW)
    producer = run.producer()
    value = record.value[:-2] + bytes([record.value[-2] ^ 1]) + record.value[-1:]
    producer.produce(p.release_topic, value, key=record.key, timestamp=record.timestamp,
                     headers=list(record.headers), partition=0)  # fmt: skip
    producer.flush(120)
    found = replay(run.config(), ["enc-histogram"])
    return not found.agrees


def check_readers(run: Local) -> None:
    """Check all of our readers; none of them knows a registry."""
    kinds = {"histogram": 3, "phdstream": 1, "privhp": 1, "pak": 4, "tops": 4, "topl": 1}
    ledger = declared(read_ledger(run.cluster, "enc"))
    for kind, least in kinds.items():
        table = read_releases(run.bootstrap, f"enc-{kind}", which="latest")
        assert table.num_rows >= least and table.schema.names[:2] == ["window_start", "window_end"]
        # Only the first four: a fifth would add rows to those that are compared.
        every = list(islice(follow_releases(run.bootstrap, f"enc-{kind}", patience=150), 4))
        assert len(every) == 4
        mine = [b for b in run.releases(f"enc-{kind}") if b["schema"] == "hush.release/2"]
        assert {row.release_id for one in every for row in one.rows} == {
            body["release_id"] for body in mine
        }
        shown = run_hush(run, "releases", f"enc-{kind}", "--json")
        assert shown.exit_code == 0 and len(shown.output.splitlines()) >= least
        p = next(one for one in run.deployment.pipelines if one.name == f"enc-{kind}")
        board = Watched(ledger[p.name], decode=Schemas(run.config().kafka, p.release_topic).decode)
        board.begin()
        assert board.take(released(p, run, p.release_topic)) and not board.damaged
        said = run_hush(run, "connect", f"enc-{kind}")
        assert (said.exit_code == 0) == (p.encoding == "json")
    plotted = run_hush(run, "plot", "enc-histogram", "--out", str(run.folder / "a.png"))
    assert plotted.exit_code == 0 and (run.folder / "a.png").stat().st_size > 1000
    mapped = run_hush(run, "map", "enc-phdstream", "--out", str(run.folder / "a.json"))
    assert mapped.exit_code == 0 and json.loads((run.folder / "a.json").read_text())["features"]


def check_deserialisers(run: Local, client: SchemaRegistryClient) -> None:
    for p in run.deployment.pipelines:
        if p.encoding == "json":
            continue
        read = deserialisers(client, p)
        plain = {b["release_id"]: b for b in run.releases(p.name) if "release_id" in b}
        found = 0
        for topic in (p.release_topic, p.latest_topic or ""):
            for one in released(p, run, topic):
                if one.value is None:
                    assert one.headers[0][0] == "hush-gone"
                    continue
                assert schema_id(one.value) is not None
                if one.headers[0][0] != ROW:
                    assert read(one.headers[0][0], one.value) is not None
                    continue
                theirs = read(ROW, one.value)
                own = theirs["release_id"] if isinstance(theirs, dict) else theirs.release_id
                assert figures(theirs) == figures(plain[own])
                found += 1
        assert found > len(plain) > 0


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    "encoding",
    [pytest.param(kind, marks=[pytest.mark.thorough] * (kind == "avro")) for kind in WRITTEN],
)
def test_deserialisers_read_every_record_of_every_recorded_pipeline(
    registry: SchemaRegistry, encoding: str
) -> None:
    settings = RegistrySettings(url=registry.url)
    with SchemaRegistryClient({"url": registry.url, "timeout": 60}) as client:
        for case in cases():
            p = registered(settings, case, encoding)
            read = deserialisers(client, p)
            for header, body in bodies(case)[:40] + bodies(case)[-10:]:
                theirs = read(header, p.codec.encode(header, body))
                if header == ROW:
                    assert figures(theirs) == figures(body)
                else:
                    rows = theirs["rows"] if isinstance(theirs, dict) else theirs.rows
                    assert rows == body["rows"]


def registered(settings: RegistrySettings, case: str, encoding: str, more: str = "") -> Pipeline:
    text = f'[registry]\nurl = "{settings.url}"\n{text_of(case)}'
    text += f'[pipeline.release]\nencoding = "{encoding}"\ntopic = "{case}-{encoding}"\n{more}'
    made = registering.register(settings, compile_config(loads(text, environ={})))
    again = registering.register(settings, made)
    assert again == made and pins(again.pipelines[0]) == pins(made.pipelines[0])  # safe to repeat
    assert registering.look_up(settings, made) == len(subjects(made.pipelines[0])) == 3
    return made.pipelines[0]


@pytest.mark.spread(3)
@pytest.mark.parametrize("encoding", WRITTEN)
def test_another_schema_under_the_subject_is_refused(
    registry: SchemaRegistry, encoding: str
) -> None:
    settings = RegistrySettings(url=registry.url)
    text = f'[registry]\nurl = "{registry.url}"\n{text_of("histogram-plain")}'
    text += f'[pipeline.release]\nencoding = "{encoding}"\ntopic = "other-{encoding}"\n'
    made = compile_config(loads(text, environ={}))
    one = subjects(made.pipelines[0])[0]
    other = {
        "avro": '{"type": "record", "name": "Row", "namespace": "hush.histogram_plain", '
                '"fields": [{"name": "schema", "type": "long"}]}',
        "protobuf": 'syntax = "proto3"; package hush.histogram_plain; '
                    "message Row { int64 schema = 1; }",
        "json_schema": '{"title": "x", "type": "object", "additionalProperties": false, '
                       '"properties": {"schema": {"type": "integer"}}, "required": ["schema"]}',
    }  # fmt: skip
    with SchemaRegistryClient({"url": registry.url, "timeout": 60}) as client:
        client.set_compatibility(one.name, "FULL")
        client.register_schema(one.name, Schema(other[encoding], FORMATS[encoding].registered))
        with pytest.raises(EngineError, match="knows another schema under this subject"):
            registering.register(settings, made)
        assert len(client.get_versions(one.name)) == 1
