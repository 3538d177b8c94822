"""Hostile input: no crash, each bad record one dead letter for each pipeline, none lost."""

from __future__ import annotations

import json
import logging
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock import genesis as admin
from hushstream.agents.deployment.compile import compile_config
from hushstream.deploy.broker import Broker
from hushstream.formats.events.decode import RawRecord
from hushstream.topics.config.load import load
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import DAY, ORIGIN, beat, deployment, engine, start, trigger
from .local import Process, process

REASON = "__streams.errors.reason"
OFFSET = "__streams.errors.offset"

SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 90), 1 << 90), st.floats(), st.text(max_size=6),
    st.sampled_from([10**400, "x" * 2000, "u" * 5000, "", "a", 0, 1]),
)  # fmt: skip
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
TIME = st.one_of(
    st.integers(0, 253_402_300_800_000_000),  # 1970 to 9999
    st.integers(ORIGIN - DAY, ORIGIN + 2 * DAY),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "user": st.sampled_from(["a", "b", 1, 2, "1", None, ""]) | JSON,
        "page": st.sampled_from(["p", "q", 1, True, "", None]) | JSON,
        "t": TIME | JSON,
        "more": JSON,
    },
)
GOOD = st.builds(
    lambda u, p, t: json.dumps({"user": u, "page": p, "t": t}).encode(),
    st.sampled_from("abc"), st.sampled_from("pq"), st.integers(ORIGIN, ORIGIN + DAY - 1),
)  # fmt: skip
VALUE = st.one_of(
    GOOD,
    EVENT.map(lambda e: json.dumps(e).encode()),
    JSON.map(lambda e: json.dumps(e).encode()),
    st.binary(max_size=40),
    st.none(),
    st.sampled_from([b"[" * 9_000, b'{"x":' * 9_000, b" " * 1_000_001, b"\0" * 3_000_000]),
)
RECORD = st.tuples(
    st.none() | st.binary(max_size=12),
    VALUE,
    st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=6)), max_size=2),
    st.integers(-1, 1 << 50),
)


def raws(records: list[Any], base: int) -> list[RawRecord]:
    # Transactions leave gaps between offsets.
    return [RawRecord(base + 2 * i, t, k, v, tuple(h)) for i, (k, v, h, t) in enumerate(records)]


@settings(max_examples=60)
@given(
    st.lists(RECORD, max_size=25),
    st.sampled_from(["none", "murmur2", "crc32"]),
    st.sampled_from([ORIGIN + DAY, ORIGIN + 400 * DAY, 253_402_300_000_000_000]),
    st.integers(0, 1 << 40),
)
def test_every_record_has_exactly_one_fate_per_pipeline(records, partitioner, now, base):
    made = deployment(pipelines=("p", "q"), partitioner=partitioner, units=2, cells=2)
    log = raws(records, base)
    end = base + 2 * len(log)
    clock = [start(p) for p in made.pipelines] + [beat([base + len(log)], now), beat([end], now)]
    clock += [trigger(p, 1, [end], time=now) for p in made.pipelines]
    found = engine(made, [log], clock)
    for p in made.pipelines:
        of = {what: n for (name, what), n in found.counts.items() if name == p.name}
        bad = sum(n for what, n in of.items() if what.startswith("invalid:"))
        assert of.get("seen", 0) + bad + of.get("late", 0) + of.get("future", 0) == len(log)
        letters = found.outs.get(p.dlq_topic, [])
        kept = found.outs.get(p.late_topic, [])
        assert len(letters) == bad and len(kept) == of.get("late", 0) + of.get("future", 0)
        offsets = [int(dict(o.headers)[OFFSET]) for o in (*letters, *kept)]
        assert len(set(offsets)) == len(offsets)
        assert set(offsets) <= {r.offset for r in log}
        assert Counter(dict(o.headers)[REASON].decode() for o in letters) == Counter(
            {w.removeprefix("invalid:"): n for w, n in of.items() if w.startswith("invalid:") and n}
        )
        assert all(len(o.value or b"") <= 900_000 for o in (*letters, *kept))
        # The stream continued: each trigger has a manifest of each shard.
        manifests = [o for o in found.outs[p.release_topic] if b"hush.manifest/2" in o.value]
        assert len(manifests) == 2


@settings(max_examples=40)
@given(st.lists(RECORD, max_size=20), st.lists(st.integers(0, 40), max_size=6))
def test_bad_records_and_beats_between_good_ones_change_no_count(records, beats):
    made = deployment(more='public_keys = ["p", "q"]')
    p = made.pipelines[0]
    good = [json.dumps({"user": "ab"[i % 2], "page": "pq"[i % 2], "t": ORIGIN}).encode()
            for i in range(6)]  # fmt: skip
    bad = [(k, v, h, t) for k, v, h, t in records if v is None or not v.startswith(b'{"')]
    mixed: list[Any] = []
    for i, value in enumerate(good):
        mixed += bad[i::6]
        mixed.append((None, value, [], 0))
    alone = [(None, value, [], 0) for value in good]
    one, other = (
        engine(made, [raws(some, 0)],
               [start(p), *(beat([min(2 * b, 2 * len(some))]) for b in sorted(cuts)),
                trigger(p, 1, [2 * len(some)])])
        for some, cuts in ((mixed, beats), (alone, []))
    )  # fmt: skip
    rows = [[(o.key, o.value) for o in run.outs[p.release_topic]] for run in (one, other)]
    assert rows[0] == rows[1] and len(rows[0]) == 3


# -- on a broker -------------------------------------------------------------------------------

