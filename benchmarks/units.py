"""CPU of reading and writing rows of units in a shard's table, per event, as users grow.

    python benchmarks/units.py [--quick] [--json] [--users N] [--rounds N]

One table holds the rows of few users, another those of fifty times as many, each user with three
keys; a third is equally large, but keeps nothing in memory beyond what waits for the disk. Each
step reads the rows of 20,000 events of uniform users, the worst case for any cache, and writes them
changed. The tables take turns, a few steps each, so that other load affects all of them; time is
this process's CPU time, including the library's threads.

- ``event_few``, ``event_many``: microseconds of CPU of a whole event (`_event.py`) with the users
  of one of four shards of 200,000 users, and of 10 million, with default settings: all that a
  worker computes, including the resulting bulk writes, without the broker's client.
- ``many_over_few``: the second over the first. The client is the same for both: with it the ratio
  is smaller. Of few users most events are beyond the contribution bound, which costs less.
- ``event_accepted``: an event of the few users while all are within the bound, as those of the many
  are; ``many_over_accepted``: what the number of users alone costs.
- ``restart_rows``: rows of a changelog that a restart reads again, at most, for each table.
- ``few``, ``many``, ``many_on_disk``: microseconds of CPU per event, the median of the rounds.
- ``added``: ``many`` less ``few``, the additional cost of an event for that many users.
- ``first_few``, ``first_many``, ``first_on_disk``: microseconds of CPU to learn that a user has no
  row yet.
- ``gain``: ``many_on_disk`` over ``many``.
- ``memory_bytes``: bytes of memory for each user's row that is kept.
- ``exact``: the rows read were those written last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _event import Whole
from hushstream.agents.stages.bound.codec import distinct
from hushstream.agents.state.layout import sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units.room import UnitRoom
from hushstream.agents.state.units.table import REPLAYED
from hushstream.agents.worker.shards.maker import HELD
from hushstream.mechanisms.keys import Keys
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rocksdict import Cache

STEP, HOLD, WIDTH = 20_000, HELD, 2 + 3 * 5  # events, rows that wait, bytes of a row
EVENTS = 4_000_000  # whole events: with many users, about as many as cause one bulk write
TURN = 400_000  # of them
ACCEPTED = 5  # events of a user on average; nearly all users have at most 12, the bound
PAGES = 100_000
FEW, MANY = 50_000, 2_500_000  # users of one of four shards: of 200,000 and of 10 million
console = Console(stderr=True)


class Subject:
    """One table, and its expected rows.

    Args:
        folder: folder of its files.
        users: number of its rows.
        room: bytes of memory for rows that are on disk.
    """

    def __init__(self, folder: Path, users: int, room: int) -> None:
        self._random = np.random.default_rng(users)
        self._digests = self._random.integers(0, 256, (users, 16), np.uint8)
        self._stamp = np.zeros(users, np.uint32)  # number of the last step that wrote each row
        self._step = 0
        self.table = RocksStore(folder, Cache(64 << 20), 16 << 20, HOLD, UnitRoom(room))
        self.exact, self.users, self.costs = True, users, list[float]()
        for begun in range(0, users, STEP):
            self.step(np.arange(begun, min(begun + STEP, users)))

    def step(self, who: NDArray[np.intp]) -> float:
        """Read and write the rows of some events' users; returns seconds of CPU."""
        keys, place = distinct(self._digests[who], units_of(0) + sortable(0))
        first = np.zeros(len(keys), np.intp)
        first[place] = who
        self._step += 1
        values = np.zeros((len(keys), WIDTH), np.uint8)
        values[:, :4] = np.full((len(keys), 1), self._step, np.uint32).view(np.uint8)
        rows = RowColumns(keys, Keys.fixed(values))
        begun = time.process_time()
        read = self.table.get_columns(keys)
        self.table.write({b"\x00marker": b"m" * 200}, rows)
        spent = time.process_time() - begun
        self._check(read, self._stamp[first])
        self._stamp[first] = self._step
        return spent

    def _check(self, read: Keys, stamps: NDArray[np.uint32]) -> None:
        known = stamps > 0
        self.exact &= bool((np.diff(read.offsets) == WIDTH * known).all())
        found = read.packed().reshape(-1, WIDTH)[:, :4].copy().view(np.uint32).reshape(-1)
        self.exact &= bool((found == stamps[known]).all())

    def first(self) -> float:
        """Microseconds of CPU for a user without a row."""
        digests = self._random.integers(0, 256, (STEP, 16), np.uint8)
        keys, _ = distinct(digests, units_of(0) + sortable(0))
        begun = time.process_time()
        read = self.table.get_columns(keys)
        spent = time.process_time() - begun
        self.exact &= not any(read)
        return 1e6 * spent / STEP

    def round(self, steps: int) -> None:
        """Take a turn with this table."""
        spent = sum(self.step(self._random.integers(0, self.users, STEP)) for _ in range(steps))
        self.costs.append(1e6 * spent / (steps * STEP))


