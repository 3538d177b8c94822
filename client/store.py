"""Reports that have been made, kept so that a retry sends the same bytes.

Fresh noise on every attempt would average out, so a report is written down, durably, before its
first byte leaves the device, and whatever is found there is sent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import TracebackType

from .survey import ReportError, Survey

_TABLE = """CREATE TABLE IF NOT EXISTS report (
    survey TEXT NOT NULL, user TEXT NOT NULL, slot INTEGER NOT NULL,
    epsilon TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (survey, user, slot)
) WITHOUT ROWID"""
_FIND = "SELECT bytes FROM report WHERE survey = ? AND user = ? AND slot = ?"
_COUNT = "SELECT count(*) FROM report WHERE survey = ? AND user = ? AND slot >= ? AND slot < ?"
_ADD = "INSERT INTO report VALUES (?, ?, ?, ?, ?)"


class ReportStore:
    """One SQLite file of reports by (survey, user, slot); safe for several processes.

    It holds perturbed reports only, never a value. Losing it means that a repeated report is
    perturbed anew and costs its epsilon again: keep it as long as a slot may be retried.

    Args:
        path: the file, created if need be; ``":memory:"`` is for tests alone.
    """

    def __init__(self, path: str | Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._db.execute("PRAGMA synchronous = EXTRA")  # on disk, directory entry included
        self._db.execute(_TABLE)

    def once(self, survey: Survey, user: str, slot: int, make: Callable[[], bytes]) -> bytes:
        """The stored report of this slot, or else the one that ``make`` returns, stored first.

        Raises:
            ReportError: the user has made all reports of the slot's period already.
        """
        self._db.execute("BEGIN IMMEDIATE")  # nobody else can make one at the same time
        try:
            known = self._db.execute(_FIND, (survey.digest, user, slot)).fetchone()
            if known is None:
                known = (self._add(survey, user, slot, make),)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return bytes(known[0])

    def _add(self, survey: Survey, user: str, slot: int, make: Callable[[], bytes]) -> bytes:
        period = survey.period_of(slot)
        made = self._db.execute(_COUNT, (survey.digest, user, *period)).fetchone()[0]
        if made >= survey.reports:
            raise ReportError(f"reports = {survey.reports}: this user has made them all")
        report = make()
        self._db.execute(_ADD, (survey.digest, user, slot, str(survey.epsilon), report))
        return report

    def spent(self, user: str) -> Fraction:
        """Sum of epsilon over every report of ``user`` in this file, whatever the survey."""
        rows = self._db.execute("SELECT epsilon FROM report WHERE user = ?", (user,))
        return sum((Fraction(text) for (text,) in rows), Fraction(0))

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
