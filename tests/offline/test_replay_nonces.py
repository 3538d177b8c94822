"""A replay takes nonces only from manifests."""

from __future__ import annotations

import random

import pytest
from hushstream.agents.stages.aggregate.nonces import Nonce, Opening
from hushstream.agents.stages.step import Out
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine, Recorded
from hushstream.offline.replay_nonces import PublishedNonces
from hushstream.topics.records import Trigger

from ..agents.stages.aggregate.test_held_release import log_of
from ..support import NAMES, SECRET, deployment, start, trigger

MADE = deployment(partitioner="murmur2", cells=2)
(P,) = MADE.pipelines
LOG = log_of(6, 40)


def renewed(every: int) -> Opening:
    """Nonces of shards that reopen every ``every`` triggers."""

    def opening(pipeline: str, shard: int) -> Nonce:
        def nonce(one: Trigger) -> bytes:
            return random.Random(f"{shard} {one.window} {one.index // every}").randbytes(16)

        return nonce

    return opening


def run(opening: Opening) -> list[Out]:
    records = [start(P), *(trigger(P, n, [len(LOG) * n // 4]) for n in range(1, 5))]
    log = list(enumerate(records))
    engine = OfflineEngine(
        MADE, NAMES, SECRET, {("events", 0): LOG}, log, Recorded(opening=opening)
    )
    engine.run()
    return engine.outs[P.release_topic]


def record(out: Out, offset: int) -> RawRecord:
    return RawRecord(offset, out.timestamp or 0, out.key, out.value, ())


def test_what_was_published_is_recomputed() -> None:
    outs, known = run(renewed(2)), PublishedNonces(MADE)
    for offset, out in enumerate(outs):
        known.take(record(out, offset))
    assert run(known.opening) == outs
    assert run(PublishedNonces(MADE).opening) != outs
    assert run(renewed(3)) != outs


@pytest.mark.parametrize("value", [b"", b"{}", b'{"trigger": 1, "nonce": "zz"}', b"\xff", None,
                                   b'{"trigger": 1, "nonce": "00"}'])  # fmt: skip
def test_what_is_no_manifest_of_ours_is_passed_over(value: bytes | None) -> None:
    known = PublishedNonces(MADE)
    key = b"p|2019-03-01T00:00:00Z|manifest:0"
    known.take(RawRecord(0, 0, key, value, ()))
    known.take(RawRecord(1, 0, None, value, ()))
    assert known.opening("p", 0)(trigger(P, 1, [0])) == bytes(16)
