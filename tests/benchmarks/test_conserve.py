"""Counts in topics after runs through faults: each discrepancy is named."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _conserve
finally:
    sys.path.pop(0)

CONFIG = """
[deployment]
name = "d"
[[input]]
name = "trips"
topic = "trips"
late = "topic"
[[pipeline]]
name = "p"
input = "trips"
mechanism = { kind = "privhp" }
"""
HOUR = 3_600_000_000
Topics = dict[str, list[list[Any]]]


def record(offset: int, body: Any, headers: tuple[tuple[str, bytes], ...] = ()) -> Any:
    value = body if isinstance(body, bytes) else json.dumps(body).encode()
    return _conserve.Record(offset, 0, b"", value, headers)


def copy(offset: int, of: int) -> Any:
    said = {"partition": "0", "offset": str(of)}
    headers = tuple((f"__streams.errors.{name}", v.encode()) for name, v in said.items())
    return record(offset, b"", headers)


def frame(events: int) -> Any:
    about = {b"kind": b"events", b"origin": b"0", b"window": b"0"}
    batch = pa.record_batch({"unit": [b"u"] * events}).replace_schema_metadata(about)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return record(0, sink.getvalue().to_pybytes())


def world() -> Topics:
    """Six records of one partition (one spoilt, one late, one not reached), and two shards."""
    lines: list[bytes] = []
    for seq, (kind, body) in enumerate([
        ("genesis", {"genesis": "g"}), ("charge", {"pipeline": "p", "epoch": 0}),
    ]):  # fmt: skip
        before = hashlib.sha256(lines[-1]).hexdigest() if lines else "0" * 64
        entry = {"seq": seq, "prev_hash": before, "kind": kind, "body": body}
        lines.append(json.dumps(entry).encode())
    paid = hashlib.sha256(lines[-1]).hexdigest()
    trigger = {"type": "trigger", "pipeline": "p", "window": 7, "index": 1, "ordinal": 1,
               "final": True, "scheduled": HOUR, "epoch": 0, "charge": paid,
               "offsets": {"trips": [5]}}  # fmt: skip
    window = {"start": "1970-01-01T00:00:00Z", "end": "1970-01-01T01:00:00Z"}
    common = {"window": window, "trigger": 1}
    released: list[Any] = [
        common | {"schema": "hush.release/2", "release_id": f"r{n}",
                  "values": {"count": {"value": value, "stddev": 0.1}}}
        for n, value in enumerate([1, 2])
    ]  # fmt: skip
    released += [
        common | {"schema": "hush.manifest/2", "shard": shard, "shards": 2, "final": True}
        for shard in range(2)
    ]
    raw = [{"user": f"u{n}", "t": n} for n in range(6)]
    return {
        "d.ledger.v1": [[record(n, line) for n, line in enumerate(lines)]],
        "d.g.clock": [[record(0, trigger)]],
        "trips": [[record(n, b"{bad" if n == 1 else body) for n, body in enumerate(raw)]],
        "hush.p.releases.v1": [[record(n, body) for n, body in enumerate(released)]],
        "hush.p.dlq": [[copy(0, 1)]],
        "hush.p.late": [[copy(0, 2)]],
        "d.g.p.units": [[frame(2)], [frame(1)]],
    }


@pytest.mark.parametrize(
    ("value", "bad"),
    [(b"{" + b"[" * 980_000, True), (b"{bad", True), (None, True), (b"7", True), (b"{}", False)],
    ids=["hostile", "spoilt", "nothing", "number", "record"],
)
def test_what_is_no_json_is_a_dead_letter_with_cause(value: bytes | None, bad: bool):
    assert _conserve.unreadable(value) is bad


def objections(topics: Topics) -> list[str]:
    return list(_conserve.Count(topics.__getitem__, CONFIG).objections())


def test_a_deployment_that_adds_up_has_no_objection():
    assert objections(world()) == []


def test_a_trigger_comes_as_late_as_the_pipeline_wants():
    late = CONFIG.replace('name = "p"', 'name = "p"\nlateness = "30m"')
    topics = world()
    (trigger,) = topics["d.g.clock"][0]
    told = json.loads(trigger.value) | {"scheduled": HOUR + HOUR // 2}
    topics["d.g.clock"][0] = [record(0, told)]
    assert list(_conserve.Count(topics.__getitem__, late).objections()) == []
    assert objections(topics) == ["p: window 7 of 1 was triggered and not released"]


def released(topics: Topics, place: int, **changed: Any) -> None:
    log = topics["hush.p.releases.v1"][0]
    log[place] = record(place, json.loads(log[place].value) | changed)


def skipped(topics: Topics) -> None:
    """Add a second trigger, which one shard released without the first."""
    (trigger,) = topics["d.g.clock"][0]
    topics["d.g.clock"][0].append(record(1, json.loads(trigger.value) | {"index": 2}))
    released(topics, 2, trigger=2)


def later(topics: Topics, window: int) -> None:
    """Add the last trigger of an hour's window."""
    first = json.loads(topics["d.g.clock"][0][0].value)
    body = first | {"window": window, "scheduled": (window - 6) * HOUR, "ordinal": window - 6}
    topics["d.g.clock"][0].append(record(window, body))


