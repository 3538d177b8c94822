"""Learnt budgets, as a function of a simulation's releases and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.errors import EngineError
from hushstream.offline.simulate import simulate
from hushstream.planning.learnt import LearntBound, boundary, learnt, told
from hushstream.topics.assembly import Assembly, Released
from hushstream.topics.config.load import Config, loads
from hushstream.topics.releases import decode_public

HOUR = 3_600_000_000
DAY = 24 * HOUR
ORIGIN = 17956 * DAY  # 2019-03-01
TEXT = """
[deployment]
name = "d"
[[input]]
name = "events"
topic = "raw"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 4.0, delta = 1e-6 }
learn = {}
"""
CONFIG = loads(TEXT, environ={})


def records(each: int, users: int = 1500, day: int = 0) -> list[dict[str, Any]]:
    """Visits of one day: every user visits ``each`` random pages."""
    draw = np.random.default_rng(each)
    page = np.minimum(draw.zipf(1.6, users * each), 40)
    user = np.repeat(np.arange(users), each)
    time = np.sort(draw.integers(0, DAY, users * each)) + ORIGIN + day * DAY
    rows = zip(user.tolist(), page.tolist(), time.tolist(), strict=True)
    return [{"user": f"u{u}", "page": f"p{p}", "t": t} for u, p, t in rows]


def released(config: Config, data: list[dict[str, Any]]) -> dict[str, list[Released]]:
    """Last releases of each pipeline."""
    _, engine = simulate(config, data, "events", bytes(32))
    found: dict[str, list[Released]] = {}
    for p in config.pipeline:
        assembly, mine = Assembly(p.name), found.setdefault(p.name, [])
        for out in engine.outs.get(p.release_topic, ()):
            whole = assembly.take(decode_public(out.headers, out.value))
            if whole is not None and whole.final:
                mine.append(whole)
    return found


@cache
def of(*each: int) -> dict[str, list[Released]]:
    """Releases of days with the given numbers of records per user."""
    data = [row for day, n in enumerate(each) for row in records(n, day=day)]
    return released(CONFIG, data)


def pipeline() -> Pipeline:
    return compile_config(CONFIG).pipelines[0]


def answer(shown: dict[str, list[Released]], now: int = ORIGIN + 2 * DAY) -> LearntBound | None:
    activity, own = shown["pages-activity"], shown["pages"]
    return learnt(CONFIG.pipeline[0], pipeline(), activity, own, now)


def test_units_with_one_record_get_a_small_bound_and_busy_ones_a_large_one() -> None:
    few, many = answer(of(1)), answer(of(24))
    assert few is not None and many is not None
    assert few.found.budget <= 2 and many.found.budget > 12
    assert few.stated == many.stated == 12
    assert few.found.expected[few.found.budget] == min(few.found.expected.values())


def test_the_first_window_decides_whatever_comes_later() -> None:
    first, both = answer(of(1)), answer(of(1, 24))
    assert first is not None and both is not None
    assert (first.found.budget, first.window) == (both.found.budget, both.window)
    turned = {name: mine[::-1] for name, mine in of(1, 24).items()}
    assert answer(turned) == both  # in any order


def test_the_same_releases_give_the_same_budget_at_any_time() -> None:
    early, late = answer(of(1)), answer(of(1), ORIGIN + 900 * DAY)
    assert early is not None and late is not None and early.found == late.found


def test_a_window_that_shows_no_units_decides_nothing() -> None:
    lone = released(CONFIG, records(1, users=1))
    assert answer(lone) is None
    assert answer({"pages-activity": [], "pages": []}) is None
    assert answer(of(1) | {"pages": []}) is None  # the window's counts are missing


def test_the_boundary_lies_beyond_all_records_that_may_have_come() -> None:
    p = replace(pipeline(), max_future_skew=HOUR)
    assert boundary(p, ORIGIN + DAY - HOUR - 1) == ORIGIN + DAY
    assert boundary(p, ORIGIN + DAY - HOUR) == ORIGIN + 2 * DAY


def test_rows_of_another_form_are_refused() -> None:
    (one,) = of(1)["pages-activity"]
    row = one.rows[0]
    value = row.values["units"]
    assert value is not None
    for values in ({"units": None}, {"units": type(value)(1, 9.0, 0.0, 2.0)}):
        wrong = replace(one, rows=(type(row)(**{**_fields(row), "values": values}), *one.rows[1:]))
        with pytest.raises(EngineError, match="pages-activity"):
            told(wrong)


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
