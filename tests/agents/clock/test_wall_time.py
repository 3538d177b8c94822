"""A worker's wall clock: it neither jumps nor goes back, and it learns from the broker."""

from __future__ import annotations

import hushstream.agents.clock.wall_time as clock_module
from hushstream.agents.clock.wall_time import Pace, Settling, WallClock


def test_the_wall_clock_neither_jumps_nor_goes_back(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert clock.now() == 1000_000_000
    wall[0], tick[0] = 5000.0, 51.0  # the system clock was set an hour ahead
    assert clock.now() == 1001_000_000
    wall[0], tick[0] = 10.0, 52.0  # and then far back
    assert clock.now() == 1002_000_000
    wall[0], tick[0] = 1004.0, 53.0  # a second ahead: the clock follows slowly
    assert 1003_000_000 < clock.now() < 1004_000_000
    assert WallClock(floor=9_999_000_000).now() == 9_999_000_000  # never behind the clock log


def test_a_wall_clock_that_was_set_is_followed_where_the_broker_agrees(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert not clock.doubtful()
    wall[0], tick[0] = 5000.0, 51.0  # the system clock was an hour behind and has been corrected
    assert clock.now() == 1001_000_000
    assert clock.doubtful() and not clock.doubtful()  # it asks once, not at each beat
    clock.agree(1500_000_000)  # the broker's time is earlier: advance to it and no further
    assert clock.now() == 1500_000_000
    tick[0] += 11
    assert clock.doubtful()
    clock.agree(9000_000_000)  # the broker's time is later: follow the system clock
    assert clock.now() == 5000_000_000
    clock.agree(1000_000_000)
    assert clock.now() == 5000_000_000  # never backwards
    tick[0] += 11
    wall[0] += 11
    assert not clock.doubtful()


def test_a_moment_of_the_clock_log_is_the_time_and_not_the_time_since_the_last_look(monkeypatch):
    """Otherwise an idle shard would publish before the public time."""
    tick = [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: 950.0 + tick[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    tick[0] += 40  # the clock is not read for forty seconds
    clock.reach(1040_000_000)
    assert clock.now() == 1040_000_000
    clock.reach(1050_000_000)
    assert clock.now() == 1050_000_000  # a system clock that was set back is not followed


def test_beats_are_more_frequent_where_a_trigger_or_a_request_is_near(monkeypatch):
    tick = [50.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    pace = Pace(1.0)
    pace.begin()
    tick[0] += 0.1
    assert (pace.left(soon=False), pace.left(soon=True)) == (900, 150)
    pace.hurry()
    assert pace.left(soon=False) == 150
    tick[0] += clock_module.HURRY_SECONDS
    assert pace.left(soon=False) == 0  # after a slow beat, the next one follows at once
    pace.begin()  # at 52.1: a slow beat moves no later one
    assert (pace.left(soon=False), pace.left(soon=True)) == (900, 150)
    slow = Pace(20.0)
    assert (slow.left(soon=False), slow.left(soon=True)) == (20_000, 250)
    quick = Pace(0.01)
    assert (quick.left(soon=False), quick.least, quick.longest) == (10, 0.01, 10_000)
    # A trigger that comes due during a rest was seen before it, even if the wall clock drifts.
    assert (1 + clock_module.JUMP_SECONDS / 10) * 1e6 < clock_module.SOON


SECOND = 1_000_000
MINUTE = 60 * SECOND
T = 1_000 * MINUTE  # an arbitrary time


def settled(settle: int = 30) -> Settling:
    """A `Settling` whose owner had its last answer at `T`."""
    made = Settling(settle * SECOND)
    made.opened(T, T - SECOND, None, SECOND)
    return made


def held(settling: Settling, scheduled: int, at: int, lateness: int = 0) -> bool:
    return settling.holds(T + scheduled * SECOND, lateness * SECOND, T + at * SECOND)


def test_nothing_is_held_while_the_brokers_answer():
    settling = Settling(30 * SECOND)
    assert not settling.holds(T, 0, T)  # the clock has had no owner yet
    settling.opened(T, 0, T - 400 * MINUTE, SECOND)  # a new deployment: no trigger was cut yet
    for at in range(1, 120, 5):
        settling.answered(T + at * SECOND, SECOND)
        assert not held(settling, at - 1, at)


def test_after_an_outage_every_trigger_waits_and_lateness_counts_from_the_return():
    settling = settled()
    settling.answered(T + 40 * SECOND, SECOND)  # the broker is back after forty seconds
    assert held(settling, 10, 69) and not held(settling, 10, 70)
    assert held(settling, 60, 69) and not held(settling, 60, 70)  # due while producers still send
    # A trigger that was due during the outage waits for its whole lateness. A later one waits for
    # the part of its lateness that the outage took.
    assert held(settling, 10, 40 + 299, 300) and not held(settling, 10, 340, 300)
    assert held(settling, 200, 200 + 39, 300) and not held(settling, 200, 240, 300)
    assert held(settling, 330, 339, 300) and not held(settling, 330, 340, 300)
    assert not held(settling, 340, 340, 300)  # its window ended after the outage


def test_a_pause_that_is_usual_is_no_outage():
    settling = settled()
    settling.answered(T + 60 * SECOND, MINUTE)  # beat_interval = "1m"
    settling.watched(T + 79 * SECOND)
    assert not held(settling, 50, 79)
    settling.answered(T + (60 + 66) * SECOND, MINUTE)
    assert held(settling, 50, 127)


def test_a_look_of_the_worker_hides_no_outage_from_the_owner():
    settling = settled()
    settling.watched(T + 12 * SECOND)  # the follower gets an answer first, and it asks rarely
    settling.answered(T + 12 * SECOND, SECOND)
    assert held(settling, 5, 41) and not held(settling, 5, 42)


def test_a_worker_that_saw_the_outage_waits_when_it_is_given_the_clock():
    settling = Settling(30 * SECOND)
    settling.watched(T)
    settling.watched(T + 25 * SECOND)
    settling.opened(T + 28 * SECOND, T + 27 * SECOND, None, SECOND)  # another owner has beaten
    assert held(settling, 26, 54) and not held(settling, 26, 55)
    blind = Settling(30 * SECOND)
    blind.watched(T)
    blind.opened(T + 25 * SECOND, T, None, SECOND)  # it takes over before it asks itself
    assert held(blind, 26, 54) and not held(blind, 26, 55)


def test_a_clock_that_nobody_has_kept_waits_and_one_that_has_moved_does_not():
    moved, stood = Settling(30 * SECOND), Settling(30 * SECOND)
    moved.opened(T, T - 29 * SECOND, T - 29 * SECOND, SECOND)
    assert not held(moved, -29, 0)
    stood.opened(T, T - 32 * SECOND, None, SECOND)
    assert held(stood, 5, 29) and not held(stood, 5, 30)


def test_an_owner_that_ends_while_it_waits_leaves_the_wait_to_the_next():
    fresh = Settling(30 * SECOND)
    fresh.opened(T, T - SECOND, T - 45 * SECOND, SECOND)  # it beats again but has cut nothing
    assert held(fresh, -45, 29) and not held(fresh, -45, 30)


def test_an_outage_within_a_wait_prolongs_it_and_a_clock_set_back_does_not():
    settling = settled()
    settling.answered(T + 40 * SECOND, SECOND)
    settling.answered(T + 50 * SECOND, SECOND)  # away for ten more seconds
    assert held(settling, 100, 100 + 49, 300) and not held(settling, 100, 150, 300)
    assert settling.holds(T, 0, T - 400 * MINUTE)
    assert not settling.holds(T, 0, T - 399 * MINUTE)
