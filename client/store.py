"""Stored reports, so that a retry sends the same bytes, and what they cost.

Fresh noise on every attempt would average out. So a report is stored durably before its first byte
leaves the device, and a stored report is sent as it is. Surveys come from others, who may start a
new one every day. So the device's owner limits what all of them together may cost, and the same
file keeps that account.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

from .survey import ReportError, Survey, exact

DAY = 86_400
_BEGINNING = -(1 << 62)
_MAKING = threading.Lock()
_BESIDE = ("", "-journal", "-wal", "-shm")  # files of SQLite

_REPORTS = """CREATE TABLE IF NOT EXISTS report (
    survey TEXT NOT NULL, user TEXT NOT NULL, slot INTEGER NOT NULL,
    epsilon TEXT NOT NULL, bytes BLOB NOT NULL, made INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (survey, user, slot)
) WITHOUT ROWID"""
_BUDGET = """CREATE TABLE IF NOT EXISTS budget (
    one INTEGER PRIMARY KEY CHECK (one = 1), epsilon TEXT NOT NULL, days INTEGER NOT NULL
)"""
_INDEX = "CREATE INDEX IF NOT EXISTS report_made ON report (made, epsilon)"
_AGE = "ALTER TABLE report ADD COLUMN made INTEGER NOT NULL DEFAULT 0"
_FIND = "SELECT bytes FROM report WHERE survey = ? AND user = ? AND slot = ?"
_COUNT = "SELECT count(*) FROM report WHERE survey = ? AND user = ? AND slot >= ? AND slot < ?"
_ADD = "INSERT INTO report VALUES (?, ?, ?, ?, ?, ?)"
_COSTS = "SELECT epsilon, count(*) FROM report WHERE made >= ? GROUP BY epsilon"


@dataclass(frozen=True)
class Budget:
    """The budget of a device for all surveys together.

    Attributes:
        epsilon: sum of epsilon over all reports, positive.
        days: length of the period with that sum, by the device's own clock; 0: all time.
    """

    epsilon: Fraction
    days: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", exact(self.epsilon))
        if self.epsilon <= 0:
            raise ReportError(f"budget: epsilon = {self.epsilon}: must be positive")
        if isinstance(self.days, bool) or not isinstance(self.days, int) or self.days < 0:
            raise ReportError(f"budget: days = {self.days!r}: must be a whole number, 0 for ever")

    def __str__(self) -> str:
        return f"ε = {self.epsilon} " + (f"in {self.days} days" if self.days else "for ever")


class ReportStore:
    """One SQLite file of the reports of one person's device; safe for several processes.

    Guarantee: the reports in the file cost at most the budget, whatever the surveys and user names.
    A report and its cost are one transaction.

    The file holds perturbed reports only, never a value, and says in which surveys a person takes
    part: no other user of the machine may read it. If it is lost, a repeated report is
    perturbed anew and costs its epsilon again, and the budget starts over: keep it.

    Args:
        path: the file, created if need be; ``":memory:"`` is for tests alone.
        budget: budget of the device; a new file needs and keeps one, later it may be omitted.
        clock: the device's time in seconds; never taken as before the newest report.

    Raises:
        ReportError: the file has no budget and none is given, or the two differ: see `change`.
    """

    def __init__(
        self,
        path: str | Path,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        _private(os.fspath(path))
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._db.execute("PRAGMA synchronous = EXTRA")  # on disk, directory entry included
        try:
            with self._alone():
                self._prepare()
                self._agree(budget)
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One transaction; no other process can write at the same time."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _prepare(self) -> None:
        self._db.execute(_REPORTS)
        self._db.execute(_BUDGET)
        if "made" not in {name for _, name, *_ in self._db.execute("PRAGMA table_info(report)")}:
            self._db.execute(_AGE)  # the first version stored no times: take now
            self._db.execute("UPDATE report SET made = ?", (self._whole_seconds(),))
        self._db.execute(_INDEX)

    def _agree(self, budget: Budget | None) -> None:
        kept = self._kept()
        if kept is None and budget is None:
            raise ReportError(
                "budget = None: a new file needs to be told what its device may spend"
            )
        if kept is None:
            self._keep(budget)
        elif budget not in (None, kept):
            raise ReportError(
                f"budget = {budget}: this file's is {kept}; change() changes it, for good"
            )

    def _kept(self) -> Budget | None:
        row = self._db.execute("SELECT epsilon, days FROM budget").fetchone()
        return None if row is None else Budget(Fraction(row[0]), row[1])

    def _keep(self, budget: Budget | None) -> None:
        if budget is not None:
            row = (str(budget.epsilon), budget.days)
            self._db.execute("INSERT OR REPLACE INTO budget VALUES (1, ?, ?)", row)

    @property
    def budget(self) -> Budget:
        """The device's budget according to the file."""
        kept = self._kept()
        if kept is None:
            raise ReportError("budget: the file has lost it; change() sets a new one")
        return kept

    def change(self, budget: Budget) -> None:
        """Give the device another budget: its owner's decision, never a survey's."""
        with self._alone():
            self._keep(budget)

    def once(self, survey: Survey, user: str, slot: int, make: Callable[[], bytes]) -> bytes:
        """The stored report of this slot, or else the one that ``make`` returns, stored first.

        Raises:
            ReportError: the user has made all reports of the slot's period already, or the
                device's budget does not suffice.
        """
        with self._alone():
            known = self._db.execute(_FIND, (survey.digest, user, slot)).fetchone()
            report = known[0] if known else self._add(survey, user, slot, make)
        return bytes(report)

    def _add(self, survey: Survey, user: str, slot: int, make: Callable[[], bytes]) -> bytes:
        period = survey.period_of(slot)
        made = self._db.execute(_COUNT, (survey.digest, user, *period)).fetchone()[0]
        if made >= survey.reports:
            raise ReportError(f"reports = {survey.reports}: this user has made them all")
        now, budget = self._now(), self.budget
        if (cost := self._cost(budget, now)) + survey.epsilon > budget.epsilon:
            raise ReportError(
                f"budget = {budget}: {cost} is spent, this report would cost ε = {survey.epsilon}"
            )
        report = make()
        row = (survey.digest, user, slot, str(survey.epsilon), report, now)
        self._db.execute(_ADD, row)
        return report

    def _now(self) -> int:
        """The device's time, but never before the newest report, even if the clock was set back."""
        newest = self._db.execute("SELECT max(made) FROM report").fetchone()[0]
        now = self._whole_seconds()
        return now if newest is None else max(now, newest)

    def _whole_seconds(self) -> int:
        told = self._clock()
        try:
            return int(told)
        except (ValueError, OverflowError):  # NaN, infinity
            raise ReportError(f"clock = {told}: must be a time in seconds") from None

    def _cost(self, budget: Budget, now: int) -> Fraction:
        since = now - budget.days * DAY if budget.days else _BEGINNING
        return _sum(self._db.execute(_COSTS, (since,)))

    def left(self) -> Fraction:
        """The budget that the device has left now."""
        return max(self.budget.epsilon - self._cost(self.budget, self._now()), Fraction(0))

    def spent(self, user: str) -> Fraction:
        """Sum of epsilon over every report of ``user`` in this file, whatever the survey."""
        grouped = "SELECT epsilon, count(*) FROM report WHERE user = ? GROUP BY epsilon"
        return _sum(self._db.execute(grouped, (user,)))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> ReportStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _private(path: str) -> None:
    """Make a missing file for this user alone, and remove others' rights on an existing one.

    SQLite gives the files beside it the same rights. What belongs to another user stays as it is.
    """
    if path in ("", ":memory:"):
        return
    path = os.path.realpath(path)
    # To close a file ends this process's locks on it, so that only one without locks is opened:
    # a new one, before another thread can find it.
    with _MAKING, suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for beside in _BESIDE:
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(path + beside).st_mode)
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                os.chmod(path + beside, mode & stat.S_IRWXU)


def _sum(rows: Any) -> Fraction:
    return sum((Fraction(text) * number for text, number in rows), Fraction(0))
