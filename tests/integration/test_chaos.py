"""Exactness under faults, on the real broker: whatever is killed, replay and judge agree."""

from __future__ import annotations

import pytest
from hushstream.deploy.broker import Broker

from .local import BROKER, TOLD, Pace, run_chaos

POINTS = 30


@pytest.mark.broker
@pytest.mark.slow
def test_every_release_survives_faults_at_random_points_byte_for_byte(tmp_path):
    """Kills, wiped data, zombies, a moved clock, a dead broker: nothing lost, doubled, changed."""
    with Broker(quiet=True, overrides=BROKER) as broker:
        found = run_chaos(Pace(POINTS), 20190301, tmp_path, broker)
    assert sum(found["faults"].values()) == POINTS
    assert found["stuck"] == 0, "\n".join(found["unreleased"])
    assert (found["lost"], found["doubled"], found["differing"]) == (0, 0, 0), found["problems"]
    # A worker that stood still was restarted; it must have said what stood.
    assert all(TOLD in line for line in found["complaints"]), found["complaints"]
    assert found["wrong_charges"] == 0
    assert found["objected"] == 0, found["objections"]
    assert found["died"] == [], "\n".join(found["died"])
    # All of it has happened: the comparison was about something.
    assert found["triggers"] > 40 and found["compared"] > 1_000 and found["routed"] > 10_000
    assert found["judged"] > 500 and found["judged_triggers"] >= found["triggers"]
    assert found["charges"] > 5 and found["trimmed"] > 100
