"""A worker that handles small chunks and kills itself: run as a program by a test.

    python faulty.py "FAULT NUMBER" worker ...

FAULT is ``before`` or ``after``: the commit of the NUMBERth transaction that publishes a release.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import hushstream.agents.stages.aggregate.computation as computation
import hushstream.agents.stages.aggregate.stage as aggregate
import hushstream.topics.frames as frames
from hushstream.agents.stages.step import Step
from hushstream.agents.worker.shards.shard import Shard
from hushstream.cli.group import main

CHUNK, RELEASED = 20, 5


def die() -> None:
    """End like a crash."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(fault: str, number: int) -> None:
    """Die at a transaction of this process that publishes."""
    transact, left = Shard._transact, number

    async def faulty(self: Shard, step: Step) -> None:
        nonlocal left
        public = any(out.topic.endswith(".releases.v1") for out in step.out)
        left -= public
        hit = public and left == 0
        if hit and fault == "before":
            producer: Any = self._producers.public

            async def commit() -> None:
                await producer.flush()
                die()

            producer.commit_transaction = commit
        await transact(self, step)
        if hit:
            die()

    Shard._transact = faulty  # type: ignore[method-assign]


if __name__ == "__main__":
    computation.CHUNK, aggregate.RELEASED, frames.LIMIT = CHUNK, RELEASED, 2000
    if sys.argv[1]:
        kind, place = sys.argv[1].split()
        arm(kind, int(place))
    del sys.argv[1]
    main()
