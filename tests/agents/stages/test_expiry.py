"""The end of a window: rows go only when it is over, and at most so many at a time."""

from __future__ import annotations

from hushstream.agents.clock.timeline import Over
from hushstream.agents.stages import expiry
from hushstream.agents.stages.expiry import Expiry
from hushstream.agents.stages.step import Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import StateReader
from hushstream.topics.records import Marker, Skipped, Start
from hypothesis import given
from hypothesis import strategies as st


class Rows:
    """A store with one row for each window and number, and a stage's way to delete them."""

    def __init__(self, windows: list[int]) -> None:
        self.store = MemoryStore()
        self.store.write({b"r%d-%d" % (w, n): b"x" for n, w in enumerate(windows)})

    def delete(self, reader: StateReader, floor: int, step: Step, limit: int) -> bool:
        found = [k for k, _ in reader.scan(b"r", b"s") if int(k[1:].split(b"-")[0]) < floor]
        step.rows.update(dict.fromkeys(found[:limit]))
        return bool(found)

    def left(self) -> list[int]:
        return sorted(int(k[1:].split(b"-")[0]) for k, _ in self.store.scan(b"r", b"s"))


def marker(closed: int = 0) -> Marker:
    return Marker("g", 0, 0, {}, {"p": closed})


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 6), st.integers(1, 7))
def test_all_rows_below_the_floor_go_and_no_other(windows, floor, limit):
    rows = Rows(windows)
    made = Expiry(rows.delete)
    made.advance(floor)
    while made.sweep(rows.store, step := Step(marker()), limit):
        assert 0 < len(step.rows) <= limit
        rows.store.write(step.rows)
    assert rows.left() == sorted(w for w in windows if w >= floor)
    assert [made.past(w) for w in range(7)] == [w < floor for w in range(7)]


def test_rows_that_the_ending_step_itself_writes_are_found_once_they_are_committed():
    rows = Rows([])
    made = Expiry(rows.delete)
    made.advance(1)
    assert not made.sweep(rows.store, Step(marker()))
    rows.store.write({b"r0-9": b"written by the step that ended window 0"})
    step = Step(marker())
    assert made.sweep(rows.store, step) and step.rows == {b"r0-9": None}


def test_after_a_failed_step_nothing_is_over_until_it_is_said_again():
    rows = Rows([0])
    made = Expiry(rows.delete)
    made.advance(1)
    made.reopen()
    assert not made.past(0) and made.swept(rows.store, marker(), None) is None
    assert rows.left() == [0]


def test_a_refused_window_is_over_at_once_and_is_swept_without_other_work(monkeypatch):
    monkeypatch.setattr(expiry, "GARBAGE", 1)
    over = Over()
    over.apply(Start("p", 0, 0))
    rows = Rows([0] * 25 + [1])
    made = Expiry(rows.delete)
    made.consult(over, marker(), "p")
    assert made.swept(rows.store, marker(), None) is None
    over.apply(Skipped("p", 0, 0, 0))
    made.consult(over, marker(), "p")
    alone = made.swept(rows.store, marker(), None)
    assert alone is not None and len(alone.rows) == 10  # more than beside other work
    rows.store.write(alone.rows)
    beside = made.swept(rows.store, marker(), Step(marker()))
    assert beside is not None and len(beside.rows) == 1
