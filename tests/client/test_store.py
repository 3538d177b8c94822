"""The store of reports: one budget over all surveys and days, whatever the clock shows."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hushstream.client import (
    Budget,
    Client,
    ReportError,
    ReportStore,
    Survey,
)
from hushstream.client.store import _private
from hypothesis import given, settings
from hypothesis import strategies as st

from .surveyed import SURVEY, VALUED, answers, asked, store

__all__ = ["store"]  # a fixture


def test_spending_adds_up_over_surveys(store: ReportStore) -> None:
    other = Survey(Fraction(1), Fraction(100), "s", buckets=32, levels=16)
    for survey in (SURVEY, other):
        Client(survey, store).report(VALUED, 1, 40, 5)
    assert store.spent(VALUED) == Fraction(3, 2)


def test_salted_surveys_draw_no_more_than_the_budget(tmp_path: Path) -> None:
    """200 surveys that the device has never seen ask for the same value."""
    path = tmp_path / "reports.db"
    with ReportStore(path, Budget(Fraction(8))) as store:
        assert answers(store, 200) == 8
        assert store.spent("alice") == 8 and store.left() == 0
    with ReportStore(path) as store:  # a restart changes nothing
        assert answers(store, 200) == 8  # the earlier reports again
        assert answers(store, 200, "also alice") == 0  # another user name changes nothing either
        with pytest.raises(ReportError, match="8 is spent, this report would cost ε = 1/1000"):
            Client(asked(0, Fraction(1, 1000)), store).report("alice", 1, 40, 5)


def _modes(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


def test_no_other_user_of_the_machine_may_read_a_store(tmp_path: Path) -> None:
    path, (folder, far) = tmp_path / "reports.db", (tmp_path / "linked", tmp_path / "far")
    folder.mkdir()
    far.mkdir()
    (folder / "s.db").symlink_to(far / "s.db")
    before = os.umask(0o022)
    try:
        with ReportStore(path, Budget(Fraction(8))) as store, store._alone():
            store._keep(Budget(Fraction(9)))  # a transaction is open: its journal is there
            assert (
                _modes(tmp_path).items()
                >= dict.fromkeys(("reports.db", "reports.db-journal"), 0o600).items()
            )
        ReportStore(folder / "s.db", Budget(Fraction(8))).close()
        assert _modes(far) == {"s.db": 0o600}
        path.chmod(0o664)  # as an earlier version made it
        (tmp_path / "reports.db-wal").touch(0o644)
        ReportStore(path).close()
        found = _modes(tmp_path)
        assert (found["reports.db"], found["reports.db-wal"]) == (0o600, 0o600)
    finally:
        os.umask(before)


def test_a_second_store_of_one_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "reports.db"
    with ReportStore(path, Budget(Fraction(8))) as store:
        with store._alone():
            _private(str(path))
            other = (
                "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0); "
                "db.execute('BEGIN IMMEDIATE')"
            )
            told = subprocess.run([sys.executable, "-c", other, path], capture_output=True)
        assert b"database is locked" in told.stderr


def test_a_retry_costs_nothing_when_the_budget_is_spent(store: ReportStore) -> None:
    store.change(Budget(Fraction(1)))
    first = Client(asked(0), store).report("alice", 1, 40, 5)
    assert store.left() == 0
    assert Client(asked(0), store).report("alice", 1, 0, 9) == first


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(-3 * 86_400, 3 * 86_400), st.fractions("1/1000", 5)), max_size=30
    )
)
def test_any_days_have_the_budget_whatever_the_clock_does(
    steps: list[tuple[int, Fraction]],
) -> None:
    now, made = 10**9, []
    with ReportStore(":memory:", Budget(Fraction(6), 2), lambda: now) as store:
        latest = now
        for number, (move, epsilon) in enumerate(steps):
            now += move
            latest = max(latest, now)
            spent = sum(cost for when, cost in made if when >= latest - 2 * 86_400)
            try:
                Client(asked(number, epsilon), store).report("alice", 1, 40, 5)
            except ReportError:
                assert spent + epsilon > 6
            else:
                made.append((latest, epsilon))
                assert spent + epsilon <= 6
            latest = max([when for when, _ in made], default=0)  # the latest time in the file
    for end, _ in made:
        assert sum(cost for when, cost in made if end - 2 * 86_400 < when <= end) <= 6


def test_a_budget_of_days_comes_back() -> None:
    now = 0.0
    with ReportStore(":memory:", Budget(Fraction(2), 7), lambda: now) as store:
        for day, number in ((0, 0), (3, 1)):
            now = day * 86_400.0
            Client(asked(number), store).report("alice", 1, 40, 5)
        for days, left in ((6.9, 0), (7.1, 1), (10.1, 2)):
            now = days * 86_400
            assert store.left() == left
        with pytest.raises(ReportError, match="budget = ε = 1/2 in 30 days"):
            store.change(Budget(Fraction(1, 2), 30))
            Client(asked(2), store).report("alice", 1, 40, 5)


@pytest.mark.parametrize("told", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_is_no_time_spends_nothing_and_frees_nothing(told: float) -> None:
    now = 0.0
    with ReportStore(":memory:", Budget(Fraction(1), 7), lambda: now) as store:
        Client(asked(0), store).report("alice", 1, 40, 5)
        now = told
        with pytest.raises(ReportError, match=f"clock = {told}: must be a time"):
            Client(asked(1), store).report("alice", 1, 40, 5)
        now = 1.0
        assert store.left() == 0


def test_threads_racing_for_the_last_of_the_budget(tmp_path: Path) -> None:
    path, out = tmp_path / "reports.db", []
    ReportStore(path, Budget(Fraction(3))).close()

    def race(number: int) -> None:
        with ReportStore(path) as store, contextlib.suppress(ReportError):
            out.append(Client(asked(number), store).report("alice", 1, 40, 5))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(out) == 3


def test_a_file_keeps_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "reports.db"
    with pytest.raises(ReportError, match="budget = None"):
        ReportStore(path)
    ReportStore(path, Budget(Fraction(3), 7)).close()
    for other in (Budget(Fraction(4), 7), Budget(Fraction(3)), Budget(Fraction(2), 7)):
        with pytest.raises(ReportError, match="this file's is ε = 3 in 7 days"):
            ReportStore(path, other)
    with ReportStore(path, Budget(Fraction(3), 7)) as store:
        assert store.budget == Budget(Fraction(3), 7)
        store.change(Budget(Fraction(9)))
    with ReportStore(path) as store:
        assert store.budget == Budget(Fraction(9))


@pytest.mark.parametrize(
    "epsilon,days", [(0, 0), (-1, 0), (float("nan"), 0), (1, -1), (1, 0.5), (1, True), ("1", 0)]
)
def test_budgets_that_mean_nothing_are_refused(epsilon: object, days: object) -> None:
    with pytest.raises(ReportError):
        Budget(epsilon, days)  # type: ignore[arg-type]


FIRST = """CREATE TABLE report (
    survey TEXT NOT NULL, user TEXT NOT NULL, slot INTEGER NOT NULL,
    epsilon TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (survey, user, slot)
) WITHOUT ROWID"""


def test_reports_of_a_file_without_budget_count_as_made_when_it_got_one(tmp_path: Path) -> None:
    path, now = tmp_path / "reports.db", 1e9
    with sqlite3.connect(path) as old:
        old.execute(FIRST)
        old.execute("INSERT INTO report VALUES (?, 'alice', 1, '3/2', x'7b7d')", [asked(0).digest])
    old.close()
    with ReportStore(path, Budget(Fraction(2), 7), lambda: now) as store:
        assert Client(asked(0), store).report("alice", 1, 40, 5) == b"{}"
        with pytest.raises(ReportError, match="3/2 is spent"):
            Client(asked(1), store).report("alice", 1, 40, 5)
        now += 8 * 86_400
        Client(asked(1), store).report("alice", 1, 40, 5)


def test_a_commit_waits_until_it_is_on_disk(tmp_path):
    """EXTRA syncs file and directory entry; a device may lose power after any report."""
    with ReportStore(tmp_path / "reports", Budget(Fraction(1))) as store:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (3,)
