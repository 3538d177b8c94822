"""The wall clock of a worker: it neither jumps nor goes back, and learns from the broker."""

from __future__ import annotations

import hushstream.agents.clock.wall_time as clock_module
from hushstream.agents.clock.wall_time import Pace, WallClock


def test_the_wall_clock_neither_jumps_nor_goes_back(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert clock.now() == 1000_000_000
    wall[0], tick[0] = 5000.0, 51.0  # somebody set the clock an hour ahead
    assert clock.now() == 1001_000_000
    wall[0], tick[0] = 10.0, 52.0  # and then far back
    assert clock.now() == 1002_000_000
    wall[0], tick[0] = 1004.0, 53.0  # a second ahead: followed slowly
    assert 1003_000_000 < clock.now() < 1004_000_000
    assert WallClock(floor=9_999_000_000).now() == 9_999_000_000  # never behind the clock log


def test_a_wall_clock_that_was_set_is_followed_where_the_broker_agrees(monkeypatch):
    wall, tick = [1000.0], [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: wall[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    assert not clock.doubtful()
    wall[0], tick[0] = 5000.0, 51.0  # it began an hour behind, and was set right
    assert clock.now() == 1001_000_000
    assert clock.doubtful() and not clock.doubtful()  # one question, and not one at each beat
    clock.agree(1500_000_000)  # the broker says less: that much has come, and no more
    assert clock.now() == 1500_000_000
    tick[0] += 11
    assert clock.doubtful()
    clock.agree(9000_000_000)  # the broker says more: then this clock decides
    assert clock.now() == 5000_000_000
    clock.agree(1000_000_000)
    assert clock.now() == 5000_000_000  # never back
    tick[0] += 11
    wall[0] += 11
    assert not clock.doubtful()


def test_a_moment_of_the_clock_log_is_the_time_and_not_the_time_since_the_last_look(monkeypatch):
    """Else a shard that was idle would publish before the public time."""
    tick = [50.0]
    monkeypatch.setattr(clock_module.time, "time", lambda: 950.0 + tick[0])
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    clock = WallClock()
    tick[0] += 40  # nobody looked for forty seconds
    clock.reach(1040_000_000)
    assert clock.now() == 1040_000_000
    clock.reach(1050_000_000)
    assert clock.now() == 1050_000_000  # a wall clock that was set back is not followed


def test_a_clock_with_nothing_to_do_rests_longer_and_never_where_something_is_near(monkeypatch):
    tick = [50.0]
    monkeypatch.setattr(clock_module.time, "monotonic", lambda: tick[0])
    pace = Pace(0.25)
    pace.begin()
    tick[0] += 0.1
    assert round(pace.left(soon=False), 3) == 0.15
    tick[0] += clock_module.QUIET_SECONDS
    assert pace.left(soon=False) == 0  # a beat that took long is followed by the next
    pace.begin()
    assert round(pace.left(soon=False), 3) == clock_module.QUIET_BEAT_SECONDS
    assert round(pace.left(soon=True), 3) == 0.25
    pace.stir()
    assert round(pace.left(soon=False), 3) == 0.25
    slow = Pace(20.0)
    tick[0] += clock_module.QUIET_SECONDS + 1
    slow.begin()
    assert round(slow.left(soon=False), 3) == 20
    # A trigger that comes due during a rest was seen before it, however the wall clock drifts.
    most = clock_module.QUIET_BEAT_SECONDS + clock_module.JUMP_SECONDS / 10
    assert most * 1e6 < clock_module.SOON
