"""Budgets over many epochs: composed, shared by pipelines, and capped for each unit.

    python benchmarks/budget.py [--quick] [--json] [--users N] [--rounds N]

- ``thirty_epochs``: ε of 30 epochs together, ε = 1 and δ = 1e-9 each, half of δ for keys.
- ``epochs_at_30``: how many such epochs a limit of ε = 30 lasts.
- ``shared_gain``: deviation of the noise of four pipelines that split one ε, over that of four that
  share it.

The cap is ε = 8, δ = 1e-8 over 365 daily windows of the same ε and δ, a twentieth of δ for keys. A
linear limit of 8 would stop everything after 8 days. Users are active by Zipf's law: those of rank
n, as many for each n up to 200, come on one day of n, and then send three records on average; pages
follow Zipf's law as well. Bounds, statuses and thresholds are those of the product, noise is left
out of the counts:

- ``kept``: records accepted under the cap over records accepted without one.
- ``kept_of_all``: of the records that came.
- ``kept_heavy``: as ``kept``, where the n-th user sends 1/n as many records as the first one, who
  has a tenth of them all (without ``--quick``).
- ``linear``: what a limit of 8 would keep: 8 of 365 days.
- ``bytes_per_unit``: bytes on disk for each unit that the cap adds, to rows of one epoch.
- ``cpu_ratio``: CPU of an event with the cap over one without, from raw JSON records to sums, in a
  table on disk, both in turns; the median of the rounds. ``bound_ratio``: of the bound alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment, Pipeline
from hushstream.agents.stages.bound.bounder import Bounder
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.agents.stages.step import Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rocks import RocksStore
from hushstream.formats.events.raw import RawRecord
from hushstream.mechanisms.accounting.composition import MANY, Spent, charge_of, room
from hushstream.mechanisms.columns import compact
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.keys import Keys
from hushstream.topics.config.load import loads
from hushstream.topics.frames import EventSlice
from hushstream.topics.names import Names
from hushstream.topics.records import Marker
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

DAYS, TRIGGERS, RANKS, PAGES, STEP = 365, 24, 200, 1_000, 20_000
NAMES = Names("budget", "abcdef")
console = Console(stderr=True)
INPUT = """
[deployment]
name = "budget"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
"""
PIPELINE = """
[[pipeline]]
name = "NAME"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "1h" }
"""
BUDGET = "budget = { epsilon = EPSILON, delta = DELTAMORE }\n"
FEW_KEYS = 'mechanism = { kind = "histogram", threshold_delta_share = 0.05 }\n'
CAP = ', per_unit = { epsilon = 8, delta = 1e-8, period = "365d" }'


def compiled(text: str) -> Deployment:
    """A configuration of pipelines over the one input."""
    return compile_config(loads(INPUT + text, environ={}), {"events": 1})


def pipeline(more: str = "", mechanism: str = "") -> Pipeline:
    """A pipeline of ε = 1 and δ = 1e-9."""
    budget = BUDGET.replace("EPSILON", "1.0").replace("DELTA", "1e-9").replace("MORE", more)
    return compiled(PIPELINE.replace("NAME", "p") + budget + mechanism).pipelines[0]


def composed() -> dict[str, float]:
    """The cost of epochs together, and of four pipelines."""
    p = pipeline()
    one = charge_of(p.epsilon, p.delta, p.mechanism.cost())
    names = ["a", "b", "c", "d"]
    quarter = BUDGET.replace("EPSILON", "0.25").replace("DELTA", "2.5e-10").replace("MORE", "")
    split = compiled("".join(PIPELINE.replace("NAME", name) + quarter for name in names))
    members = ", ".join(f"{name} = 1" for name in names)
    shared = f'[[budget]]\nname = "all"\nepsilon = 1.0\ndelta = 1e-9\nmembers = {{ {members} }}\n'
    together = compiled("".join(PIPELINE.replace("NAME", name) for name in names) + shared)
    noise = [float(d.pipelines[0].mechanism.error(TRIGGERS)[0]) for d in (split, together)]
    return {
        "thirty_epochs": round(float(Spent().plus(one, 30).composed()), 3),
        "epochs_at_30": room(Spent(), one, Fraction(30), None, MANY),
        "shared_gain": round(noise[0] / noise[1], 3),
    }


def days(users: int, heavy: bool) -> Iterator[list[tuple[NDArray[np.intp], NDArray[np.intp]]]]:
    """Users and pages of the records of each hour, day by day."""
    random = np.random.default_rng(2019)
    rank = 1 + np.arange(users) % RANKS
    active, seen = (1 / np.arange(1, n + 1) for n in (users, PAGES))
    for _ in range(DAYS):
        here = (random.random(users) < 1 / rank) * (1 + random.poisson(2, users))
        records = random.poisson(active / active.sum() * users) if heavy else here
        who = np.repeat(np.arange(users), records)
        random.shuffle(who)
        what = random.choice(PAGES, len(who), p=seen / seen.sum())
        ends = np.sort(random.integers(0, len(who) + 1, TRIGGERS - 1))
        yield list(zip(np.split(who, ends), np.split(what, ends), strict=True))


class Year:
    """Bounds of one pipeline over a year; keys become public by their counts without noise."""

    def __init__(self, p: Pipeline, users: int) -> None:
        assert isinstance(p.mechanism, Histogram)
        self._bar = [one // 256 for one in p.mechanism.threshold]
        self._delay = p.delay
        self._first = np.zeros(PAGES, np.int32)
        self._count = np.zeros(PAGES, np.int64)
        self._digests = np.random.default_rng(1).integers(0, 256, (users, 16), np.uint8)
        self._bounder = Bounder(p, NAMES, 0, self._status)
        self._store, self._name = MemoryStore(), p.name
        self._window = 0
        self.accepted = self.came = 0

    def _status(self, name: str, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        first = self._first[[int(key) for key in keys]]
        return np.where((first > 0) & (first <= as_of), first, 0).astype(np.int32)

    def day(self, hours: list[tuple[NDArray[np.intp], NDArray[np.intp]]]) -> None:
        """Absorb the records of a day; its rows are deleted as soon as it is over."""
        self._first[:], self._count[:] = 0, 0
        for trigger, (who, what) in enumerate(hours, 1):
            step = Step(Marker("g", 0))
            if len(who):
                self._absorb(trigger, who, what, step)
            self._first[(self._first == 0) & (self._count >= self._bar[trigger - 1])] = trigger
        self._window += 1
        step = Step(Marker("g", 0))
        self._bounder.forget(self._store, self._window, step, 1 << 30)
        self._store.write(step.rows)

    def _absorb(
        self, trigger: int, who: NDArray[np.intp], what: NDArray[np.intp], step: Step
    ) -> None:
        used, key = compact(what, PAGES)
        keys = Keys.of(b"%d" % page for page in used)
        n = len(who)
        one = EventSlice(
            self._window, trigger, self._digests[who], keys, key,
            np.empty((n, 0), np.int64), np.ones(n, np.int8),
        )  # fmt: skip
        part = self._bounder._absorb(self._store, one, step, self._window)
        self._store.write(step.rows, step.units.columns())
        pages = np.array([int(page) for page in part.key], np.intp)
        np.add.at(self._count, pages[part.lane == 0], part.sums[part.lane == 0, 0])
        self.came += n
        self.accepted += int(part.sums[:, 0].sum())


def kept(users: int, heavy: bool = False) -> dict[str, float]:
    """Compare a year with the cap to one without it."""
    capped, free = (Year(pipeline(more, FEW_KEYS), users) for more in (CAP, ""))
    for hours in days(users, heavy):
        capped.day(hours)
        free.day(hours)
    if heavy:
        return {"kept_heavy": round(capped.accepted / free.accepted, 4)}
    return {
        "kept": round(capped.accepted / free.accepted, 4),
        "kept_of_all": round(capped.accepted / capped.came, 4),
        "linear": round(8 / DAYS, 4),
    }


class Worker:
    """Decoding, digests and bounds of one pipeline over a table on disk."""

    def __init__(self, p: Pipeline, made: Deployment, folder: Path) -> None:
        self._decoder = made.inputs[0].decoder
        self._units = UnitDigests(bytes(32), "murmur2", 1, 0)
        self._bounder = Bounder(p, NAMES, 0, None)
        self.table = RocksStore(folder, None, 16 << 20)
        self.folder, self.bound = folder, 0.0

    def step(self, records: list[RawRecord]) -> float:
        """Seconds of CPU for some records."""
        begun = time.process_time()
        decoded = self._decoder.decode(records)
        digests, _ = self._units.look(decoded.unit)
        view = decoded.views[0]
        one = EventSlice(0, 1, digests[view.rows], view.keys, view.key, view.value, view.sign)
        step, before = Step(Marker("g", 0)), time.process_time()
        self._bounder.absorb(self.table, [one], step, 0)
        self.table.write(step.rows, step.units.columns())
        ended = time.process_time()
        self.bound = ended - before
        return ended - begun

    def size(self) -> int:
        """Bytes on disk, without superseded versions of rows."""
        self.table.flush()
        self.table.compact()
        self.table.close()
        return sum(file.stat().st_size for file in self.folder.rglob("*.sst"))


def costs(users: int, rounds: int, folder: Path) -> dict[str, float]:
    """Bytes and CPU with and without the cap, in turns."""
    made = {
        name: compiled(
            PIPELINE.replace("NAME", "p")
            + BUDGET.replace("EPSILON", "1.0").replace("DELTA", "1e-9").replace("MORE", more)
        )
        for name, more in (("free", ""), ("capped", CAP))
    }
    workers = {name: Worker(d.pipelines[0], d, folder / name) for name, d in made.items()}
    random, ratios, bounds = np.random.default_rng(7), list[float](), list[float]()
    for begun in range(0, users, STEP):
        records = sent(np.arange(begun, min(begun + STEP, users)), random)
        for worker in workers.values():
            worker.step(records)
    for number in range(rounds + 1):
        spent: dict[str, float] = {}
        bound: dict[str, float] = {}
        records = sent(random.integers(0, users, STEP), random)
        for name in ("free", "capped") if number % 2 else ("capped", "free"):
            spent[name], bound[name] = workers[name].step(records), workers[name].bound
        if number:  # the first round may compile loops
            ratios.append(spent["capped"] / spent["free"])
            bounds.append(bound["capped"] / bound["free"])
    sizes = {name: worker.size() for name, worker in workers.items()}
    return {
        "bytes_per_unit": round((sizes["capped"] - sizes["free"]) / users, 2),
        "cpu_ratio": round(statistics.median(ratios), 3),
        "bound_ratio": round(statistics.median(bounds), 3),
    }


def sent(who: NDArray[np.intp], random: np.random.Generator) -> list[RawRecord]:
    """One JSON record for each of some users."""
    pages = random.zipf(1.3, len(who)) % PAGES
    return [
        RawRecord(n, 0, b"", b'{"user":"u%d","page":"p%d","t":1}' % pair)
        for n, pair in enumerate(zip(who.tolist(), pages.tolist(), strict=True))
    ]


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer users and rounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--users", type=int, help="of the year; tables have a hundred times as many"
    )
    parser.add_argument("--rounds", type=int, help="of the comparison of CPU")
    args = parser.parse_args()
    users = args.users or (2_000 if args.quick else 20_000)
    rounds = args.rounds or (21 if args.quick else 101)
    found: dict[str, float] = composed()
    with console.status("a year"):
        found |= kept(users)
        found |= {} if args.quick else kept(users, heavy=True)
    with tempfile.TemporaryDirectory(prefix="hush-budget-") as folder:
        found |= costs(100 * users, rounds, Path(folder))
    table = Table("", "figure", title=f"{users:,} users, {rounds} rounds")
    for name, value in found.items():
        table.add_row(name, str(value))
    console.print(table)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
