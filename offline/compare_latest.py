"""Comparison of the latest topic with a replay: in order, each record once.

The topic is compacted, so older records of a key may be missing. Those present must be recomputed
records of that key in order, and the last published one must be present.
"""

from __future__ import annotations

import json
from collections import defaultdict

from ..agents.deployment.model import Pipeline
from ..agents.stages.step import Out
from ..formats.events.decode import RawRecord
from ..formats.values.codec import ReleaseCodec
from ..topics.releases import GONE
from .compare import ReleaseCheck, ReplayOutcome, digest, of_out, of_raw


class LatestCheck:
    """The recomputed latest topic of one pipeline, compared with the one that readers see.

    ``releases`` is the check of its release topic, which knows how far each shard has published.
    """

    def __init__(self, pipeline: Pipeline, releases: ReleaseCheck) -> None:
        self._topic = pipeline.latest_topic
        self._codec = pipeline.codec
        self._releases = releases
        self._expected: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        self._reached: dict[bytes, int] = {}
        self._doubled: list[bytes] = []
        self._strange: set[tuple[bytes, bytes]] = set()  # seen by readers of either kind

    def expect(self, out: Out) -> None:
        """Take a recomputed record of the latest topic."""
        key = out.key or b""
        if self._releases.takes(key):
            ordinal = self._releases.ordinal(key, _trigger(out, self._codec))
            self._expected[key].append((ordinal, digest(of_out(out))))

    def take(self, partition: int, record: RawRecord, committed: bool) -> None:
        """Take a record of the topic, in partition order; arguments as for releases."""
        key = record.key or b""
        if not self._releases.takes(key):
            return
        known = [one for _, one in self._expected.get(key, ())]
        found = digest(of_raw(partition, record))
        if found not in known:
            self._strange.add((key, found))
        elif committed:
            place, before = known.index(found), self._reached.get(key, -1)
            if place <= before:
                self._doubled.append(key)
            self._reached[key] = max(place, before)

    def finish(self, outcome: ReplayOutcome) -> None:
        """Judge the records taken; call it after the check of releases has finished."""
        for key in self._doubled:
            outcome.found("doubled", f"{self._topic}: {key!r}")
        for key, _ in sorted(self._strange):
            outcome.found("differing", f"{self._topic}: {key!r}")
        for key, records in self._expected.items():
            published = sum(self._releases.published(key, ordinal) for ordinal, _ in records)
            reached = self._reached.get(key, -1) + 1
            if reached < published:
                outcome.found("lost", f"{self._topic}: the newest record of {key!r}")
            outcome.compared += reached > 0


def _trigger(out: Out, codec: ReleaseCodec) -> int:
    """The trigger of a row, or of a tombstone."""
    if out.value is None:
        return int(dict(out.headers)[GONE])
    return int(json.loads(codec.to_json(out.value))["trigger"])
