"""The mechanisms beside `histogram`, as pipelines on the real broker, with a worker that dies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hushstream.agents.admin import read_ledger
from hushstream.agents.cli import hush
from hushstream.deploy.broker import Broker
from hushstream.mechanisms.spatial import Axis, Domain
from hushstream.mechanisms.synthetic import range_counts

from .local import BROKER, Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOP, TRIGGERS, SLOTS = 100, 4, 8

HEAD = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "trips"
topic = "{name}-raw"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
"""
COMMON = """
[[pipeline]]
name = "{name}-{kind}"
input = "trips"
unit_name = "user"
window = {{ length = "8h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "2h" }}
schedule = "external"
budget = {{ epsilon = 4.0, delta = 1e-6 }}
"""
SPATIAL = """
inputs = {{ x = "at.x", y = "at.y" }}
[pipeline.mechanism]
kind = "{kind}"
{settings}
[pipeline.mechanism.domain]
depth = {depth}
split = "{split}"
axes = [{{ name = "x", low = 0, high = 2 }}, {{ name = "y", low = -1, high = 1 }}]
"""
VALUES = """
inputs = {{ value = "fare" }}
aggregate = [{{ kind = "sum", field = "fare", low = 0, high = 100 }}]
[pipeline.mechanism]
kind = "{kind}"
slot = 3_600_000_000
slots_per_trigger = 2
origin = 1_551_398_400_000_000
expected = 400
"""
AXES = (Axis("x", 0, 2), Axis("y", -1, 1))
DELETIONS = 'sign = "gone"\n'


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[Broker]:
    """A broker that allows short sessions."""
    with Broker(quiet=True, overrides=BROKER) as running:
        yield running


pytestmark = pytest.mark.broker


def configuration(name: str) -> str:
    """Four pipelines that read the same trips."""
    parts = [HEAD]
    for kind, depth, split, settings in (
        ("phdstream", 3, "all", "bound = 2\ndeletions = true\nfloor = 2"),
        ("privhp", 8, "binary", "k = 16"),
    ):
        common = COMMON + (DELETIONS if kind == "phdstream" else "")
        block = (common + SPATIAL).replace("{kind}", kind).replace("{settings}", settings)
        parts.append(block.replace("{depth}", str(depth)).replace("{split}", split))
    parts += [(COMMON + VALUES).replace("{kind}", kind) for kind in ("pak", "tops")]
    return "".join(parts).format(name=name)


def trips(seed: int, first: int, last: int, n: int) -> list[dict[str, Any]]:
    """Trips of the hours first … last; most lie in one corner and are cheap."""
    draw = np.random.default_rng(seed)
    place = draw.beta(1, 6, (n, 2)) * 2 - [0, 1]
    time = ORIGIN + first * HOUR + draw.integers(0, (last - first) * HOUR, n)
    fare = draw.exponential(12, n).round(2)
    return [
        {"user": f"{seed}-{i}", "t": int(t), "at": {"x": x, "y": y}, "fare": f}
        for i, (t, (x, y), f) in enumerate(zip(time, place.tolist(), fare.tolist(), strict=True))
    ]


def ends(rows: list[dict[str, Any]], time: int) -> list[dict[str, Any]]:
    """Every fourth of these trips deleted: the same place and user, later."""
    return [row | {"t": time, "gone": True, "fare": -1e9} for row in rows[::4]]


def settled(run: Local, members: list[str], shards: int) -> None:
    """Wait until the workers have divided all shards among them."""
    until = time.monotonic() + 60
    while True:
        logs = [run.log(member).read_text(errors="replace") for member in members]
        found = [re.findall(r"ready: (\d+) shards", text) for text in logs]
        if sum(int(each[-1]) for each in found if each) == shards and all(found):
            return
        assert time.monotonic() < until, "\n".join(map(run.tail, members))
        time.sleep(0.1)


def rows_of(run: Local, pipeline: str) -> list[dict[str, Any]]:
    return [b for b in run.releases(pipeline) if b["schema"] == "hush.release/1"]


def public_of(run: Local, pipeline: str) -> dict[str, list[int]]:
    """Everything that the manifests of a pipeline made public, later ones first."""
    found: dict[str, list[int]] = {}
    for body in run.releases(pipeline):
        if body["schema"] == "hush.manifest/1":
            found = body["public"] | found
    return found


