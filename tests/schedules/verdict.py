"""What a schedule must have come to, by programs that share nothing with the product.

Totals, noise and rows are `tests/judge`'s, from raw log, clock log, configuration and key; the
ledger's chain and its charges are too. Counted here: every release from every shard once, every
charge once, every dead letter once, one content for each noise label.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from typing import Any

from hushstream.topics.records import encode

from tests.judge.histogram import Judge
from tests.judge.logs import KINDS as JUDGED
from tests.judge.logs import Nonces, charges, judged, objections
from tests.judge.logs import Pipeline as Public
from tests.judge.rules import Rules

from .broker import Broker
from .deployments import SECRET, Template
from .world import World

RELEASES, DEAD = "hush.p.releases.v1", "hush.p.dlq"


@lru_cache(None)
def _public(template: Template) -> Public:
    source = template.deployment.inputs[0]
    pipeline = source.pipelines[0]
    keys = pipeline.public_keys
    listed = None if keys is None else [json.loads(key) for key in keys]
    config = json.loads(encode(pipeline.config))
    return Public(config, listed, source.partitioner, source.partitions)


@lru_cache(None)
def _rules(template: Template) -> Rules:
    return _public(template).rules(template.deployment.pipelines[0].cells_partitions)


def committed(broker: Broker, topic: str, partition: int = 0) -> list[Any]:
    """All committed records of a partition that it still has."""
    log = broker.logs[topic, partition]
    return log.read(log.start, 1 << 30)[0]


def triggers(broker: Broker, template: Template) -> list[dict[str, Any]]:
    """All triggers of the clock log."""
    values = [r.value for r in committed(broker, template.names.clock)]
    found = [json.loads(value) for value in values if b"ordinal" in value]
    return [entry for entry in found if entry["type"] == "trigger"]


def waiting(broker: Broker, template: Template, until: int) -> str:
    """What is not done yet of all that is due until a moment; empty if nothing is."""
    fired = sorted(entry["scheduled"] for entry in triggers(broker, template))
    if not fired or fired[-1] < until:
        return "a trigger is due and was not fired"
    # Where all workers came late, the first trigger of all may be scheduled for later than that.
    last = min(scheduled for scheduled in fired if scheduled >= until)
    shards = template.deployment.pipelines[0].cells_partitions
    manifests = sum(b'"hush.manifest/' in r.value for r in committed(broker, RELEASES))
    due = sum(scheduled <= last for scheduled in fired) * shards
    return "" if manifests >= due else f"{due - manifests} of {due} releases are missing"


def judge(world: World, template: Template, until: int) -> dict[str, list[str]]:
    """Objections by kind: lost, doubled, differing."""
    broker = world.broker
    clock = [json.loads(r.value) for r in committed(broker, template.names.clock)]
    published = [(r.key, r.value) for r in committed(broker, RELEASES)]
    # A charge and its trigger are decided together, and become visible at two moments.
    charged = broker.logs[template.names.ledger, 0]
    for one in [one for one in charged.open if one.ending]:
        charged.mark(one, one.commit)
    ledger = [r.value for r in committed(broker, template.names.ledger)]
    public = _public(template)
    raw = [
        [(r.offset, r.timestamp, r.value)
         for r in broker.logs["events", n].records[begin:] if r is not None]
        for n, begin in enumerate(template.begins)
    ]  # fmt: skip
    found = list[str]()
    if template.kind == "histogram":
        usable = [public.usable(n, records) for n, records in enumerate(raw)]
        rules = _rules(template)
        run = Judge(rules, SECRET, Nonces(rules, published), None)
        found += objections(list(run.run(clock, usable)), published)
    elif public.config["mechanism"]["kind"] in JUDGED:
        found += objections(judged(public, SECRET, clock, raw, published), published)
    else:
        found += _once(clock, published)
    found += charges(ledger, clock)
    found += noise(world)
    found += _dead(broker, clock, raw, public)
    found += _order(clock)
    kinds: dict[str, list[str]] = {"lost": [], "doubled": [], "differing": []}
    for text in found:
        kinds[_kind(text)].append(text)
    return kinds


def noise(world: World) -> list[str]:
    """Labels of noise that was drawn for two contents, whatever became of the logs since."""
    return [f"noise {label} was drawn for {len(contents)} contents, doubled"
            for label, contents in world.contents.items() if len(contents) > 1]  # fmt: skip


def _once(clock: list[dict[str, Any]], published: list[tuple[Any, Any]]) -> list[str]:
    """Every trigger was released once, for its charge, and each of its rows once.

    The last triggers may still be to come.
    """
    fired = [entry for entry in clock if entry["type"] == "trigger"]
    bodies = [(key, json.loads(value)) for key, value in published]
    told = Counter((key, body["trigger"]) for key, body in bodies)
    found = [f"{place} was released {n} times" for place, n in told.items() if n > 1]
    charged = [body["privacy"]["charge"] for _, body in bodies if "privacy" in body]
    wanted = [entry["charge"] for entry in fired][: len(charged)]
    if charged != wanted:  # a single shard publishes them in order
        found.append(f"charges differ: {charged} and not {wanted}")
    return found


def _kind(text: str) -> str:
    if "not released" in text or "lost" in text:
        return "lost"
    return "doubled" if "times" in text or "twice" in text or "doubled" in text else "differing"


def _dead(broker: Broker, clock: Any, raw: Any, public: Public) -> list[str]:
    """Every record that cannot be used stands among the dead letters once, if a beat passed it."""
    ends = [max((e["offsets"]["events"][n] for e in clock if "offsets" in e), default=0)
            for n in range(len(raw))]  # fmt: skip
    bad = Counter(
        value
        for n, records in enumerate(raw)
        for offset, _, value in records
        if offset < ends[n] and value.startswith(b"bad")
    )
    told = Counter(r.value for r in committed(broker, DEAD))
    return [
        f"dead letter {value!r}: {told[value]} times, and not {bad[value]}"
        + (": lost" if told[value] < bad[value] else "")
        for value in {*bad, *told}
        if told[value] > bad[value]
    ]


def _order(clock: list[dict[str, Any]]) -> list[str]:
    """Offsets and ordinals of the clock log only grow, one by one."""
    found, ordinal = [], 0
    last: list[int] = []
    for entry in clock:
        ends = entry.get("offsets", {}).get("events", last)
        if any(a < b for a, b in zip(ends, last, strict=False)):
            found.append("the clock log covers less than before")
        last = ends
        if entry["type"] == "trigger":
            ordinal += 1
            if entry["ordinal"] != ordinal:
                found.append(f"trigger {ordinal} has the ordinal {entry['ordinal']}")
    return found
