"""Noise nonces of an aggregate shard: drawn at every opening, committed with the content.

A shard draws a fresh nonce whenever its state is opened. The first trigger that it then closes in a
window begins a new *segment* of that window: (trigger, nonce). The segments of a window are one row
of the shard's changelog. The transaction that closes the trigger writes that row together with the
exact content, before anything computed under the nonce leaves the shard; a stored segment never
changes. After a crash, nonce and content are both there. After a rewind to an earlier point, both
are lost, and the trigger is closed again under another nonce.

A nonce is a label, not a secret: manifests publish it, and replay reads it there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ....errors import EngineError
from ....mechanisms.noise import NONCE, STEADY, Nonces
from ....topics.records import Trigger
from ...state.layout import nonces_of
from ...state.store import Changes, StateReader

Nonce = Callable[[Trigger], bytes]
"""Returns the nonce under which one opening of a shard closes a trigger."""

Opening = Callable[[str, int], Nonce]
"""The source of nonces; called with pipeline and shard at every opening."""


def drawn(random: Callable[[int], bytes]) -> Opening:
    """Draw a fresh nonce at every opening; ``random`` returns the given number of random bytes."""

    def opening(pipeline: str, shard: int) -> Nonce:
        nonce = random(NONCE)
        return lambda trigger: nonce

    return opening


def steady(pipeline: str, shard: int) -> Nonce:
    """Always use the same nonce: for simulations, whose logs cannot be rewound."""
    return lambda trigger: STEADY[0][1]


def load(reader: StateReader, window: int) -> Nonces:
    """Read the committed segments of a window; empty until its first trigger is closed."""
    (row,) = reader.get_many([nonces_of(window)])
    return () if row is None else msgspec.msgpack.decode(row, type=Nonces)


def close(reader: StateReader, trigger: Trigger, nonce: bytes, rows: Changes) -> Nonces:
    """Add the nonce (16 bytes) of a trigger to the step that closes it; return all segments.

    Raises:
        EngineError: the nonces of earlier triggers are missing.
    """
    before = load(reader, trigger.window)
    if not before and trigger.index != 1:
        raise EngineError(
            f"pipeline {trigger.pipeline!r}: the state has no noise nonces for its open window; "
            "it was written by another version: finish the epoch with that one"
        )
    if before and before[-1][1] == nonce:
        # The same opening closed the previous trigger, so no rewind can lie in between: the segment
        # goes on, and predictions made under it stay valid.
        return before
    segments = (*before, (trigger.index, nonce))
    rows[nonces_of(trigger.window)] = msgspec.msgpack.encode(segments)
    return segments


def renewals(segments: Nonces) -> tuple[int, ...]:
    """List the triggers at which the nonce changed."""
    return tuple(begin for begin, _ in segments[1:])
