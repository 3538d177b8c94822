"""Batches that inflate to a gigabyte: no worker starves, and a replay decides the same."""

from __future__ import annotations

import asyncio
import json
import time

import psutil
import pytest
from hushstream.agents.kafka.logs import read_topic
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.offline.replay import replay

from ..agents.kafka.batches.bombs import batch, produce
from .local import BROKER, Local, local
from .test_outage import DAY, ORIGIN, TOML

pytestmark = pytest.mark.broker

HELD = 700 << 20  # limit for a worker's bytes; without the product's limit it took at least 1.5 GB
GOOD = json.dumps({"user": "u", "page": "a", "t": ORIGIN}).encode()
TEXT = TOML.replace('session_timeout = "6s"', 'session_timeout = "3s"\nmax_clock_lead = "1h"')
TEXT = TEXT.replace('every = "12h"', 'every = "3h"')
SENT = 4437  # offsets of one round of bombs
ROUNDS = 8  # at most: a machine that halts for three seconds starves a worker as well


def bombs(run: Local) -> None:
    """Send batches of a gigabyte and more, large records, and a good record between all of them."""
    zeros = bytes(1 << 20)
    huge = [batch((zeros for _ in range(1100)), codec) for codec in ("zstd", "gzip")]
    assert len(huge[0]) < 100_000
    large = batch([GOOD, bytes(30 << 20), GOOD])
    many = batch((b"{}" for _ in range(30)), "gzip")
    sent = [huge[0], batch([GOOD]), huge[0], large, huge[0], many, batch([GOOD] * 2)]
    asyncio.run(produce(run.bootstrap, "events", [*sent, huge[1]]))


@pytest.mark.thorough
def test_a_worker_lives_through_bombs_and_replay_agrees(tmp_path):
    # Bombs have time 0, so the broker would delete their dead letters after half a minute.
    options = BROKER | {"message.max.bytes": str(8 << 20), "log.retention.ms": "-1"}
    with (
        Broker(quiet=True, overrides=options) as broker,
        local(tmp_path, broker.bootstrap, TEXT, {"events": 1}) as run,
    ):
        child = run.start("w")
        run.wait_ready(["w"])
        rounds, starved = 0, True
        while starved:
            assert rounds < ROUNDS, "it starved each time"
            rounds += 1
            starved = bombed(run, child, rounds)
        (dead,) = read_topic(run.config().kafka, "hush.p.dlq", 1)
        found = []
        for record in dead.records:
            headers = {name.removeprefix("__streams.errors."): v for name, v in record.headers}
            if "first_offset" in headers:
                assert record.value is None and record.key is None
                what = (headers["reason"], headers["first_offset"], headers["offset"])
                found.append(tuple(part.decode() for part in what))
        assert found == [
            (reason, str(first + SENT * n), str(last + SENT * n))
            for n in range(rounds)
            for reason, first, last in (
                ("huge_batch", 0, 1099),
                ("huge_batch", 1101, 2200),
                ("oversized", 2202, 2202),
                ("huge_batch", 2204, 3303),
                ("huge_batch", 3336, 4435),
            )
        ]
        assert len(dead.records) == rounds * (5 + 30)
        assert run.stop("w") == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.routed == 6 * rounds, vars(outcome)


def bombed(run: Local, child: Child, number: int) -> bool:
    """Send a round of bombs and release; return whether the worker missed its heartbeats."""
    mark, most = len(run.log("w").read_text()), 0
    bombs(run)
    run.publish("events", [GOOD])
    run.trigger(ORIGIN + number * DAY // 8)
    triggers = run.wait_triggers(number)
    until = time.monotonic() + 300
    while len(run.manifests()) < number:
        assert time.monotonic() < until and child.returncode is None, run.errors("w")
        most = max(most, psutil.Process(child.pid).memory_info().rss)
        time.sleep(0.05)
    run.wait_released(triggers)
    print(f"most {most >> 20} MiB")
    assert most < HELD, most >> 20
    said = run.log("w").read_text()[mark:]
    return "took this worker for dead" in said or "eartbeat" in said
