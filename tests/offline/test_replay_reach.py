"""The reach of a replay from a snapshot: what can be recomputed, and what ended before."""

from __future__ import annotations

import pytest
from hushstream.agents.deployment.cluster.growth import with_joined
from hushstream.errors import EngineError
from hushstream.offline.replay_reach import Reach
from hushstream.topics.records import PipelineStanding, Snapshot

from ..support import DAY, ORIGIN, deployment, trigger

MADE = deployment()


def reach(end: int | None) -> Reach:
    """The reach from a snapshot nine days after the origin, with no later trigger."""
    standing = PipelineStanding(0, 36, 9, end=end)
    said = Snapshot(ORIGIN + 9 * DAY, {"events": [5]}, {"p": standing}, 1, "")
    return Reach(MADE, 7, said, [])


def test_a_pipeline_that_ended_before_the_snapshot_has_nothing_to_recompute() -> None:
    """A deployment can be replayed although one of its pipelines has retired."""
    assert reach(9).triggers("p") == [] and reach(10).triggers("p") == []
    for end in (None, 11):  # the tenth window may still be released
        with pytest.raises(EngineError, match="replay later"):
            reach(end).triggers("p")


def test_an_end_goes_on_into_what_is_recomputed() -> None:
    standing = reach(12).standing()
    assert standing is not None and standing[1].pipelines["p"].end == 12


def test_a_growth_has_the_new_numbers_of_a_replay_that_begins_at_a_snapshot():
    grown = with_joined(MADE, {"p": (0, 3, 37, 39)})
    pipeline = grown.pipelines[0]
    window = reach(None).first("p")
    fired = [trigger(pipeline, n, [9] * 4, window=window or 0) for n in range(37, 41)]
    standing = PipelineStanding(0, 36, 9)
    said = Snapshot(ORIGIN + 9 * DAY, {"events": [5, 2]}, {"p": standing}, 1, "")
    partial = Reach(grown, 7, said, fired)
    assert [t.ordinal for t in partial.triggers("p")] == [1, 2, 3, 4]
    assert partial.renumbered(grown).pipelines[0].joined == (0, 0, 1, 3)
    assert [partial.begin("events", n, 6) for n in range(3)] == [5, 2, 6]
    whole = Reach(grown, 0, None, fired)
    assert whole.renumbered(grown).pipelines[0].joined == (0, 3, 37, 39)


def test_purses_are_known_from_the_beginning_of_a_period_on():
    """Begun in mid-period, a replay would have full purses and accept refused records."""
    for period, first in ((', period = "7d"', 14), (', period = "1d"', 10), ("", None)):
        cap = f"per_unit = {{ epsilon = 12, delta = 2e-4{period} }}"
        capped = deployment(swap={"delta = 1e-4 }": f"delta = 1e-4, {cap} }}"})
        standing = {"p": PipelineStanding(0, 36, 9)}
        said = Snapshot(ORIGIN + 9 * DAY, {"events": [5]}, standing, 1, "")
        fired = [trigger(capped.pipelines[0], n, [9], window=(n - 1) // 4) for n in range(37, 65)]
        partial = Reach(capped, 7, said, fired)
        if first is None:
            with pytest.raises(EngineError, match=r"has no period: .* Replay the other pipelines"):
                partial.triggers("p")
            continue
        assert partial.first("p") == first
        assert min(t.window for t in partial.triggers("p")) == first
    whole = Reach(capped, 0, None, fired)
    assert whole.first("p") is None and len(whole.triggers("p")) == len(fired)