def at_trigger(rows: list[dict[str, Any]], t: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Codes of one trigger's keys, and its columns of values and deviations."""
    mine = [row for row in rows if row["trigger"] == t]
    codes = np.array([int(row["key"], 16) for row in mine], np.uint64)
    columns = {
        f"{name}.{part}": np.array([row["values"][name][part] for row in mine])
        for name in mine[0]["values"]
        for part in ("value", "stddev")
    }
    return codes, columns


def check_space(domain: Domain, rows: list[dict[str, Any]], t: int, live: np.ndarray) -> None:
    """Leaves tile the domain; totals and the busy corner are as noise allows."""
    codes, columns = at_trigger(rows, t)
    low, high = domain.fractions(codes)
    assert (high - low).prod(axis=1).sum() == pytest.approx(1)
    boxes = np.array([[0.0, -1.0], [0.0, -1.0]]), np.array([[2.0, 1.0], [0.5, -0.5]])
    said = range_counts(domain, codes, columns["count.value"], *boxes)
    corner = ((live[:, 0] < 0.5) & (live[:, 1] < -0.5)).sum()
    noise = 8 * np.sqrt((columns["count.stddev"] ** 2).sum())
    assert noise < len(live) / 4  # else the next lines would say nothing
    assert abs(said[0] - len(live)) < noise
    assert abs(said[1] - corner) < noise


def check_values(run: Local, pipeline: str, sent: list[dict[str, Any]]) -> None:
    """The running total, and slot by slot, against clipped fares."""
    rows = rows_of(run, pipeline)
    (theta,) = public_of(run, pipeline)["threshold"]
    assert 12 < theta <= TOP
    slot = np.array([(row["t"] - ORIGIN) // HOUR for row in sent])
    fare = np.clip(np.rint([row["fare"] for row in sent]), 0, theta)
    truth = np.bincount(slot, fare, SLOTS)
    first = 2  # slots of the warm-up
    seen = {int(row["key"], 16): row["values"] for row in rows}
    assert sorted(seen)[-6:] == list(range(first, SLOTS))
    whole = truth.sum() if first - 1 in seen else truth[first:].sum()
    assert_near(seen[SLOTS - 1]["prefix"], whole)
    for place in range(first, SLOTS):
        assert_near(seen[place]["sum"], truth[place])


def assert_near(said: dict[str, float], truth: float) -> None:
    """Laplace noise leaves twelve standard deviations once in ten million draws."""
    assert 0 < said["stddev"] < truth / 12
    assert abs(said["value"] - truth) < 12 * said["stddev"]


def test_spatial_and_value_pipelines_survive_a_killed_worker(quick_broker, unique, tmp_path):
    name = unique("m")
    raw = f"{name}-raw"
    with local(tmp_path / name, quick_broker.bootstrap, configuration(name), {raw: 2}) as run:
        early, late = trips(1, 0, 4, 2000), trips(2, 4, 8, 2000)
        gone = ends(early, ORIGIN + 5 * HOUR)
        run.start("one")
        run.start("two")
        settled(run, ["one", "two"], 2 + 4 * (2 + 1))
        run.publish(raw, early[::2], 0)
        run.publish(raw, early[1::2], 1)
        run.trigger(ORIGIN + 4 * HOUR)
        run.wait_released(run.wait_triggers(2 * 4))
        run.publish(raw, late[:1000] + gone, 0)
        run.publish(raw, [b"{bad", {"user": "u", "t": ORIGIN + 4 * HOUR}, *late[1000:]], 1)
        run.trigger(ORIGIN + 6 * HOUR)
        run.wait_triggers(3 * 4)
        run.kill("one")  # in the middle of the third trigger
        run.trigger(ORIGIN + 8 * HOUR)
        run.start("three")
        run.wait_released(run.wait_triggers(TRIGGERS * 4))
        assert run.stop("two") == 0 and run.stop("three") == 0
        check(run, name, early, late)


def check(run: Local, name: str, early: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    places = [np.array([[*row["at"].values()] for row in rows]) for rows in (early, late)]
    tree = Domain(AXES, 3, "all")
    rows = rows_of(run, f"{name}-phdstream")
    check_space(tree, rows, 2, places[0])
    stayed = np.delete(places[0], np.s_[::4], axis=0)
    check_space(tree, rows, 4, np.concatenate([stayed, places[1]]))
    rows = rows_of(run, f"{name}-privhp")
    check_space(Domain(AXES, 8), rows, 4, np.concatenate(places))
    for kind in ("pak", "tops"):
        check_values(run, f"{name}-{kind}", early + late)
    agrees(run, 4)


def agrees(run: Local, charges: int) -> None:
    """Every byte is what a replay computes, every id is there once, every epoch was charged."""
    command = ["replay", "-c", str(run.toml), "--bootstrap", run.bootstrap]
    assert hush.main(command, standalone_mode=False) is None
    bodies = [b for p in run.deployment.pipelines for b in run.releases(p.name)]
    released = [b["release_id"] for b in bodies if b["schema"] == "hush.release/1"]
    assert len(set(released)) == len(released) > 0
    manifests = [json.dumps([b[k] for k in ("pipeline", "window", "trigger", "shard")])
                 for b in bodies if b["schema"] == "hush.manifest/1"]  # fmt: skip
    assert len(set(manifests)) == len(manifests) == len(run.triggers())
    ledger = read_ledger(run.cluster, run.config().deployment.name)
    assert len(ledger.charges) == charges and not ledger.refused
