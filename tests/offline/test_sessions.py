"""Sessions of a file: a simulation's counts, and the exact answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import Config, loads

from ..support import DAY, INPUT, ORIGIN, PIPELINE, SECRET

MINUTE = 60_000_000
AGGREGATES = """
session = "30m"
lateness = "30m"
public_keys = ["p0", "p1"]
aggregate = [
  { kind = "count" },
  { kind = "sum", field = "session_events", low = 0, high = 50 },
  { kind = "mean", field = "session_length", low = 0, high = 36_000, name = "length" },
  { kind = "count", where = [{ field = "session_events", at_most = 1 }], name = "bounced" },
]
"""


def config(more: str = AGGREGATES, partitioner: str = "none", **swap: str) -> Config:
    text = INPUT.format(units=2, cells=2, partitioner=partitioner, format="json")
    text += PIPELINE.format(name="p", mechanism="", more=more)
    text = text.replace("epsilon = 8.0", "epsilon = 30").replace("budget = 4", "budget = 60")
    for old, new in swap.items():
        text = text.replace(old, new)
    return loads(text, environ={})


def rows(n: int, seed: int = 3, users: int = 300, days: int = 2) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    begins = rng.integers(0, days * DAY, n)
    return [
        {"user": f"u{rng.integers(users)}", "page": f"p{rng.integers(2)}",
         "t": int(ORIGIN + begin + m * rng.integers(40 * MINUTE))}
        for begin in begins for m in range(rng.integers(1, 6))
    ]  # fmt: skip


def sessions(data: list[dict[str, Any]], window: int) -> dict[str, list[tuple[int, int]]]:
    """Length and number of records of each session that ends in a day, by page and definition."""
    found: dict[str, list[tuple[int, int]]] = {}
    for user, page in sorted({(row["user"], row["page"]) for row in data}):
        times = sorted(r["t"] for r in data if (r["user"], r["page"]) == (user, page))
        run: list[int] = []
        for time in [*times, 1 << 62]:
            if run and (time - run[-1] > 30 * MINUTE or (time - ORIGIN) // DAY > window):
                if (run[-1] - ORIGIN) // DAY == window:
                    found.setdefault(page, []).append((run[-1] - run[0], len(run)))
                run = []
            if (time - ORIGIN) // DAY == window:
                run.append(time)
    return found


def last(engine: Any) -> dict[str, dict[str, Any]]:
    """The last values, by day of the window and page."""
    found = {}
    for out in engine.outs["hush.p.releases.v1"]:
        body = json.loads(out.value)
        if "key" in body:
            found[body["window"]["start"][8:10] + body["key"]["page"]] = body["values"]
    return found


@pytest.mark.parametrize("partitioner", ["none", "murmur2"])
def test_a_session_is_one_record_with_a_length_and_a_number_of_events(partitioner: str) -> None:
    """With little noise the releases agree with the definition."""
    data = rows(700)
    reports, engine = simulate(config(partitioner=partitioner), data, "events", SECRET)
    released, report = last(engine), reports["p"]
    assert report.counted == "sessions"
    number = 0
    for entry in report.windows:
        mine = sessions(data, entry["window"])
        number += sum(map(len, mine.values()))
        assert entry["records"] == sum(map(len, mine.values()))
        for page, each in mine.items():
            values = released[f"{entry['window'] + 1:02}{page}"]
            lengths, events = zip(*each, strict=True)
            truth = {
                "count": len(each), "bounced": events.count(1), "sum_session_events": sum(events),
                "length": sum(lengths) / len(each) / 1e6,
            }  # fmt: skip
            for name, true in truth.items():
                assert abs(values[name]["value"] - true) < 6 * values[name]["stddev"], name
    assert number > 300
    assert report.counts["seen"] == report.counts["accepted"] == number
