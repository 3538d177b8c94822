"""A public table of its own, joined to the stream: kills, and another table, on the real broker.

One pipeline has it as a column of its key, from settings; one has conditions on it, from a query.

Covers: topics/config/inputs/lookups.py
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hushstream.agents.clock.genesis import read_ledger
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.places import home
from ..judge.topics import deployment as judgement
from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = '''
[deployment]
name = "trips"
[engine]
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "trips"
topic = "trips"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "boroughs"
input = "trips"
key = ["borough"]
public_keys = "natural"
aggregate = [{ kind = "count" }]
window = { length = "2h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
mechanism = { kind = "histogram", budget = 16, adaptive_weight = 0 }
[pipeline.derive.borough]
field = "at.zone"
lookup = "zones.csv"
match = "id"
take = "borough"
otherwise = "none"
[[pipeline]]
name = "kinds"
query = """SELECT CASE WHEN z.borough = 'Queens' AND at.zone <> 2
    THEN 'near' ELSE 'far' END AS kind,
    COUNT(*) AS n, COUNT(*) FILTER (WHERE z.borough LIKE 'B%') AS bronx
    FROM trips LEFT JOIN 'zones.csv' AS z ON at.zone = z.id
    WHERE UPPER(z.borough) IN ('QUEENS', 'BRONX')
    GROUP BY kind, TUMBLE(t, INTERVAL '2' HOUR)"""
window = { origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 16.0, delta = 1e-3 }
mechanism = { kind = "histogram", budget = 16, adaptive_weight = 0 }
'''
ZONES = "id,borough\n0,Bronx\n1,Queens\n2,Queens\n"
MOVED = ZONES.replace("2,Queens", "2,Bronx")
USERS, PARTITIONS = 800, 2
WANTED = {"Bronx": 200, "Queens": 400, "none": 200}  # in an hour; zone 3 has no row
KINDS = {"near": (200, 0), "far": (400, 200)}  # records of zones 0 to 2, and those in the Bronx

pytestmark = pytest.mark.broker


def trips(run: Local, hour: int, part: int) -> None:
    """Send one trip of every other user in an hour; a quarter of the zones is in no table."""
    for place in range(PARTITIONS):
        mine = [n for n in range(part, USERS, 2) if at(n) == place]
        values = [
            {"user": f"u{n}", "at": {"zone": n // 2 % 4}, "t": ORIGIN + hour * HOUR + n}
            for n in mine
        ]
        run.publish("trips", values, place)


def at(number: int) -> int:
    return home((f"u{number}",), "murmur2", PARTITIONS)


@pytest.mark.thorough
def test_a_public_table_is_joined_through_kills_and_no_other_table_serves_its_charge(
    empty_broker: Broker, tmp_path
):
    (tmp_path / "zones.csv").write_text(ZONES)
    with local(tmp_path, empty_broker.bootstrap, TOML, {"trips": PARTITIONS}) as run:
        run.start("w")
        run.wait_ready(["w"])
        trips(run, 0, 0)
        run.kill("w")  # while records are looked up
        run.start("w")
        trips(run, 0, 1)
        run.trigger(ORIGIN + HOUR)
        run.wait_triggers(2)
        run.kill("w")  # while it is released
        run.start("w")
        run.wait_released(run.wait_triggers(2), 300)
        check(run, 1, WANTED)
        run.kill("w")
        (tmp_path / "zones.csv").write_text(MOVED)
        refused(run)
        (tmp_path / "zones.csv").write_text("".join([*ZONES.splitlines(True)[:1], *turned()]))
        run.start("x")  # another order of rows is the same table; without any state
        for part in range(2):
            trips(run, 1, part)
        run.trigger(ORIGIN + 2 * HOUR)
        run.wait_released(run.wait_triggers(4), 300)
        check(run, 2, {name: 2 * number for name, number in WANTED.items()})
        assert run.stop("x") == 0
        ledger = read_ledger(run.cluster, "trips")
        pinned = run.deployment.pipelines[0].config["derive"]["borough"]
        assert pinned["kind"] == "lookup" and len(pinned["sha256"]) == 64 and pinned["count"] == 3
        assert {charge.body["config_hash"] for charge in ledger.charges.values()} == {
            one.config_hash for one in run.deployment.pipelines
        }
        outcome = replay(run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        judged = judgement(run.bootstrap, run.toml, run.secret)
        assert sorted(judged) == ["boroughs", "kinds"]
        for one in judged.values():
            assert one.triggers == 2 and one.rows > 3 and not one.objections, one.objections[:2]


def turned() -> list[str]:
    return ZONES.splitlines(True)[:0:-1]


def refused(run: Local) -> None:
    """With another table, a worker ends and releases nothing."""
    before = len(run.releases("boroughs"))
    child = run.start("y")
    assert child.wait(180), run.tail("y")
    assert child.returncode not in (0, None)
    assert "boroughs" in run.tail("y") and "configuration" in run.tail("y"), run.tail("y")
    with contextlib.suppress(KeyError):
        run.workers.pop("y")
    assert len(run.releases("boroughs")) == before


def check(run: Local, trigger: int, wanted: dict[str, int]) -> None:
    """Check how many trips of each borough and of each kind count by a trigger."""
    near(rows(run, "boroughs", trigger), {name: {"count": n} for name, n in wanted.items()})
    kinds = {name: {"n": n * trigger, "bronx": m * trigger} for name, (n, m) in KINDS.items()}
    near(rows(run, "kinds", trigger), kinds)


def rows(run: Local, pipeline: str, trigger: int) -> dict[str, Any]:
    """Values of a release, by the only column of the key."""
    return {
        next(iter(body["key"].values())): body["values"] for body in run.releases(pipeline)
        if body.get("trigger") == trigger and "key" in body
    }  # fmt: skip


def near(found: dict[str, Any], wanted: dict[str, dict[str, int]]) -> None:
    """Check that values are right up to their noise."""
    assert set(found) == set(wanted), json.dumps(found)
    for name, values in wanted.items():
        for label, number in values.items():
            one = found[name][label]
            assert abs(one["value"] - number) < 8 * one["stddev"] < 100, (name, label, one)
