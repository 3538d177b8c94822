"""The required result of a schedule, by programs that share nothing with the product.

`tests/judge` computes totals, noise and rows from raw log, clock log, configuration and key, and
checks the ledger's chain and charges. This module counts: every release of every shard once, every
charge once, every dead letter once, one content for each noise label.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import Any

from hushstream.agents.deployment.model import Deployment, Input
from hushstream.topics.records import encode

from tests.judge.framed import NOTHING, unframed
from tests.judge.histogram import Judge, Order
from tests.judge.logs import KINDS as JUDGED
from tests.judge.logs import Nonces, charges, judged
from tests.judge.logs import Pipeline as Public
from tests.judge.published import objections
from tests.judge.ratchet import keys
from tests.judge.rules import Rules
from tests.judge.topics import units_order
from tests.judge.views import about_view

from .broker import Broker
from .deployments import SECRET, Template
from .deployments import VIEW as VIEW_TEXT
from .keys import STATE
from .operator import ADDED
from .registry import TEXTS
from .world import World

RELEASES, VIEWS = "hush.p.releases.v1", "hush.v.releases.v1"
TRIGGERS = ("trigger", "wider-trigger")  # the latter after partitions were added
VIEW = tomllib.loads(VIEW_TEXT)["view"][0]


class Known(Public):
    """Public facts of a pipeline; its rules are computed once for all schedules."""

    def rules(self, shards: int = 1) -> Rules:
        """The rules that follow from these facts when so many shards publish."""
        made: dict[int, Rules] = vars(self).setdefault("made", {})
        if shards not in made:
            made[shards] = super().rules(shards)
        return made[shards]


_known: dict[tuple[int, int], tuple[Deployment, Known]] = {}
"""By identity of a deployment, which cannot be a dictionary key, and number of the pipeline."""


def _public(deployment: Deployment, number: int) -> Known:
    place = id(deployment), number
    if place not in _known:
        _known[place] = deployment, _described(deployment.inputs[0], number)
    return _known[place][1]


def _described(source: Input, number: int) -> Known:
    pipeline = source.pipelines[number]
    keys = pipeline.public_keys
    listed = None if keys is None else [json.loads(key) for key in keys]
    config = json.loads(encode(pipeline.config))
    return Known(config, listed, source.partitioner, source.partitions)


def committed(broker: Broker, topic: str, partition: int = 0) -> list[Any]:
    """All committed records that a partition still has."""
    log = broker.logs[topic, partition]
    return log.read(log.start, 1 << 30)[0]


def triggers(broker: Broker, template: Template) -> list[dict[str, Any]]:
    """All triggers of the clock log."""
    values = [r.value for r in committed(broker, template.names.clock)]
    found = [json.loads(value) for value in values if b"ordinal" in value]
    return [entry for entry in found if entry["type"] in TRIGGERS]


def waiting(broker: Broker, template: Template, until: int) -> str:
    """What is due before a time and not done yet, in words; empty if nothing is."""
    fired = sorted(entry["scheduled"] for entry in triggers(broker, template))
    if not fired or fired[-1] < until:
        return "a trigger is due and was not fired"
    # If all workers came late, the very first trigger may be scheduled later than that.
    last = min(scheduled for scheduled in fired if scheduled >= until)
    shards = template.deployment.pipelines[0].cells_partitions
    manifests = sum(b'"hush.manifest/' in r.value for r in committed(broker, RELEASES))
    due = sum(scheduled <= last for scheduled in fired) * shards
    if manifests < due:
        return f"{due - manifests} of {due} releases are missing"
    made = sum(b'"hush.manifest/' in r.value for r in _views(broker))
    viewed = due if (VIEWS, 0) in broker.logs else 0
    return "" if made >= viewed else f"{viewed - made} of {viewed} releases of a view are missing"


def _views(broker: Broker) -> list[Any]:
    return committed(broker, VIEWS) if (VIEWS, 0) in broker.logs else []


def judge(world: World, template: Template, deployment: Deployment) -> dict[str, list[str]]:
    """Objections by kind: lost, doubled, differing.

    Args:
        template: deployment at the start.
        deployment: deployment at the end.
    """
    broker = world.broker
    clock = [json.loads(r.value) for r in committed(broker, template.names.clock)]
    published = [(r.key, r.value) for r in committed(broker, RELEASES)]
    # A charge and its trigger are decided together but become visible at different times.
    charged = broker.logs[template.names.ledger, 0]
    for one in [one for one in charged.open if one.ending]:
        charged.mark(one, one.commit)
    ledger = [r.value for r in committed(broker, template.names.ledger)]
    sent = [
        [r for r in broker.logs["events", n].records[begin:] if r is not None]
        for n, begin in enumerate([*template.begins, *[0] * ADDED])
        if ("events", n) in broker.logs
    ]
    encoding = "avro" if template.kind == "framed" else "json"
    raw = [
        [(r.offset, r.timestamp, unframed(encoding, r.value, TEXTS)) for r in log] for log in sent
    ]
    secret = keys(STATE) if template.kind == "ratchet" else SECRET
    found = list[str]()
    for number, pipeline in enumerate(deployment.inputs[0].pipelines):
        public, name = _public(deployment, number), pipeline.name.encode() + b"|"
        mine = [(key, value) for key, value in published if key.startswith(name)]
        if template.kind == "histogram":
            usable = [public.usable(n, records) for n, records in enumerate(raw)]
            rules = public.rules(pipeline.cells_partitions)
            run = Judge(rules, SECRET, Nonces(rules, mine), None)
            found += objections(list(run.run(clock, usable)), mine)
        elif public.config["mechanism"]["kind"] in JUDGED:
            order = _order_of_units(broker, template, public) if template.kind == "grown" else None
            found += objections(judged(public, secret, clock, raw, mine, order), mine)
        else:
            found += _once(clock, mine)
        dead = committed(broker, f"hush.{pipeline.name}.dlq")
        found += _dead(dead, clock, sent, raw)
    if told := _views(broker):
        rules = _public(deployment, 0).rules()
        found += about_view(VIEW, rules, published, [(r.key, r.value) for r in told])
        found += _viewed(told)
    found += charges(ledger, clock)
    found += noise(world)
    found += _order(clock)
    kinds: dict[str, list[str]] = {"lost": [], "doubled": [], "differing": []}
    for text in found:
        kinds[_kind(text)].append(text)
    return kinds


def noise(world: World) -> list[str]:
    """Labels whose noise was drawn for two contents, in any history of the logs."""
    return [f"noise {label} was drawn for {len(contents)} contents, doubled"
            for label, contents in world.contents.items() if len(contents) > 1]  # fmt: skip


def _once(clock: list[dict[str, Any]], published: list[tuple[Any, Any]]) -> list[str]:
    """Objections unless every trigger was released once, for its charge, each row once.

    The last triggers may still be to come.
    """
    fired = [entry for entry in clock if entry["type"] in TRIGGERS]
    bodies = [(key, json.loads(value)) for key, value in published]
    told = Counter((key, body["trigger"]) for key, body in bodies)
    found = [f"{place} was released {n} times" for place, n in told.items() if n > 1]
    charged = [body["privacy"]["charge"] for _, body in bodies if "privacy" in body]
    wanted = [entry["charge"] for entry in fired][: len(charged)]
    if charged != wanted:  # the only shard publishes them in order
        found.append(f"charges differ: {charged} and not {wanted}")
    return found


def _kind(text: str) -> str:
    if "not released" in text or "lost" in text:
        return "lost"
    return "doubled" if "times" in text or "twice" in text or "doubled" in text else "differing"


def _order_of_units(broker: Broker, template: Template, public: Known) -> Order:
    """The raw partitions of the records of each unit, in order.

    Added partitions have records of units that other partitions have as well.
    """
    topic = template.names.units("p")
    logs = [log for (name, _), log in broker.logs.items() if name == topic]
    frames = [record for log in logs for record in log.read(0, 1 << 30)[0]]  # also trimmed ones
    return units_order(frames, public.rules().span, SECRET)


def _viewed(told: list[Any]) -> list[str]:
    """Objections unless the view publishes each release of its source once."""
    bodies = (json.loads(r.value) for r in told)
    places = Counter((body["window"]["start"], body["trigger"]) for body in bodies
                     if body["schema"].startswith("hush.manifest/"))  # fmt: skip
    return [f"the view released {place} {n} times" for place, n in places.items() if n > 1]


def _dead(dead: list[Any], clock: Any, sent: Any, raw: Any) -> list[str]:
    """Objections unless every unusable record that a beat passed is among the dead letters once.

    Args:
        sent: records of each raw partition as they were sent; ``raw`` has their values as JSON.
    """
    passed = [e["offsets"]["events"] for e in clock if "offsets" in e]
    ends = [max((one[n] for one in passed if n < len(one)), default=0) for n in range(len(raw))]
    bad = Counter(
        record.value
        for n, records in enumerate(sent)
        for record, (offset, _, value) in zip(records, raw[n], strict=True)
        if offset < ends[n] and value[:1] in (b"b", NOTHING)
    )
    told = Counter(r.value for r in dead)
    return [
        f"dead letter {value!r}: {told[value]} times, and not {bad[value]}"
        + (": lost" if told[value] < bad[value] else "")
        for value in {*bad, *told}
        if told[value] > bad[value]
    ]


def _order(clock: list[dict[str, Any]]) -> list[str]:
    """Objections unless offsets and ordinals of the clock log grow one by one."""
    found, ordinals = [], Counter[str]()
    last: list[int] = []
    for entry in clock:
        ends = entry.get("offsets", {}).get("events", last)
        if any(a < b for a, b in zip(ends, last, strict=False)):
            found.append("the clock log covers less than before")
        last = ends
        if entry["type"] in TRIGGERS:
            ordinals[entry["pipeline"]] += 1
            if entry["ordinal"] != ordinals[entry["pipeline"]]:
                found.append(f"trigger {ordinals} has the ordinal {entry['ordinal']}")
    return found
