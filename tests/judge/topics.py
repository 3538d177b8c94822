"""Real topics as plain lists, and the judgement of a whole deployment on a broker.

Topics are read with confluent-kafka alone. Frames of a units topic serve only one purpose: they
tell the order in which records of one unit from several raw partitions arrived.
"""

import hashlib
import json
import secrets
import time
import tomllib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient

from . import ratchet
from .attributes import encoding_of as attributes_encoding
from .attributes import topic_of as attributes_topic
from .encodings import plain
from .framed import unframed
from .logs import KINDS, Pipeline, charges, judged, until_published
from .natural import natural
from .noise import Secret, derived
from .places import digest
from .published import objections
from .records import key_bytes
from .rules import Rules
from .seals import Record as Sealed
from .seals import of_ledger, of_releases
from .stream import Objection, Order
from .tables import Known, kept_in, looked_up
from .views import about_view

PATIENCE = 30.0


class Record(NamedTuple):
    """One committed record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


class Judgement(NamedTuple):
    """The number of triggers and rows judged of a pipeline, and the objections."""

    triggers: int
    rows: int
    objections: list[str]


def _begin(client: Any, place: TopicPartition) -> int:
    """First offset of a partition; a change of its leader is waited for."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return int(client.get_watermark_offsets(place, PATIENCE)[0])
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > until:
                raise
            time.sleep(0.5)


def read_topic(bootstrap: str, topic: str) -> list[list[Record]]:
    """Every committed record of each partition of a topic."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"judge-{secrets.token_hex(4)}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        number = len(client.list_topics(topic, PATIENCE).topics[topic].partitions)
        places = [TopicPartition(topic, n) for n in range(number)]
        begins = [_begin(client, place) for place in places]
        client.assign([TopicPartition(topic, n, begin) for n, begin in enumerate(begins)])
        found: list[list[Record]] = [[] for _ in places]
        unread = set(range(number))
        while unread:
            message = client.poll(PATIENCE)
            if message is None:
                raise TimeoutError(f"{topic} could not be read to its end")
            if message.error() is None:
                one = Record(
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers() or (),
                )
                found[message.partition()].append(one)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
        return found
    finally:
        client.close()


class Registered(dict[int, tuple[str, str]]):
    """Schemas by id, fetched from a registry when first used.

    Args:
        url: address of the registry.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def __missing__(self, number: int) -> tuple[str, str]:
        with SchemaRegistryClient({"url": self._url, "timeout": 20}) as client:
            found = client.get_schema(number)
        known = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}
        self[number] = known[found.schema_type or "AVRO"], found.schema_str or ""
        return self[number]


def deployment(
    bootstrap: str, config: Path, secret: bytes, registry: str = "", state: Path | None = None
) -> dict[str, Judgement]:
    """Judge the releases of a deployment against its logs, for all pipelines that can be judged.

    Releases are read first, then the logs behind them, so the logs have all their triggers.

    Args:
        bootstrap: address of the cluster.
        config: the deployment's TOML file, for its name, public keys and partitioners.
        secret: the noise key.
        registry: address of the registry of releases' schemas; empty: as in the file.
        state: earlier file of the ratchet; needed if pipelines forget their keys.
    """
    settings = tomllib.loads(config.read_text("utf-8"))
    settings["pipeline"] = [one for p in settings["pipeline"] for one in standing_for(p)]
    name = settings["deployment"]["name"]
    inputs = {one["name"]: one for one in settings["input"]}
    texts = Registered(registry or settings.get("registry", {}).get("url", ""))
    published, sealed = {}, {}
    for one in settings["pipeline"]:
        mine = one["name"].encode() + b"|"  # generations of a pipeline share a topic
        logs = read_topic(bootstrap, topic_of(one, settings))
        logs = [[r for r in log if (r.key or b"").startswith(mine)] for log in logs]
        published[one["name"]] = [r for log in logs for r in log]
        sealed[one["name"]] = [
            [Sealed(r.offset, r.timestamp, r.key or b"", r.value or b"", r.headers) for r in log]
            for log in logs
        ]
    ledger = [r.value or b"" for r in read_topic(bootstrap, f"{name}.ledger.v1")[0]]
    bodies = [json.loads(value)["body"] for value in ledger]
    base = f"{name}.{json.loads(ledger[0])['body']['genesis']}"
    clock = [json.loads(r.value or b"") for r in read_topic(bootstrap, f"{base}.clock")[0]]
    (tables,) = read_topic(bootstrap, f"{base}.tables") or [[]]
    kept = kept_in((r.key, r.value) for r in tables)
    found: dict[str, Judgement] = {}
    known: dict[str, Pipeline] = {}
    for one in settings["pipeline"]:
        called = one["name"]
        charged = [b["config"] for b in bodies if b.get("pipeline") == called and "mu2" in b]
        if not charged or charged[0]["mechanism"]["kind"] not in KINDS:
            continue
        source = inputs[charged[0]["input"]["name"]]
        raw = read_topic(bootstrap, source["topic"])
        pipeline = Pipeline(
            looked_up(charged[0], config.parent, kept), listed(one, charged[0]),
            source.get("partitioner", "none"), len(raw),
            beside(charged[0], bodies, settings, config.parent, kept),
        )  # fmt: skip
        known[called] = pipeline
        order = None
        if pipeline.partitioner == "none" and len(raw) > 1:
            units = [r for log in read_topic(bootstrap, f"{base}.{called}.units") for r in log]
            order = units_order(units, pipeline.rules().span, secret)
        logs = [[(r.offset, r.timestamp, r.value) for r in log] for log in raw]
        wrong = list(charges(ledger, [e for e in clock if e.get("pipeline") == called]))
        wrong += of_ledger(ledger)
        wrong += of_releases(ledger, topic_of(one, settings), called, sealed[called])
        try:
            told = [(r.key or b"", plain(r.value, texts)) for r in published[called]]
            other = attributes_topic(pipeline.config)
            others = [] if other is None else read_topic(bootstrap, other)
            how = attributes_encoding(pipeline.config)
            stated = [[(r.offset, r.key, unframed(how, r.value, texts)) for r in log]
                      for log in others]  # fmt: skip
            key = key_of(one, config, secret, state)
            made = judged(pipeline, key, clock, logs, told, order, stated)
            releases = list(until_published(made, told))
        except (Objection, ratchet.Forgotten) as objection:
            found[called] = Judgement(0, 0, [*wrong, str(objection)])
            continue
        wrong += objections(releases, told)
        rows = sum(len(release.rows) for release in releases)
        found[called] = Judgement(len(releases), rows, wrong)
    for view in settings.get("view", ()):
        if view["source"] in known:
            told = [(r.key or b"", plain(r.value, texts)) for r in published[view["source"]]]
            rules = known[view["source"]].rules()
            found[view["name"]] = judged_view(bootstrap, view, rules, told)
    return found


