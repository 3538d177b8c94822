"""Views over a whole stream: numbers and intervals are right, and a crash changes nothing.

Covers: agents/stages/view/columns.py, agents/stages/view/computation.py
Covers: agents/stages/view/history.py, agents/stages/view/pieces.py, agents/stages/view/records.py
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import ReleaseView
from hushstream.agents.stages.step import LogFrame, Out, Step
from hushstream.agents.stages.view import stage as view_stage
from hushstream.agents.stages.view.stage import ViewStage
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError, ParameterError
from hushstream.offline.engine import Log
from hushstream.offline.simulate import simulate
from hushstream.reading.maps import domain_of
from hushstream.topics.assembly import Assembly, sorted_rows
from hushstream.topics.config.load import Config, loads
from hushstream.topics.records import Marker
from hushstream.topics.releases import decode_public

FALSE_ALARM = 5.0  # in standard deviations of the number of covering intervals: below 10^-6
ZONES, PARTS, DAYS, RIDES = 240, 3, 3, 8
DAY = 86_400_000_000

SOURCE = """
[[input]]
name = "rides"
topic = "rides"
unit = "u"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "rides"
key = ["zone", "part"]
public_keys = [KEYS]
window = { length = "1d", origin = 1970-01-01T00:00:00Z }
triggers = { every = "12h" }
budget = { epsilon = 20, delta = 1e-2 }
aggregate = [{ kind = "count" }, { kind = "sum", field = "x", low = 0, high = 10 }]
"""
VIEW = """
[[view]]
name = "v"
source = "p"
key = ["zone"]
values = [
  { of = "count" },
  { of = "sum_x" },
  { kind = "ratio", of = "sum_x", over = "count", name = "mean" },
  { kind = "lag", of = "count" },
  { kind = "change", of = "count" },
  { kind = "running", of = "sum_x" },
  { kind = "running", of = "count", windows = 2, name = "two" },
]
"""
TOP = """
[[view]]
name = "top"
source = "p"
where = [{ field = "part", one_of = ["0", "1"] }]
having = [{ field = "count", above = 7 }]
order = [{ by = "sum_x", descending = true }]
limit = 5
"""


def declared(views: str, zones: int = ZONES) -> Config:
    keys = ", ".join(f'["{n}", "{part}"]' for n in range(zones) for part in range(PARTS))
    return loads(SOURCE.replace("KEYS", keys) + views, environ={})


def rides(zones: int = ZONES) -> Iterator[dict[str, Any]]:
    """Each unit has one record, so the bound cuts nothing."""
    for day in range(DAYS):
        for place in range(zones * PARTS):
            for n in range(RIDES):
                yield {"u": f"{day} {place} {n}", "zone": str(place // PARTS),
                       "part": str(place % PARTS), "x": (7 * place + 3 * n + day) % 11,
                       "t": day * DAY + n * DAY // RIDES}  # fmt: skip


Rows = dict[tuple[str, ...], dict[str, Any]]


def released(outs: list[Out]) -> dict[tuple[str, int], Rows]:
    """By window and trigger: values by key, with keys in the order of the rows."""
    found: dict[tuple[str, int], Rows] = defaultdict(dict)
    for body in (json.loads(out.value or b"") for out in outs):
        place = found[body["window"]["start"], body["trigger"]]
        if "key" in body:
            key = (body["key"].get(name) for name in ("zone", "part"))
            place[tuple(filter(None, key))] = body["values"]
    return found


@cache
def stream() -> dict[str, list[Out]]:
    _, engine = simulate(declared(VIEW + TOP), list(rides()), "rides", bytes(range(32)))
    return dict(engine.outs)


def outs(name: str) -> list[Out]:
    return stream()[f"hush.{name}.releases.v1"]


def added(rows: Rows, zone: str, name: str) -> tuple[float, float]:
    """Value and variance of a zone's sum, over its parts."""
    parts = [values[name] for key, values in rows.items() if key[0] == zone]
    assert len(parts) == PARTS
    return sum(p["value"] for p in parts), sum(p["stddev"] ** 2 for p in parts)


def same(told: dict[str, Any], value: float, variance: float) -> bool:
    return math.isclose(told["value"], value) and math.isclose(
        told["stddev"], variance**0.5, rel_tol=1e-5
    )