def left_out(topics: Topics) -> None:
    """Trigger three windows, of which the first is not released."""
    later(topics, 8)
    later(topics, 9)
    for n in (2, 3):
        for start in (1, 2):
            body = json.loads(topics["hush.p.releases.v1"][0][n].value)
            span = {"start": _utc(start), "end": _utc(start + 1)}
            topics["hush.p.releases.v1"][0].append(record(9, body | {"window": span}))
    del topics["hush.p.releases.v1"][0][:4]


def _utc(hour: int) -> str:
    return f"1970-01-01T{hour:02}:00:00Z"


def test_of_the_last_windows_nothing_may_be_released_yet():
    topics = world()
    for window in (8, 9, 10):
        later(topics, window)
    assert objections(topics) == []


def charged_twice(topics: Topics) -> None:
    (ledger,) = topics["d.ledger.v1"]
    before = hashlib.sha256(ledger[-1].value).hexdigest()
    ledger.append(record(2, json.loads(ledger[1].value) | {"seq": 2, "prev_hash": before}))


BREAKS: dict[str, Callable[[Topics], Any]] = {
    "was released 2 times by shard 1": lambda t: t["hush.p.releases.v1"][0].append(
        t["hush.p.releases.v1"][0][-1]),
    "was released 0 times by shard 0": lambda t: skipped(t),
    "window 7 of 3 was triggered and not released": left_out,
    "came 2 times": lambda t: released(t, 1, release_id="r0"),
    "was released without a trigger": lambda t: (
        t["hush.p.releases.v1"][0].extend(record(9, {**json.loads(r.value), "trigger": 2})
                                          for r in t["hush.p.releases.v1"][0][-2:])),
    "is a dead letter 2 times": lambda t: t["hush.p.dlq"][0].append(copy(1, 1)),
    "is spoilt, and no dead letter": lambda t: t["hush.p.dlq"][0].clear(),
    "is a dead letter without cause": lambda t: t["hush.p.dlq"][0].append(copy(1, 3)),
    "is late 2 times": lambda t: t["hush.p.late"][0].append(copy(1, 2)),
    "is late and was never sent": lambda t: t["hush.p.late"][0].append(copy(1, 99)),
    "is late and a dead letter": lambda t: t["hush.p.late"][0].append(copy(1, 1)),
    "were accepted of": lambda t: t["d.g.p.units"][0].append(frame(1)),
    "is not 3, up to": lambda t: released(t, 0, values={"count": {"value": 4, "stddev": 0.1}}),
    "charges ('p', 0) twice": charged_twice,
    "was not paid for": lambda t: t["d.ledger.v1"][0].pop(),
}  # fmt: skip


@pytest.mark.parametrize("said", BREAKS)
def test_whatever_does_not_add_up_is_named(said):
    topics = world()
    BREAKS[said](topics)
    assert any(said in one for one in objections(topics)), objections(topics)
