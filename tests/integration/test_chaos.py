"""Exactness under faults, on the real broker: replay and judge agree after any kill."""

from __future__ import annotations

import pytest
from hushstream.deploy.broker import Broker

from .local import BROKER, TOLD, Pace, run_chaos

SIX = 6, 20190320, 300  # a pause, a kill, a dead broker, a moved clock, wiped data
THIRTY = 30, 20190301, 600


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    "points, seed, rate", [SIX, pytest.param(*THIRTY, marks=pytest.mark.thorough)]
)
def test_every_release_survives_faults_at_random_points_byte_for_byte(tmp_path, points, seed, rate):
    """Kills, wiped data, zombies, a moved clock, a dead broker: exactly once, no byte differs."""
    with Broker(quiet=True, overrides=BROKER) as broker:
        found = run_chaos(Pace(points, rate=rate), seed, tmp_path, broker)
    assert sum(found["faults"].values()) == points
    assert set(found["faults"]) >= {"kill", "wipe", "pause", "clock", "broker"}
    assert found["stuck"] == 0, "\n".join(found["unreleased"])
    assert (found["lost"], found["doubled"], found["differing"]) == (0, 0, 0), found["problems"]
    # A stalled worker was restarted; it must have reported what stalled.
    assert all(TOLD in line for line in found["complaints"]), found["complaints"]
    assert found["wrong_charges"] == 0
    assert found["objected"] == 0, found["objections"]
    assert found["unproved"] == ""
    assert found["left_out"] == []  # an auditor could open what was forgotten
    assert found["died"] == [], "\n".join(found["died"])
    # The faults have happened, and there was something to compare.
    assert found["triggers"] > 4 * points / 3 and found["compared"] > 100 * points / 3
    assert found["routed"] > 1_000 * points / 3
    assert found["judged"] > 50 * points / 3 and found["judged_triggers"] >= found["triggers"]
    assert found["charges"] > points / 6 and found["trimmed"] > 10 * points / 3