def whole(many: int, events: int, folder: Path) -> dict[str, float | bool]:
    """Figures of whole events.

    Args:
        many: number of users of a large shard.
        events: number of timed events.
        folder: where the tables are kept.
    """
    costs, exact, accepted = list[float](), True, 0.0
    for users in (FEW, many):
        with console.status(f"events of {users:,} users"):
            subject = Whole(folder / f"event-{users}", users, PAGES)
            subject.fill()
            begun = [subject.round(users) for _ in range(ACCEPTED)] if users == FEW else []
            accepted = accepted or statistics.median(begun)
            turns = [subject.round(TURN) for _ in range(events // TURN)]
            costs.append(sum(turns) / len(turns))
            exact &= subject.seen == users * (1 + len(begun)) + TURN * len(turns)
            subject.close()
    return {
        "event_accepted": round(accepted, 2),
        "many_over_accepted": round(costs[1] / accepted, 2),
        "event_few": round(costs[0], 2),
        "event_many": round(costs[1], 2),
        "many_over_few": round(costs[1] / costs[0], 2),
        "restart_rows": REPLAYED * HOLD,
        "exact": exact,
    }


def measure(many: int, rounds: int, folder: Path) -> dict[str, float | bool]:
    """All figures.

    Args:
        many: number of users of the large tables.
        rounds: number of turns of each table.
        folder: where the tables are kept.
    """
    room = many * 200  # enough for all rows in both generations
    with console.status("filling three tables"):
        few = Subject(folder / "few", max(many * FEW // MANY, 1_000), room)
        all_known = Subject(folder / "many", many, room)
        on_disk = Subject(folder / "disk", many, 0)
    for number in range(rounds):
        with console.status(f"round {number + 1} of {rounds}"):
            for subject in (few, all_known, on_disk):
                subject.round(5)
    few_cost, many_cost, disk_cost = (
        statistics.median(subject.costs) for subject in (few, all_known, on_disk)
    )
    firsts = [(few.first(), all_known.first(), on_disk.first()) for _ in range(rounds)]
    first = [statistics.median(column) for column in zip(*firsts, strict=True)]
    made: dict[str, float | bool] = {
        "first_few": round(first[0], 2),
        "first_many": round(first[1], 2),
        "first_on_disk": round(first[2], 2),
        "few": round(few_cost, 2),
        "many": round(many_cost, 2),
        "many_on_disk": round(disk_cost, 2),
        "added": round(many_cost - few_cost, 2),
        "gain": round(disk_cost / many_cost, 1),
        "memory_bytes": round(all_known.table.known_bytes / many, 1),
        "exact": few.exact and all_known.exact and on_disk.exact,
    }
    for subject in (few, all_known, on_disk):
        subject.table.close()
    return made


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fifth of the users, two rounds; whole events as ever",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--users", type=int, help="of the large tables")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    many = args.users or (MANY // 5 if args.quick else MANY)
    rounds = args.rounds or (2 if args.quick else 7)
    with tempfile.TemporaryDirectory(prefix="hush-units-") as folder:
        made = whole(args.users or MANY, EVENTS, Path(folder))
        found = measure(many, rounds, Path(folder))
    found = {**made, **found, "exact": made["exact"] and found["exact"]}
    table = Table("", "µs of CPU, bytes, or ratio", title=f"{many:,} users, {rounds} rounds")
    for name, value in found.items():
        table.add_row(name, str(value))
    console.print(table)
    if args.json:
        print(json.dumps(found))
    sys.exit(0 if found["exact"] else 1)


if __name__ == "__main__":
    main()
