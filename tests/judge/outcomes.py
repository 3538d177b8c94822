"""Deployments in memory, run by the product and judged: this module knows both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hushstream.agents.deployment.model import Deployment, Input
from hushstream.agents.deployment.model import Pipeline as Compiled
from hushstream.agents.deployment.published.schema_pins import codec_of, subjects
from hushstream.agents.stages.aggregate.computation import NoiseKey
from hushstream.agents.stages.aggregate.nonces import Opening
from hushstream.agents.stages.step import Out
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.topics.records import ClockRecord, Trigger, encode

from ..support import NAMES, SECRET
from .encodings import Texts, plain
from .histogram import Release
from .logs import Pipeline, judged
from .noise import Secret
from .published import Published, objections
from .tables import looked_up

HERE = Path(__file__).parent


def public(made: Input, pipeline: Compiled) -> Pipeline:
    """What the judge knows of a pipeline: its canonical configuration as plain JSON."""
    told = {p.name: (json.loads(encode(p.config)), _listed(p)) for p in made.pipelines}
    config, listed = told.pop(pipeline.name)
    looked_up(config, HERE)
    shared = config["budget"].get("shared", {"members": ()})
    beside = [one for name, one in told.items() if name in shared["members"]]
    return Pipeline(config, listed, made.partitioner, made.partitions, beside)


def _listed(pipeline: Compiled) -> list[Any] | None:
    keys = pipeline.public_keys
    keys = pipeline.fields.allowed if keys is None else keys  # rows may have keys of their own
    return None if keys is None else [json.loads(key) for key in sorted(keys)]


def numbered(made: Deployment) -> tuple[Deployment, Texts]:
    """A deployment whose schemas have ids, as from a registry, and the texts of the schemas."""
    texts: dict[int, tuple[str, str]] = {}

    def formed(p: Compiled) -> Compiled:
        numbers: dict[str, int] = {}
        for one in subjects(p):
            numbers.setdefault(one.header, len(texts) + 1)
            texts[numbers[one.header]] = one.encoding, one.text
        return replace(p, codec=codec_of(p, numbers)) if numbers else p

    return made.each(formed), texts


def as_json(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Clock records as JSON objects."""
    return [json.loads(encode(record)) for record in records]


def restless(pipeline: str, shard: int) -> Callable[[Trigger], bytes]:
    """A new nonce at every other trigger, as if each shard had been reopened."""

    def nonce(trigger: Trigger) -> bytes:
        return hashlib.sha256(f"{pipeline}{shard}{trigger.ordinal // 2}".encode()).digest()[:16]

    return nonce


def outcome(
    made: Deployment,
    logs: Sequence[Sequence[RawRecord]],
    records: Sequence[ClockRecord],
    opening: Opening = restless,
    own: Mapping[str, NoiseKey] = MappingProxyType({}),
    secret: Secret = SECRET,
    beside: Sequence[Sequence[RawRecord]] = (),
) -> Iterator[tuple[list[Release], list[Published]]]:
    """For each pipeline, what must be released and what the product releases in memory.

    Args:
        made: the deployment.
        logs: raw log by partition.
        records: the clock log.
        opening: source of nonces.
        own: noise keys of pipelines that have their own.
        secret: noise key for the judge.
        beside: logs of the topic of attributes.
    """
    made, texts = numbered(made)
    outs = ran(made, logs, records, opening, own, beside)
    others = [[(r.offset, r.key, r.value) for r in log] for log in beside]
    raw = [[(r.offset, r.timestamp, r.value) for r in log] for log in logs]
    for source in made.inputs:
        for pipeline in source.pipelines:
            published = [
                (o.key or b"", plain(o.value, texts)) for o in outs[pipeline.release_topic]
            ]
            known = public(source, pipeline)
            yield (
                list(judged(known, secret, as_json(records), raw, published, None, others)),
                published,
            )


def ran(
    made: Deployment,
    logs: Sequence[Sequence[RawRecord]],
    records: Sequence[ClockRecord],
    opening: Opening = restless,
    own: Mapping[str, NoiseKey] = MappingProxyType({}),
    beside: Sequence[Sequence[RawRecord]] = (),
) -> Mapping[str, Sequence[Out]]:
    """What the product publishes in memory, by topic."""
    places = {("events", n): list(log) for n, log in enumerate(logs)}
    places |= {("users", n): list(log) for n, log in enumerate(beside)}
    entries = list(enumerate(records))
    run = OfflineEngine(made, NAMES, SECRET, places, entries, Recorded(opening=opening, own=own))
    run.run()
    return run.outs


def verdict(
    made: Deployment,
    logs: Sequence[Sequence[RawRecord]],
    records: Sequence[ClockRecord],
    opening: Opening = restless,
    beside: Sequence[Sequence[RawRecord]] = (),
) -> tuple[list[str], int]:
    """The judge's objections to the product's releases, and the number of rows."""
    found, rows = [], 0
    for releases, published in outcome(made, logs, records, opening, beside=beside):
        rows += sum(len(release.rows) for release in releases)
        found += objections(releases, published)
    return found, rows