def test_readers_see_that_it_is_a_view_and_the_order_of_its_rows() -> None:
    assembly = Assembly("top")
    told = (decode_public(out.headers, out.value) for out in outs("top"))
    found = [release for one in told if (release := assembly.take(one)) is not None]
    assert len(found) == 2 * DAYS and all(release.of_view for release in found)
    orders = [[row.key["zone"] for row in sorted_rows(release)] for release in found]
    assert orders == [[key[0] for key in rows] for rows in released(outs("top")).values()]
    assert orders != [sorted(one) for one in orders]
    with pytest.raises(ParameterError, match="is a view, which has no cells"):
        domain_of(found[0])


def test_every_number_follows_from_released_ones() -> None:
    source, view = released(outs("p")), released(outs("v"))
    assert source.keys() == view.keys() and len(view) == 2 * DAYS
    starts = sorted({start for start, _ in source})
    for (start, trigger), rows in view.items():
        past = [source[one, 2] for one in starts if one < start]  # the last release of each
        assert list(rows) == sorted(rows) and len(rows) == ZONES
        for (zone,), values in list(rows.items())[::17]:
            now = added(source[start, trigger], zone, "count")
            total = added(source[start, trigger], zone, "sum_x")
            counts, sums = ([added(one, zone, n) for one in past] for n in ("count", "sum_x"))
            assert same(values["count"], *now) and same(values["sum_x"], *total)
            assert math.isclose(values["mean"]["value"], total[0] / now[0], rel_tol=1e-5)
            mean = total[0] / now[0]  # sums are around 5, so 5 times the count's noise is in them
            spread = (total[1] + mean**2 * now[1] - 2 * mean * 5 * now[1]) / now[0] ** 2
            assert math.isclose(values["mean"]["stddev"], spread**0.5, rel_tol=1e-4)
            both = [total, *sums]
            assert same(values["running_sum_x"], sum(v for v, _ in both), sum(s for _, s in both))
            assert (values["change_count"] is None) == (not past) == (values["lag_count"] is None)
            if past:
                before = counts[-1]
                assert same(values["lag_count"], *before)
                assert same(values["change_count"], now[0] - before[0], now[1] + before[1])
                assert same(values["two"], now[0] + before[0], now[1] + before[1])


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_64_bits_do_not_hold_pass_through_a_view(sign: int) -> None:
    coarse = SOURCE.replace("low = 0, high = 10", 'low = -5e18, high = 5e18, grid = "1e18"')
    keys = '["0", "0"], ["0", "1"]'
    rows = [{"u": str(n), "zone": "0", "part": str(n % 2), "x": sign * 5e18, "t": n * DAY // 100}
            for n in range(100)]  # fmt: skip
    _, engine = simulate(
        loads(coarse.replace("KEYS", keys) + VIEW, environ={}), rows, "rides", bytes(range(32))
    )
    (found,) = released(engine.outs["hush.v.releases.v1"])["1970-01-01T00:00:00Z", 2].values()
    assert math.isclose(found["sum_x"]["value"], sign * 100 * 5e18, rel_tol=0.2)
    assert math.isclose(found["mean"]["value"], sign * 5e18, rel_tol=0.2)


def truth(zone: int, day: int) -> tuple[int, int]:
    """Exact count and sum of a zone on a day."""
    mine = [r for r in rides_of(day) if r["zone"] == str(zone)]
    return len(mine), sum(min(r["x"], 10) for r in mine)


@cache
def rides_of(day: int) -> list[dict[str, Any]]:
    return [r for r in rides() if r["t"] // DAY == day]


def test_intervals_cover_as_often_as_they_say() -> None:
    """One check for each zone, at the last release; noises of zones are independent."""
    view = released(outs("v"))
    rows = view[max(view)]
    held: dict[str, int] = defaultdict(int)
    for (zone,), values in rows.items():
        days = [truth(int(zone), day) for day in range(DAYS)]
        (before, _), (count, total) = days[-2:]
        exact = {
            "count": count, "sum_x": total, "mean": total / count, "lag_count": before,
            "change_count": count - before, "running_sum_x": sum(s for _, s in days),
            "two": count + before,
        }  # fmt: skip
        for name, true in exact.items():
            held[name] += values[name]["low"] <= true <= values[name]["high"]
    reach = FALSE_ALARM * math.sqrt(ZONES * 0.95 * 0.05)
    assert len(held) == 7
    for name, covered in held.items():
        assert abs(covered - 0.95 * ZONES) <= reach, name


def test_the_first_rows_of_those_that_qualify() -> None:
    source, view = released(outs("p")), released(outs("top"))
    for at, rows in view.items():
        good = [
            (-values["sum_x"]["value"], key)
            for key, values in source[at].items()
            if key[1] != "2" and values["count"]["value"] > 7
        ]
        assert list(rows) == [key for _, key in sorted(good)[:5]]
        assert all(values == source[at][key] for key, values in rows.items())


@pytest.mark.thorough
def test_a_manifest_says_that_it_costs_nothing_and_repeats_the_source_s_guarantee() -> None:
    (source, *_), (view, *_) = (
        [body for body in (json.loads(o.value or b"") for o in outs(name)) if "key" not in body]
        for name in ("p", "v")
    )
    assert view["privacy"] == source["privacy"] and view["bounds"] == source["bounds"]
    assert view["view"]["source"] == "p" and "costs nothing" in view["view"]["in_words"]
    assert view["rows"] == ZONES and view["shards"] == 1


ZONES_OF_CRASHES = 3


class Crashing:
    """A stage whose process dies before and after commits, at the given frequency."""

    def __init__(self, views: tuple[ReleaseView, ...], log: Log, every: int) -> None:
        self.views, self.log, self.every = views, log, every
        self.store, self.marker = MemoryStore(), Marker("", 0)
        self.made: list[Out] = []

    def run(self, limit: int) -> list[Out]:
        stage, idle, calls = self.fresh(), 0, 0
        while idle < 2:
            calls += 1
            records, fetched = self.log.since(stage.position, limit)
            step = stage.step(self.store, self.marker, records, fetched)
            if calls % self.every == 0:  # uncommitted work is lost
                stage = self.fresh()
                calls += self.every > 1
                continue
            idle = idle + 1 if step is None and fetched == self.log.end else 0
            if step is not None:
                self.commit(step)
        return self.made

    def fresh(self) -> ViewStage:
        stage = ViewStage(self.views)
        stage.open(self.store, self.marker)
        return stage

    def commit(self, step: Step) -> None:
        self.store.write(step.rows)
        self.marker = step.marker
        self.made += step.out


@cache
def small() -> tuple[Config, Log]:
    config = declared(VIEW + TOP, ZONES_OF_CRASHES)
    _, engine = simulate(config, list(rides(ZONES_OF_CRASHES)), "rides", bytes(range(32)))
    log = Log()
    for out in engine.outs["hush.p.releases.v1"]:
        log.append(out)
    return config, log


# Many records at once: a release may take several commits, or one commit complete several.
@pytest.mark.parametrize("every", [3, 4, 7])
@pytest.mark.parametrize("rows", [2, 50_000])
def test_crashes_change_no_byte(every: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config, log = small()
    views = compile_config(config).views
    whole = Crashing(views, log, 1 << 30).run(1000)  # one step for each release
    monkeypatch.setattr(view_stage, "RELEASED", rows)
    broken = Crashing(views, log, every).run(1000)
    for view in views:
        wanted = [one for one in whole if one.topic == view.release_topic]
        assert wanted and [one for one in broken if one.topic == view.release_topic] == wanted


def test_a_view_that_is_added_later_begins_at_the_beginning() -> None:
    config, log = small()
    both = compile_config(config).views
    run = Crashing(both[:1], log, 1 << 30)
    first = list(run.run(1000))
    run.views = both
    again = run.run(1000)[len(first) :]
    alone = Crashing(both[1:], log, 1 << 30).run(1000)
    assert again == alone and {one.topic for one in first} == {both[0].release_topic}


def test_a_changed_view_is_refused_under_its_name() -> None:
    config, log = small()
    run = Crashing(compile_config(config).views, log, 1 << 30)
    run.run(1000)
    changed = declared(VIEW + TOP.replace("limit = 5", "limit = 6"), ZONES_OF_CRASHES)
    run.views = compile_config(changed).views
    with pytest.raises(EngineError, match="view 'top' has released with other settings"):
        run.fresh()


def test_a_release_that_lacks_a_row_is_not_used() -> None:
    config, log = small()
    lacking = Log()
    lacking.records = [LogFrame(n, r.value, r.headers, r.timestamp)
                       for n, r in enumerate(log.records[1:])]  # fmt: skip
    lacking._offsets = list(range(len(lacking.records)))
    lacking.end = len(lacking.records)
    views = compile_config(config).views[:1]
    places = released(Crashing(views, lacking, 1 << 30).run(1000))
    assert len(places) == 2 * DAYS - 1 and ("1970-01-01T00:00:00Z", 1) not in places