DEPLOYMENT = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
public_port = 0
operator_port = 0
[[input]]
name = "{name}"
topic = "{name}"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
late = "topic"
[[pipeline]]
name = "{name}"
input = "{name}"
key = ["page"]
public_keys = ["p0", "p1"]
unit_name = "user"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-6 }}
"""


def hostile(rng: random.Random, n: int) -> list[tuple[str, bytes | None]]:
    """(fate, value) of records that no honest producer sends."""
    day = 86_400_000_000

    def one(**changes: Any) -> bytes:
        body = {"user": f"u{rng.randrange(40)}", "page": "p0", "t": ORIGIN + rng.randrange(day)}
        return json.dumps(body | changes).encode()

    kinds: list[Callable[[], tuple[str, bytes | None]]] = [
        lambda: ("good", one()),
        lambda: ("good", one(page="p1", pad="x" * rng.choice([10, 100_000, 950_000]))),
        lambda: ("bad", None),
        lambda: ("bad", rng.randbytes(rng.randrange(200))),
        lambda: ("bad", rng.randbytes(rng.choice([1, 50_000, 1_000_000, 1_040_000]))),
        lambda: ("bad", b"[" * rng.randrange(1, 60_000)),
        lambda: ("bad", one(page="")),
        lambda: ("bad", one(page="k" * rng.choice([2_000, 999_000]))),
        lambda: ("bad", one(user="u" * rng.choice([5_000, 999_000]))),
        lambda: ("bad", one(t=rng.choice([-1, 1 << 62, 1 << 80, 1e300, "x", None, True]))),
        lambda: ("bad", one()[: rng.randrange(20)]),
        lambda: ("bad", b" " * rng.choice([1_000_001, 4_000_000])),  # small only after compression
        lambda: ("late", one(t=rng.randrange(ORIGIN))),
        lambda: ("late", one(t=rng.choice([ORIGIN + 1000 * 365 * day, 253_402_300_799_000_000]))),
    ]
    return [kinds[i % len(kinds)]() for i in range(n)]


@pytest.mark.slow
def test_a_worker_survives_what_a_broker_accepts(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("fuzz")
    (tmp_path / "hush.toml").write_text(DEPLOYMENT.format(name=name))
    flags = {"kafka.bootstrap": broker.bootstrap}
    config = load(tmp_path / "hush.toml", flags=flags)
    cluster = admin.Cluster(config.kafka)
    cluster.wait()
    # Otherwise retention by time would delete records of 1970.
    kept = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
    new = NewTopic(name, 3, 1, config=kept)
    for future in cluster._admin.create_topics([new]).values():
        future.result()
    key = secrets.token_bytes(32)
    admin.Beginning(
        cluster, compile_config(config, {name: 3}), 1, int(time.time() * 1e6), key
    ).begin()
    records = hostile(random.Random(5), 294)
    rng = random.Random(6)
    for place, codec in enumerate(("none", "lz4", "zstd")):
        limit = {"message.max.bytes": 8_000_000}
        producer = cluster.producer(**limit, **{"compression.type": codec, "linger.ms": 0})
        for number, (_, value) in enumerate(records[place::3]):
            if codec == "none" and value is not None and len(value) > 1_040_000:
                value = value[:1_040_000]
            producer.produce(
                name, value, key=rng.choice([None, b"", rng.randbytes(8)]),
                headers=rng.choice([None, [("h", None)], [("", b"\xff" * 30), ("h", b"1")]]),
                partition=number % 3, timestamp=rng.choice([0, 1, 1_551_398_400_000, 1 << 50]),
            )  # fmt: skip
            producer.flush()
    fates = Counter(fate for fate, _ in records)
    command = ["/usr/bin/env", f"HUSH_NOISE_KEY={key.hex()}", sys.executable, "-m", "hushstream"]
    command += ["worker", "-c", str(tmp_path / "hush.toml"), "--bootstrap", broker.bootstrap]
    command += ["--set", f"engine.data_dir={tmp_path / 'state'}"]
    worker, log = process(command, tmp_path / "log"), tmp_path / "log"
    try:
        names = Names(name, admin.read_ledger(cluster, name).genesis["genesis"])
        producer = cluster.producer()
        producer.produce(names.requests, encode(TriggerRequest("r1", ORIGIN + DAY)))
        producer.flush()
        found = partial(final_rows, cluster, f"hush.{name}.releases.v1")
        rows = until(found, worker, log)
        assert {r["key"]["page"] for r in rows} == {"p0", "p1"}
        letters = cluster.read(f"hush.{name}.dlq")
        late = cluster.read(f"hush.{name}.late")
        places = [place_of(m) for m in (*letters, *late)]
        assert len(set(places)) == len(places)
        assert len(letters) == fates["bad"]
        assert len(late) == fates["late"]
        assert worker.returncode is None
    finally:
        worker.send(signal.SIGTERM)
        ended = worker.wait(150)
        logging.getLogger(__name__).info(log.read_text())
    assert ended and worker.returncode == 0


def final_rows(cluster: admin.Cluster, topic: str) -> list[dict[str, Any]]:
    records = [json.loads(m.value()) for m in cluster.read(topic)]
    return [r for r in records if r["schema"] == "hush.release/2" and r["final"]]


def place_of(message: Any) -> tuple[bytes, bytes]:
    found = dict(message.headers())
    return found["__streams.errors.partition"], found[OFFSET]


def until(probe: Callable[[], list[Any]], worker: Process, log: Path) -> list[Any]:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        assert worker.returncode is None, log.read_text()[-5000:]
        found = probe()
        if len(found) == 2:
            return found
        time.sleep(0.5)
    raise AssertionError(f"no release appeared\n{log.read_text()[-5000:]}")
