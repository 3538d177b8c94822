"""A partition in memory: records, control markers, and transactions that are still open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hushstream.formats.events.decode import RawRecord

START = 1_552_000_000.0  # wall-clock time of virtual second 0
Place = tuple[str, int]


class Answer(NamedTuple):
    """The broker's answer to the append of a record."""

    offset: int
    timestamp: int
    timestamp_type: int


class Transaction:
    """One transaction of a producer, open until a marker ends it at each of its partitions."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.left = 0
        self.ending = False
        self.commit = False
        self.timer: Any = None


class View(NamedTuple):
    """A partition as a former leader sees it: nothing has come since."""

    start: int
    stable: int
    end: int


class Log:
    """One partition. ``records`` has None for a control marker."""

    def __init__(self, stamped: bool) -> None:
        self.start = 0
        self.stamped = stamped
        self.ahead = 0.0  # seconds by which its leader's clock is ahead
        self.records: list[RawRecord | None] = []
        self.owners: list[Transaction | None] = []
        self.open: dict[Transaction, int] = {}
        self.aborted: set[Transaction] = set()
        self.watchers: list[Callable[[], None]] = []

    def copy(self) -> Log:
        """Another log with the same records and no open transaction."""
        made = Log(self.stamped)
        made.start = self.start
        made.records, made.owners = list(self.records), list(self.owners)
        made.aborted = set(self.aborted)
        return made

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values()) if self.open else len(self.records)

    def append(
        self, transaction: Transaction | None, now: float, content: tuple[Any, ...]
    ) -> Answer:
        """Append key, value, timestamp and headers."""
        key, value, stamp, headers = content
        offset = len(self.records)
        if self.stamped or stamp is None:
            stamp = int((START + now + self.ahead) * 1000)
        self.records.append(RawRecord(offset, stamp, key, value, tuple(headers)))
        self.owners.append(transaction)
        if transaction is not None:
            self.open.setdefault(transaction, offset)
        return Answer(offset, stamp, int(self.stamped))

    def mark(self, transaction: Transaction, commit: bool) -> None:
        """End a transaction in this partition."""
        if self.open.pop(transaction, None) is None:
            return
        if not commit:
            self.aborted.add(transaction)
        self.records.append(None)
        self.owners.append(None)
        self.notify()

    def notify(self) -> None:
        """Wake readers, since there may be more to read."""
        for watcher in list(self.watchers):
            watcher()

    def read(
        self, begin: int, most: int, committed: bool = True, below: int | None = None
    ) -> tuple[list[RawRecord], int]:
        """Records at or above an offset, and the position after them.

        Args:
            below: end of the log for this reader; None: the end for all.
        """
        end = self.stable if committed else len(self.records)
        end = end if below is None else min(end, below)
        found: list[RawRecord] = []
        place = begin
        while place < end and len(found) < most:
            record, owner = self.records[place], self.owners[place]
            if record is not None and not (committed and owner in self.aborted):
                found.append(record)
            place += 1
        return found, place
