"""CPU of an event when aggregates have conditions, as ratios within one run.

    python benchmarks/conditions.py [--quick] [--json]

The stages of a worker process the same raw JSON events in memory, from the log to the release, for
pipelines that differ only in their aggregates: a count; a count and four counts with conditions; a
count and four sums of all records. Rounds take turns; figures are medians.

* `texts`, `numbers`, `patterns`, `mixed`: CPU with four conditions over that of the count alone:
  values of a text; intervals of a number; functions and patterns of a text; one of each.
* `sums`: with four sums without a condition.
* `microseconds`: CPU of one event, for each pipeline.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine
from hushstream.offline.simulate import _clock
from hushstream.topics.config.load import loads
from hushstream.topics.names import Names
from rich.console import Console
from rich.table import Table

EVENTS, ROUNDS = 400_000, 5
USERS, PAGES = 50_000, 5_000
ORIGIN, DAY = 17956 * 24 * 3_600_000_000, 24 * 3_600_000_000  # 2019-03-01
LANDS = ["de", "fr", "it", "es", "pl", "at"]
AGENTS = [f"Agent/{n}.0 (System {n % 5}; Part {n % 7})" for n in range(200)]
TOML = """
[deployment]
name = "conditions"
[engine]
units_partitions = 1
cells_partitions = 1
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 4.0, delta = 1e-6 }}
aggregate = [{{ kind = "count" }}{more}]
mechanism = {{ kind = "histogram" }}
"""
NUMBERS = [f'field = "price", above = {20 * n}, at_most = {20 * n + 20}' for n in range(4)]
TEXTS = [f'field = "land", equals = "{land}"' for land in LANDS[:4]]
PATTERNS = [
    'field = "agent", like = "%System 1%"', 'field = "agent", like = "Agent/1%"',
    'field = "agent", matches = "Part [2-4]"',
    'field = "agent", text = [{ case = "lower" }], equals = "agent/7.0 (system 2; part 0)"',
]  # fmt: skip
CONDITIONS = {
    "texts": TEXTS,
    "numbers": NUMBERS,
    "patterns": PATTERNS,
    "mixed": [TEXTS[0], NUMBERS[0], PATTERNS[0], 'field = "note", present = true'],
}


def aggregates() -> dict[str, str]:
    """Further aggregates of each pipeline."""
    made = {"none": "", "sums": ""}
    for field in ("price", "tax", "items", "weight"):
        made["sums"] += f', {{ kind = "sum", field = "{field}", low = 0, high = 100 }}'
    for name, conditions in CONDITIONS.items():
        made[name] = "".join(
            f', {{ kind = "count", name = "c{n}", where = [{{ {one} }}] }}'
            for n, one in enumerate(conditions)
        )
    return made


def events(number: int) -> list[RawRecord]:
    """Events of one day, in order."""
    draw = np.random.default_rng(3)
    columns = [
        draw.integers(0, USERS, number), draw.integers(0, PAGES, number),
        draw.integers(0, len(LANDS), number), draw.integers(0, 10_000, number),
        draw.integers(0, len(AGENTS), number), np.sort(draw.integers(0, DAY, number)),
    ]  # fmt: skip
    body = '{"user":"u%d","page":"p%d","land":"%s","price":%s,"tax":%d,"items":%d,"weight":%d,'
    body += '"agent":"%s","t":%d%s}'
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        RawRecord(n, 0, None, (body % (
            user, page, LANDS[land], price / 100, price % 20, land, page % 90, AGENTS[agent],
            ORIGIN + t, ',"note":"x"' if n % 3 else "",
        )).encode())
        for n, (user, page, land, price, agent, t) in enumerate(rows)
    ]  # fmt: skip


def spent(made: Deployment, records: Sequence[RawRecord], times: np.ndarray[Any, Any]) -> float:
    """Seconds of CPU of all stages for the records."""
    entries = list(enumerate(_clock(made.inputs[0], times)))
    raw = {("events", 0): records}
    engine = OfflineEngine(made, Names("conditions", "simulated"), bytes(32), raw, entries)
    begun = time.process_time()
    engine.run()
    used = time.process_time() - begun
    if engine.counts["pages", "manifests"] == 0:
        raise SystemExit("nothing was released")
    return used


def measured(number: int, rounds: int) -> dict[str, Any]:
    """All figures in the module's docstring."""
    records = events(number)
    times = np.array([json.loads(one.value or b"")["t"] for one in records], np.int64)
    pipelines = {
        name: compile_config(loads(TOML.format(more=more), environ={}), {"events": 1})
        for name, more in aggregates().items()
    }
    for made in pipelines.values():  # compile loops, warm caches
        spent(made, records[:5000], times[:5000])
    every: dict[str, list[float]] = {name: [] for name in pipelines}
    for _ in range(rounds):
        for name, made in pipelines.items():
            every[name].append(spent(made, records, times))
    none = every["none"]
    ratios = {
        name: statistics.median(one / base for one, base in zip(found, none, strict=True))
        for name, found in every.items()
    }
    del ratios["none"]
    micro = {name: 1e6 * statistics.median(found) / number for name, found in every.items()}
    return {name: round(one, 3) for name, one in ratios.items()} | {
        "microseconds": {name: round(one, 2) for name, one in micro.items()}
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the events")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    found = measured(EVENTS // 4 if options.quick else EVENTS, 3 if options.quick else ROUNDS)
    table = Table("aggregates", "over the count alone", "µs of CPU")
    for name, micro in found["microseconds"].items():
        table.add_row(name, str(found.get(name, 1)), str(micro))
    Console(stderr=options.json).print(table)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
