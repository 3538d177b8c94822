"""Reference data in a compacted topic that changes: kills, a new pipeline, a replay and the judge.

A pipeline uses the content that the topic had when the pipeline was declared. A pipeline that is
declared later has the content of that time, and a worker with any other content does not continue.

Covers: agents/clock/kept_tables.py, agents/clock/tables.py
"""

from __future__ import annotations

import contextlib
import json

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.clock.genesis import read_ledger
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..cli.bench import typed
from ..judge.topics import deployment as judgement
from .local import Local, local
from .test_lookups import HOUR, ORIGIN, PARTITIONS, TOML, WANTED, near, rows, trips

BOROUGHS, _, _ = TOML.partition('[[pipeline]]\nname = "kinds"')
LOOKUP = """
[[lookup]]
name = "zones"
topic = "shop-zones"
"""
FIRST = BOROUGHS.replace('lookup = "zones.csv"', 'lookup = "zones"') + LOOKUP
# Its clock begins after the trigger for the first hour, so it has only the second hour: 200 trips
# from each of four zones. By then, 0 and 1 are in the Bronx, and 2 has no row.
LATER = '''
[[pipeline]]
name = "later"
query = """SELECT COALESCE(z.borough, 'none') AS borough, COUNT(*) FROM trips
    LEFT JOIN zones AS z ON at.zone = z.id WHERE z.borough <> 'Bronx' OR z.borough IS NULL
    GROUP BY 1, TUMBLE(t, INTERVAL '2' HOUR)"""
public_keys = "natural"
window = { origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
mechanism = { kind = "histogram", budget = 16, adaptive_weight = 0 }
'''

pytestmark = pytest.mark.broker


def state(bootstrap: str, rows: dict[int, str | None]) -> None:
    """State boroughs of zones, each with the zone as its key; None deletes a row."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for zone, borough in rows.items():
        body = None if borough is None else json.dumps({"id": zone, "borough": borough}).encode()
        producer.produce("shop-zones", body, key=str(zone).encode())
    assert producer.flush(60) == 0


def begun(bootstrap: str) -> None:
    """Create the topic of reference data, as its owner does."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    compacted = {"cleanup.policy": "compact"}
    for future in client.create_topics([NewTopic("shop-zones", 2, 1, config=compacted)]).values():
        future.result()
    state(bootstrap, {0: "old", 1: "Queens", 2: "Queens", 7: "Nowhere"})
    state(bootstrap, {0: "Bronx", 7: None})


@pytest.mark.thorough
def test_a_topic_of_reference_data_is_read_once_for_each_pipeline(empty_broker: Broker, tmp_path):
    begun(empty_broker.bootstrap)
    with local(tmp_path, empty_broker.bootstrap, FIRST, {"trips": PARTITIONS}) as run:
        state(run.bootstrap, {1: "Bronx", 2: None, 3: "Harlem"})  # after the declaration
        run.start("w")
        run.wait_ready(["w"])
        trips(run, 0, 0)
        run.kill("w")  # while records are looked up
        run.start("w")
        trips(run, 0, 1)
        run.trigger(ORIGIN + HOUR)
        run.wait_triggers(1)
        run.kill("w")  # while it is released
        run.toml.write_text(FIRST + LATER)
        code, said, _ = typed("topics", "-c", str(run.toml), "--bootstrap", run.bootstrap)
        assert code == 0, said
        state(run.bootstrap, {0: None, 1: None, 3: "lost"})  # after the second declaration
        run.start("x")  # without any state
        run.wait_released(run.wait_triggers(1), 300)
        near(rows(run, "boroughs", 1), {name: {"count": n} for name, n in WANTED.items()})
        for part in range(2):
            trips(run, 1, part)
        run.trigger(ORIGIN + 2 * HOUR)
        run.wait_released(run.wait_triggers(4), 300)
        near(rows(run, "boroughs", 2), {name: {"count": 2 * n} for name, n in WANTED.items()})
        near(rows(run, "later", 2), {"Harlem": {"count": 200}, "none": {"count": 200},
                                     "Bronx": {"count": 0}})  # fmt: skip
        assert run.stop("x") == 0
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        judged = judgement(run.bootstrap, run.toml, run.secret)
        assert sorted(judged) == ["boroughs", "later"]
        for one in judged.values():
            assert one.triggers == 2 and not one.objections, one.objections[:2]
        refused(run)


def refused(run: Local) -> None:
    """With another content for a declared pipeline, a worker ends."""
    ledger = read_ledger(run.cluster, "trips")
    message = next(m for m in run.cluster.read(ledger.names("trips").tables))
    moved = message.value().replace(b"Queens", b"Harlem")
    assert moved != message.value()
    run.cluster.write(ledger.names("trips").tables, [(message.key(), moved)])
    before = len(run.releases("later"))
    child = run.start("y")
    assert child.wait(180), run.tail("y")
    assert child.returncode not in (0, None)
    assert "'boroughs': derive.borough.sha256, public_keys.sha256 differs" in run.tail("y")
    with contextlib.suppress(KeyError):
        run.workers.pop("y")
    assert len(run.releases("later")) == before
