"""A table whose users' rows count their events, until the process is killed.

    python -m hushstream.tests.agents.state.killed_table FOLDER LOG USERS

Each line of the log is a step: the numbers of its users. The log has a step before the table does.
A start brings the table up to the end of the log and fails if a row differs from the log.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from hushstream.agents.state.layout import POSITION, sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units.room import UnitRoom
from hushstream.agents.state.units.table import REPLAYED
from hushstream.mechanisms.keys import Keys

EPOCH = 40  # steps
STEP = 200  # users


def _named(users: Iterable[tuple[int, int]]) -> Keys:
    digest = [(np.random.default_rng(user).bytes(16), epoch) for user, epoch in users]
    return Keys.of(units_of(0) + sortable(epoch) + name for name, epoch in digest)


class Counted:
    """The table and its expected rows.

    Args:
        folder: folder of the table.
    """

    def __init__(self, folder: Path) -> None:
        self._store = RocksStore(folder, None, 1 << 16, 700 // REPLAYED, UnitRoom(1 << 20))
        self._counts = Counter[tuple[int, int]]()
        self.restored = int(self._store.get_many([POSITION])[0] or b"0")

    def skip(self, number: int, step: list[int]) -> None:
        """Count a step that the table has already."""
        self._counts.update((user, number // EPOCH) for user in step)

    def write(self, number: int, step: list[int]) -> None:
        """Read the rows of a step's users, as a bound does, and write them back."""
        users = [(user, number // EPOCH) for user in step]
        keys = self._checked(users)
        self.skip(number, step)
        rows = Keys.of(b"%d" % self._counts[user] for user in users)
        self._store.write({POSITION: b"%d" % (number + 1)}, RowColumns(keys, rows))

    def check(self) -> int:
        """Check all rows and return their number."""
        self._checked(sorted(self._counts))
        return len(self._counts)

    def _checked(self, users: list[tuple[int, int]]) -> Keys:
        keys = _named(users)
        rows = [int(row or b"0") for row in self._store.get_columns(keys).tolist()]
        wrong = [user for user, row in zip(users, rows, strict=True) if row != self._counts[user]]
        assert not wrong, f"{len(wrong)} of {len(users)} rows are missing or old"
        return keys


def main(folder: Path, log: Path, users: int) -> None:
    """Restore, check, report, and continue until killed."""
    table = Counted(folder)
    steps = [[int(user) for user in line.split()] for line in log.read_text().splitlines()]
    for number, step in enumerate(steps):
        (table.skip if number < table.restored else table.write)(number, step)
    print(table.check(), len(steps), table.restored, flush=True)
    random = np.random.default_rng()
    with log.open("a") as out:
        for number in range(len(steps), 100_000):
            step = random.choice(users, STEP, replace=False).tolist()
            out.write(" ".join(map(str, step)) + "\n")
            out.flush()
            table.write(number, step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
