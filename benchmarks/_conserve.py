"""Invariants of any mechanism, checked in the topics without any code of the product.

- Each shard releases each trigger of the clock log exactly once, except that the last ones may
  still be missing, and nothing is released without a trigger.
- Each epoch is charged once; each trigger was paid for.
- A raw record that workers have reached is exactly one of dead letter, late, or accepted. Dead
  letters are exactly the records that are not JSON.
- For a mechanism that counts all of space, the last trigger of a window states the number of
  accepted records up to ten standard deviations of its noise.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

TESTS = Path(__file__).resolve().parents[1] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

from judge.logs import charges  # noqa: E402
from judge.topics import Record, read_topic  # noqa: E402

PREFIX = "__streams.errors."
ROW, MANIFEST = "hush.release/2", "hush.manifest/2"
SIGMAS = 10
Place = tuple[int, int]  # raw partition, offset


class Count:
    """The topics of a deployment, and contradictions in them.

    Args:
        read: gives every partition of a topic.
        config: the deployment's TOML.
    """

    def __init__(self, read: Callable[[str], list[list[Record]]], config: str) -> None:
        self._read = read
        self._settings = tomllib.loads(config)
        name = self._settings["deployment"]["name"]
        self._ledger = [r.value or b"" for r in read(f"{name}.ledger.v1")[0]]
        genesis = json.loads(self._ledger[0])["body"]["genesis"]
        self._base = f"{name}.{genesis}"
        log = read(f"{self._base}.clock")[0]
        self._clock = [json.loads(r.value or b"") for r in log]
        self.records = self.triggers = self.totals = 0

    def objections(self) -> Iterator[str]:
        """Everything that does not add up."""
        yield from charges(self._ledger, self._clock)
        for source in self._settings["input"]:
            raw = self._used(source["topic"])
            self.records += len(raw)
            for one in self._settings["pipeline"]:
                if one["input"] == source["name"]:
                    for wrong in self._pipeline(one, source, raw):
                        yield f"{one['name']}: {wrong}"

    def _used(self, topic: str) -> dict[Place, Record]:
        """The records of a raw topic before the last beat or cut."""
        ends = [e["offsets"][topic] for e in self._clock if topic in e.get("offsets", {})][-1]
        logs = self._read(topic)
        return {(n, r.offset): r for n, log in enumerate(logs) for r in log if r.offset < ends[n]}

    def _pipeline(
        self, one: dict[str, Any], source: dict[str, Any], raw: dict[Place, Record]
    ) -> Iterator[str]:
        name = one["name"]
        yield from self._once(name, span(one.get("lateness", "0s")))
        topic, keeps = source["topic"], source.get("late") == "topic"
        dead = self._copies(f"hush.{name}.dlq", topic)
        late = self._copies(f"hush.{name}.late", topic) if keeps else {}
        for what, copies in (("a dead letter", dead), ("late", late)):
            yield from (f"{place} is {what} {n} times" for place, n in copies.items() if n > 1)
            yield from (f"{place} is {what} and was never sent" for place in copies.keys() - raw)
        yield from (f"{place} is late and a dead letter" for place in dead.keys() & late.keys())
        spoilt = {place for place, record in raw.items() if unreadable(record.value)}
        yield from (f"{place} is spoilt, and no dead letter" for place in spoilt - dead.keys())
        yield from (f"{place} is a dead letter without cause" for place in dead.keys() - spoilt)
        if source.get("late") == "topic" and source.get("partitioner", "none") == "none":
            left = Counter(n for n, _ in raw.keys() - dead.keys() - late.keys())
            accepted = self._accepted(name)
            if accepted != left:
                yield f"{dict(accepted)} records of each partition were accepted of {dict(left)}"
        if one.get("mechanism", {}).get("kind") in ("privhp", "phdstream"):
            yield from self._space(
                name, [r for p, r in raw.items() if p not in {*dead, *late, *spoilt}]
            )

    def _once(self, name: str, lateness: int) -> Iterator[str]:
        """Check that each shard released each trigger once; ``lateness`` is in microseconds."""
        own = (name, f"{name}-learnt")  # the second continues in the topics of the first
        fired = [
            e | {"window": (own.index(e["pipeline"]), e["window"])}
            for e in self._clock
            if e["type"] == "trigger" and e["pipeline"] in own
        ]
        self.triggers += len(fired)
        bodies = self._released(name)
        told: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        shards = 0
        for body in bodies:
            if body["schema"] == "hush.manifest/2":
                shards = body["shards"]
                told[micros(body["window"]["start"]), body["trigger"]][body["shard"]] += 1
        starts = sorted({start for start, _ in told})
        numbers = sorted({e["window"] for e in fired})
        if len(starts) > len(numbers):
            yield f"{len(numbers)} windows were triggered, {len(starts)} were released"
            return
        # Workers were stopped while triggers went on, so the last ones may not be released yet.
        window = dict(zip(numbers, starts, strict=False))
        fired = [e for e in fired if e["window"] in window]
        ends = {micros(b["window"]["start"]): micros(b["window"]["end"]) for b in bodies}
        for e in fired:  # a missing trigger would shift all later ones
            if e["final"] and e["scheduled"] != ends[window[e["window"]]] + lateness:
                yield f"window {e['window'][1]} of {len(numbers)} was triggered and not released"
                return
        wanted = {(window[e["window"]], e["index"]) for e in fired}
        yield from (f"{place} was released without a trigger" for place in told.keys() - wanted)
        order = [(window[e["window"]], e["index"]) for e in fired]
        for shard in range(shards):  # a shard releases in order; the last may be pending
            reached = max((n for n, place in enumerate(order) if told[place][shard]), default=-1)
            for n, place in enumerate(order):
                if (times := told[place][shard]) > 1 or (times == 0 and n < reached):
                    yield f"{place} was released {times} times by shard {shard}"
        ids = Counter(b["release_id"] for b in bodies if b["schema"] == "hush.release/2")
        yield from (f"release {one} came {n} times" for one, n in ids.items() if n > 1)

    def _released(self, name: str) -> list[dict[str, Any]]:
        logs = self._read(f"hush.{name}.releases.v1")
        return [json.loads(r.value or b"") for log in logs for r in log]

    def _copies(self, topic: str, raw: str) -> Counter[Place]:
        """The places in a raw topic that the records of a topic name in their headers.

        Unreadable records that state attributes of units are named with their own topic.
        """
        found: Counter[Place] = Counter()
        for log in self._read(topic):
            for record in log:
                said = {name: value for name, value in record.headers if name.startswith(PREFIX)}
                if said.get(PREFIX + "topic", raw.encode()) != raw.encode():
                    continue
                found[int(said[PREFIX + "partition"]), int(said[PREFIX + "offset"])] += 1
        return found

    def _accepted(self, name: str) -> Counter[int]:
        """Number of records of each raw partition that reached the units topic."""
        found: Counter[int] = Counter()
        for log in self._read(f"{self._base}.{name}.units"):
            for frame in log:
                batch = pa.ipc.open_stream(frame.value).read_next_batch()
                about = batch.schema.metadata
                if about[b"kind"] == b"events":
                    found[int(about[b"origin"])] += batch.num_rows
        return found

    def _space(self, name: str, used: list[Record]) -> Iterator[str]:
        """Compare the sum of the last trigger's leaves with the number of units that travelled."""
        leaves: dict[tuple[int, int, int], list[dict[str, Any]]] = defaultdict(list)
        final: dict[tuple[int, int], int] = {}
        for body in self._released(name):
            about = body["window"]
            window = micros(about["start"]), micros(about["end"])
            if body["schema"] == "hush.release/2":
                leaves[*window, body["trigger"]].append(body["values"]["count"])
            elif body["final"]:
                final[window] = body["trigger"]
        bodies = [json.loads(record.value or b"") for record in used]
        for window, trigger in final.items():
            units = {b["user"] for b in bodies if window[0] <= b["t"] < window[1]}
            said = leaves[*window, trigger]
            self.totals += 1
            noise = SIGMAS * math.sqrt(sum(leaf["stddev"] ** 2 for leaf in said))
            total = sum(leaf["value"] for leaf in said)
            if not abs(total - len(units)) <= noise:
                yield f"{window}: {total} is not {len(units)}, up to {noise}"


def span(text: str) -> int:
    """Microseconds of a duration of one unit, such as ``1h``."""
    return int(text[:-1]) * 1_000_000 * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[text[-1]]


def micros(text: str) -> int:
    """Microseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp()) * 1_000_000


def conserved(bootstrap: str, config: Path) -> dict[str, Any]:
    """Counts, and the first objections."""
    count = Count(partial(read_topic, bootstrap), config.read_text("utf-8"))
    found = list(count.objections())
    return {
        "counted": count.records,
        "counted_triggers": count.triggers,
        "counted_totals": count.totals,
        "unconserved": len(found),
        "contradictions": found[:20],
    }


def unreadable(value: bytes | None) -> bool:
    """Whether a record is not JSON: spoilt by the load, or a hostile one of a flood."""
    try:
        return not isinstance(json.loads(value or b""), dict)
    except (ValueError, RecursionError):
        return True