def judged_view(
    bootstrap: str, view: dict[str, Any], rules: Rules, source: Sequence[tuple[bytes, bytes]]
) -> Judgement:
    """Judge a view against the releases of its source."""
    (log,) = read_topic(bootstrap, topic_of(view, {"pipeline": ()}))
    made = [(r.key or b"", r.value or b"") for r in log]
    rows = sum("values" in json.loads(value) for _, value in made)
    return Judgement(len(made) - rows, rows, list(about_view(view, rules, source, made)))


def standing_for(one: dict[str, Any]) -> list[dict[str, Any]]:
    """A pipeline, and the pipelines that its table ``learn`` adds."""
    learn, name = one.get("learn"), one["name"]
    if learn is None:
        return [one]
    about = ("input", "derive", "key", "public_keys", "noise_key_file", "forget_keys")
    shared = {n: one[n] for n in about if n in one}
    added = [one, shared | {"name": f"{name}-activity"}]
    if "at" in learn:
        added.append({n: told for n, told in one.items() if n != "learn"}
                     | {"name": f"{name}-learnt", "follows": name})  # fmt: skip
    return added


def beside(
    config: dict[str, Any],
    bodies: Iterable[dict[str, Any]],
    settings: dict[str, Any],
    folder: Path,
    kept: Known,
) -> list[tuple[dict[str, Any], list[list[Any]] | None]]:
    """Configuration and public keys of the other pipelines of a shared budget, as declared."""
    others = set(config["budget"].get("shared", {"members": ()})["members"]) - {config["name"]}
    told = {b["pipeline"]: b["config"] for b in bodies if "pipeline" in b and "config" in b}
    every = {one["name"]: one for one in settings["pipeline"]}
    return [(looked_up(told[n], folder, kept), listed(every[n], told[n])) for n in sorted(others)]


def key_of(one: dict[str, Any], config: Path, secret: bytes, state: Path | None) -> Secret:
    """The noise key of a pipeline: its own file beside the configuration, or the deployment's."""
    if one.get("forget_keys"):
        assert state is not None, "a state of the ratchet is needed"
        return ratchet.keys(json.loads(state.read_text("utf-8")))
    if "noise_key_file" not in one:
        return secret
    return bytes.fromhex((config.parent / one["noise_key_file"]).read_text("utf-8").strip())


def topic_of(one: dict[str, Any], settings: dict[str, Any]) -> str:
    """The release topic of a pipeline; a pipeline that follows another uses that one's topic."""
    every = {other["name"]: other for other in settings["pipeline"]}
    while "topic" not in one.get("release", {}) and one.get("follows") in every:
        one = every[one["follows"]]
    named: str = one.get("release", {}).get("topic", f"hush.{one['name']}.releases.v1")
    return named


def units_order(frames: Iterable[Record], span: Callable[[int], int], secret: bytes) -> Order:
    """The raw partitions of each unit's records in a span, in the order of the units log."""
    origins: dict[tuple[int, bytes], deque[int]] = defaultdict(deque)
    for frame in frames:
        batch = pa.ipc.open_stream(frame.value).read_next_batch()
        about = batch.schema.metadata
        if about[b"kind"] == b"events":
            place, origin = span(int(about[b"window"])), int(about[b"origin"])
            for unit in batch.column("unit").to_pylist():
                origins[place, unit].append(origin)
    key = derived(secret, "hashing")
    return lambda place, unit: origins[place, digest(unit, key)]


def listed(settings: dict[str, Any], config: dict[str, Any]) -> list[list[Any]] | None:
    """The public keys, after a check against the digest that was charged."""
    keys = settings.get("public_keys")
    if keys is None and ("query" not in settings or config["public_keys"] is None):
        return None
    if keys in (None, "natural"):  # a query may omit them
        keys = natural(config)
    found = [key if isinstance(key, list) else [key] for key in keys]
    lines = b"\n".join(sorted(map(key_bytes, found)))
    if hashlib.sha256(lines).hexdigest() != config["public_keys"]["sha256"]:
        raise Objection("other public keys were charged")
    return found
