"""``hush status`` and ``hush dead-letters`` with a producer that uses the wrong partitions.

Covers: cli/status.py, cli/dead_letters.py, offline/again.py, reading/live/status.py
Covers: agents/kafka/groups.py, agents/kafka/set_aside.py
"""

from __future__ import annotations

import json
import time

import pytest
from hushstream.agents.kafka.set_aside import letters
from hushstream.deploy.broker import Broker

from ..cli.bench import typed
from .local import Local, local
from .test_outage import ORIGIN, TOML

pytestmark = pytest.mark.broker

PATIENCE = 180.0
RECORDS = 200
TWO = (
    TOML.replace('partitioner = "none"', 'partitioner = "murmur2"')
    + """
[[pipeline]]
name = "q"
input = "events"
key = ["shop"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "12h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""
)


def asked(run: Local, *words: str) -> tuple[int, str, str]:
    return typed(words[0], "-c", str(run.toml), "--bootstrap", run.bootstrap, *words[1:])


def status(run: Local) -> tuple[int, dict]:
    code, out, err = asked(run, "status", "--json")
    assert out, err
    return code, json.loads(out)


def send(run: Local, rows: list[dict]) -> None:
    producer = run.producer(partitioner="consistent_random")  # not murmur2
    for row in rows:
        producer.produce("events", json.dumps(row).encode(), key=row["user"].encode())
    assert producer.flush(PATIENCE) == 0


def settled(run: Local, dead: int) -> dict:
    """The status, once workers have read everything and p has set aside so many records."""
    until = time.monotonic() + PATIENCE
    while True:
        _, body = status(run)
        found = {p["name"]: sum(r["records"] for r in p["dead"]) for p in body["pipelines"]}
        if body["inputs"]["events"]["waiting"] == 0 and found["p"] >= dead:
            return body
        assert time.monotonic() < until, (body, run.tail("w"))
        time.sleep(0.5)


@pytest.mark.thorough
def test_what_is_wrong_is_told_and_misplaced_records_are_sent_once(
    empty_broker: Broker, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with local(tmp_path, empty_broker.bootstrap, TWO, {"events": 4}) as run:
        code, body = status(run)
        assert code == 4 and any("`hush worker`" in one for one in body["wrong"])
        run.start("w")
        run.wait_ready(["w"])
        assert status(run)[1]["workers"][0]["name"].startswith("w")
        rows = [
            {"user": f"user-{n}", "page": "a", "shop": "b", "t": ORIGIN} for n in range(RECORDS)
        ]
        for row in rows[:20]:
            del row["shop"]  # q cannot use them; p used those in the right partition
        send(run, rows)
        settled(run, 1)
        found = list(letters(run.cluster, "hush.p.dlq"))
        misplaced = sum(letter.reason == "wrong_partition" for letter in found)
        assert RECORDS // 2 < misplaced < RECORDS
        body = settled(run, misplaced)
        assert {one["reason"] for one in body["pipelines"][0]["dead"]} == {"wrong_partition"}
        assert body["pipelines"][0]["dead_share"] == pytest.approx(misplaced / RECORDS)
        assert any("hush dead-letters p" in one for one in body["wrong"])
        code, out, _ = asked(run, "status")
        assert code == 4 and "wrong_partition" in out and max(map(len, out.splitlines())) <= 80

        code, out, _ = asked(run, "dead-letters", "p", "--samples", "1")
        assert code == 0 and "wrong_partition" in out and '"user": "user-' in out
        code, out, err = asked(run, "dead-letters", "p", "--replay", "--reason", "bad_time")
        assert code == 2 and "--yes" in err, out
        ends = sum(run.cluster.offsets.ends("events", 4))
        code, out, _ = asked(run, "dead-letters", "q", "--replay", "--json")
        done = json.loads(out)
        assert code == 0 and done["sent"] == misplaced and not done["unusable"]
        again = [
            json.loads(message.value())
            for n in range(4)
            for message in run.cluster.each("events", n)
        ]
        assert (
            len(again) == RECORDS + misplaced and sum(run.cluster.offsets.ends("events", 4)) > ends
        )
        settled(run, misplaced)
        # murmur2 places them now, so they are used, and none is set aside again.
        assert len(list(letters(run.cluster, "hush.p.dlq"))) == misplaced
        for name in "pq":
            code, out, _ = asked(run, "dead-letters", name, "--replay", "--json")
            assert code == 0 and set(json.loads(out).values()) == {0}
        send(run, rows[20:])
        time.sleep(2)  # they are read; the group's own commits come each five seconds
        assert run.stop("w") == 0
        assert status(run)[1]["inputs"]["events"]["waiting"] == 0
