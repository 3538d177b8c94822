"""The reach of a replay from a snapshot: what can be recomputed, and what has ended before."""

from __future__ import annotations

import pytest
from hushstream.agents.offline.replay_reach import Reach
from hushstream.errors import EngineError
from hushstream.topics.records import PipelineStanding, Snapshot

from ...support import DAY, ORIGIN, deployment

MADE = deployment()


def reach(end: int | None) -> Reach:
    """From a snapshot nine days after the origin, with no trigger after it."""
    standing = PipelineStanding(0, 36, 9, end=end)
    said = Snapshot(ORIGIN + 9 * DAY, {"events": [5]}, {"p": standing}, 1, "")
    return Reach(MADE, 7, said, [])


def test_a_pipeline_that_ended_before_the_snapshot_has_nothing_to_recompute() -> None:
    """A deployment is replayed although nothing of a retired pipeline can be any more."""
    assert reach(9).triggers("p") == [] and reach(10).triggers("p") == []
    for end in (None, 11):  # the tenth window may still be released
        with pytest.raises(EngineError, match="replay later"):
            reach(end).triggers("p")


def test_an_end_goes_on_into_what_is_recomputed() -> None:
    standing = reach(12).standing()
    assert standing is not None and standing[1].pipelines["p"].end == 12
