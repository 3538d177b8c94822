"""The mechanisms other than `histogram`, as pipelines on the real broker; a worker dies."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any

import numpy as np
import pytest
from hushstream.agents.clock.genesis import read_ledger
from hushstream.cli.group import hush
from hushstream.mechanisms.spatial.domain import Axis, Domain
from hushstream.mechanisms.spatial.synthetic import range_counts

from .local import Local, local

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
    """Trips in the hours first … last; most are in one corner and cheap."""
    draw = np.random.default_rng(seed)
    place = draw.beta(1, 6, (n, 2)) * 2 - [0, 1]
    time = ORIGIN + first * HOUR + draw.integers(0, (last - first) * HOUR, n)
    fare = draw.exponential(12, n).round(2)
    return [
        {"user": f"{seed}-{i}", "t": int(t), "at": {"x": x, "y": y}, "fare": f}
        for i, (t, (x, y), f) in enumerate(zip(time, place.tolist(), fare.tolist(), strict=True))
    ]


def ends(rows: list[dict[str, Any]], time: int) -> list[dict[str, Any]]:
    """Deletions of every fourth of these trips: same place and user, later time."""
    return [row | {"t": time, "gone": True, "fare": -1e9} for row in rows[::4]]


def settled(run: Local, members: list[str], shards: int) -> None:
    """Wait until the workers have divided all shards among themselves."""
    until = time.monotonic() + 150
    while True:
        logs = [run.log(member).read_text(errors="replace") for member in members]
        found = [re.findall(r"ready: (\d+) shards", text) for text in logs]
        if sum(int(each[-1]) for each in found if each) == shards and all(found):
            return
        assert time.monotonic() < until, "\n".join(map(run.tail, members))
        time.sleep(0.1)


def rows_of(run: Local, pipeline: str) -> list[dict[str, Any]]:
    return [b for b in run.releases(pipeline) if b["schema"] == "hush.release/2"]


def public_of(run: Local, pipeline: str) -> dict[str, list[int]]:
    """All public columns of a pipeline's manifests; later ones come first."""
    found: dict[str, list[int]] = {}
    for body in run.releases(pipeline):
        if body["schema"] == "hush.manifest/2":
            found = body["public"] | found
    return found


def at_trigger(rows: list[dict[str, Any]], t: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The codes of one trigger's keys, and its columns of values and deviations."""
    mine = [row for row in rows if row["trigger"] == t]
    codes = np.array([int(row["key"]["cell"], 16) for row in mine], np.uint64)
    columns = {
        f"{name}.{part}": np.array([row["values"][name][part] for row in mine])
        for name in mine[0]["values"]
        for part in ("value", "stddev")
    }
    return codes, columns


BOXES = np.array([[0.0, -1.0], [0.0, -1.0]]), np.array([[2.0, 1.0], [0.5, -0.5]])
"""The whole map, and its busy corner: a cell of the tree, each axis halved twice."""

ALARM = 1e-6
"""Probability that noise alone fails one comparison of a space with the truth."""


def reach(scale: float, draws: float, alarm: float) -> float:
    """A bound on the sum of independent discrete Laplace draws; fails with probability ``alarm``.

    Chernoff: P(|S| ≥ x) ≤ 2·exp(-λx)·M(λ)^n for every λ below 1/scale, where M(λ) is the moment
    generating function (1-a)²/((1-a·e^λ)(1-a·e^-λ)) with a = e^(-1/scale).

    Args:
        scale: scale of one draw.
        draws: number of draws; for weighted sums, the sum of squared weights, each at most 1.
        alarm: probability of a larger sum.
    """
    a = math.exp(-1 / scale)
    slopes = np.linspace(0.001, 0.999, 999) / scale
    moments = (1 - a) ** 2 / ((1 - a * np.exp(slopes)) * (1 - a * np.exp(-slopes)))
    return float(((math.log(2 / alarm) + draws * np.log(moments)) / slopes).min())


def check_space(
    domain: Domain, rows: list[dict[str, Any]], t: int, live: np.ndarray, column: str = "count"
) -> np.ndarray:
    """Leaves tile the domain; return the errors of the whole map and of its busy corner."""
    codes, columns = at_trigger(rows, t)
    low, high = domain.fractions(codes)
    assert (high - low).prod(axis=1).sum() == pytest.approx(1)
    corner = ((live[:, 0] < 0.5) & (live[:, 1] < -0.5)).sum()
    said = range_counts(domain, codes, columns[f"{column}.value"], *BOXES)
    return np.abs(said - [len(live), corner])


def check_tree(
    domain: Domain, rows: list[dict[str, Any]], t: int, live: np.ndarray, scale: float
) -> None:
    """The whole map errs by the draws of all leaves so far, its corner by the draws inside it.

    The corner's node exists from the first trigger on (``floor``), so it inherits no share of
    counts above it, and its unbiased sum errs only by its own draws.
    """
    held = []
    for trigger in range(1, t + 1):
        codes, _ = at_trigger(rows, trigger)
        held.append(range_counts(domain, codes, np.ones(len(codes)), *BOXES))
    whole, corner = np.sum(held, axis=0)
    assert check_space(domain, rows, t, live)[0] < reach(scale, whole, ALARM)
    errors = check_space(domain, rows, t, live, "unbiased")
    assert errors[0] < reach(scale, whole, ALARM)
    assert errors[1] < reach(scale, corner, ALARM)
    assert reach(scale, whole, ALARM) < len(live) / 20  # otherwise the check would show nothing


def check_grown(
    domain: Domain, rows: list[dict[str, Any]], t: int, live: np.ndarray, scales: list[float]
) -> None:
    """A cell of PrivHP errs by its own sum and by the sums above it, level by level.

    Sums that are pooled with those below have less variance than one sum of their level. Each child
    is lowered by half of the two children's excess over their parent, and is clipped to lie between
    0 and the parent. So its error is at most the parent's, or half of the parent's and of both own
    errors together, plus 1 for rounding.
    """
    largest, levels = max(scales), 4
    own = [
        reach(largest, t.bit_count() * (scale / largest) ** 2, ALARM / (2 * levels + 1))
        for scale in scales
    ]
    errors, most = check_space(domain, rows, t, live), own[0]
    assert errors[0] < most
    for level in range(1, levels + 1):
        most = max(most, most / 2 + own[level]) + 1
    assert errors[1] < most < len(live) / 8


def check_values(run: Local, pipeline: str, sent: list[dict[str, Any]]) -> None:
    """The running total and each slot, compared with clipped fares."""
    rows = rows_of(run, pipeline)
    (theta,) = public_of(run, pipeline)["threshold"]
    assert 12 < theta <= TOP
    slot = np.array([(row["t"] - ORIGIN) // HOUR for row in sent])
    fare = np.clip(np.rint([row["fare"] for row in sent]), 0, theta)
    truth = np.bincount(slot, fare, SLOTS)
    first = 2  # slots of the warm-up
    seen = {row["key"]["slot"]: row["values"] for row in rows}
    assert sorted(seen)[-6:] == list(range(first, SLOTS))
    whole = truth.sum() if first - 1 in seen else truth[first:].sum()
    assert_near(seen[SLOTS - 1]["prefix"], whole)
    for place in range(first, SLOTS):
        assert_near(seen[place]["sum"], truth[place])


def assert_near(said: dict[str, float], truth: float) -> None:
    """Laplace noise exceeds twelve standard deviations once in ten million draws."""
    assert 0 < said["stddev"] < truth / 12
    assert abs(said["value"] - truth) < 12 * said["stddev"]


def test_spatial_and_value_pipelines_survive_a_killed_worker(broker, unique, tmp_path):
    name = unique("m")
    raw = f"{name}-raw"
    with local(tmp_path / name, broker.bootstrap, configuration(name), {raw: 2}) as run:
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
        run.wait_ready(["three"])
        assert run.stop("two") == 0 and run.stop("three") == 0
        check(run, name, early, late)


def check(run: Local, name: str, early: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    places = [np.array([[*row["at"].values()] for row in rows]) for rows in (early, late)]
    built = {p.kind: p.mechanism for p in run.deployment.pipelines}
    tree = Domain(AXES, 3, "all")
    rows = rows_of(run, f"{name}-phdstream")
    scale = float(built["phdstream"].counter.scale)  # type: ignore[attr-defined]
    check_tree(tree, rows, 2, places[0], scale)
    stayed = np.delete(places[0], np.s_[::4], axis=0)
    check_tree(tree, rows, 4, np.concatenate([stayed, places[1]]), scale)
    rows = rows_of(run, f"{name}-privhp")
    scales = [float(one) for one in built["privhp"].counter.scales]  # type: ignore[attr-defined]
    check_grown(Domain(AXES, 8), rows, 4, np.concatenate(places), scales)
    for kind in ("pak", "tops"):
        check_values(run, f"{name}-{kind}", early + late)
    agrees(run, 4)


def agrees(run: Local, charges: int) -> None:
    """Replay agrees with every byte, every id occurs once, and every epoch was charged."""
    command = ["replay", "-c", str(run.toml), "--bootstrap", run.bootstrap]
    assert hush.main(command, standalone_mode=False) is None
    bodies = [b for p in run.deployment.pipelines for b in run.releases(p.name)]
    released = [b["release_id"] for b in bodies if b["schema"] == "hush.release/2"]
    assert len(set(released)) == len(released) > 0
    manifests = [json.dumps([b[k] for k in ("pipeline", "window", "trigger", "shard")])
                 for b in bodies if b["schema"] == "hush.manifest/2"]  # fmt: skip
    assert len(set(manifests)) == len(manifests) == len(run.triggers())
    ledger = read_ledger(run.cluster, run.config().deployment.name)
    assert len(ledger.charges) == charges and not ledger.refused
