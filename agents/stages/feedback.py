"""Released keys fed back to bound shards, for mechanisms that adapt to what is public."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...mechanisms.columns import Releases
from ...mechanisms.keys import Keys
from ...topics.records import Selected, Trigger, decode_selected, encode
from ..clock.log import ClockLog
from ..deployment.model import Deployment
from ..state.layout import statuses_of
from ..state.store import Changes, KeyLimit, Overlay, StateReader
from .step import Out

_PER_RECORD = KeyLimit(2_000, 400_000)  # keys of one record, which is half as long again

Statuses = Callable[[str, int, Keys, int], NDArray[np.int32]]
"""The public status of keys, given pipeline, window, keys and the trigger as of which to look."""


def changed_statuses(
    topic: str, reader: StateReader, trigger: Trigger, shard: int, releases: Releases, rows: Changes
) -> Iterator[Out]:
    """Yield records of keys whose public status has changed.

    Args:
        releases: releases with the status of each key.
        rows: changes of the step; takes the new statuses.
    """
    prefix = statuses_of(trigger.window)
    keys = releases.key.tolist()
    before = Overlay(reader, rows).get_many([prefix + key for key in keys])
    values = releases.status.astype("<i4").tobytes()
    now = [values[i : i + 4] for i in range(0, len(values), 4)]
    fresh = [(k, n) for k, b, n in zip(keys, before, now, strict=True) if b != n]
    rows.update((prefix + key, value) for key, value in fresh)
    while fresh:
        fit = _PER_RECORD.fit([key for key, _ in fresh[: _PER_RECORD.keys]])
        some, fresh = fresh[:fit], fresh[fit:]
        listed = [base64.b64encode(key).decode() for key, _ in some]
        status = [int.from_bytes(value, "little", signed=True) for _, value in some]
        record = Selected(trigger.window, trigger.index, shard, listed, status, False)
        yield Out(topic, 0, None, encode(record))


def finished(topic: str, trigger: Trigger, shard: int) -> Out:
    """Make the last record of a trigger and shard: all statuses have been sent."""
    return Out(topic, 0, None, encode(Selected(trigger.window, trigger.index, shard, [], [], True)))


class Feedback:
    """Public statuses of released keys, as the selected topic of one pipeline gives them.

    Args:
        shards: number of aggregate shards, each of which ends a trigger with a record.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._status: dict[int, dict[bytes, list[tuple[int, int]]]] = defaultdict(dict)
        self._done: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._floor: int | None = None  # what came before it has been dropped

    def apply(self, value: bytes) -> int:
        """Take one record of the selected topic; return its window.

        Raises:
            EngineError: ``value`` is not such a record.
        """
        record = decode_selected(value)
        if self._floor is not None and record.window < self._floor:
            return record.window
        if record.done:
            self._done[record.window, record.trigger].add(record.shard)
            return record.window
        known = self._status[record.window]
        try:
            keys = [base64.b64decode(text, validate=True) for text in record.keys]
        except ValueError as error:
            raise EngineError("a record of the selected topic is damaged: not a key") from error
        if any(not 0 <= status < 1 << 31 for status in record.status):
            raise EngineError("a record of the selected topic is damaged: not a status")
        for key, status in zip(keys, record.status, strict=True):
            known.setdefault(key, []).append((record.trigger, status))
        return record.window

    def complete(self, window: int, trigger: int) -> bool:
        """Whether all shards have released a trigger.

        Args:
            trigger: its index in the window, from 1; below 1 there is nothing to wait for.
        """
        return trigger < 1 or len(self._done.get((window, trigger), ())) == self._shards

    def statuses(self, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        """Look up the (k,) public statuses of keys; 0 where a key has none.

        Args:
            keys: k of them.
            as_of: index of the last trigger whose releases count; later ones are ignored, so that
                the answer does not depend on how far this process has read.
        """
        known = self._status.get(window)
        out = np.zeros(len(keys), np.int32)
        if not known:
            return out
        for row, key in enumerate(keys.tolist()):
            for trigger, status in known.get(key, ()):
                if trigger <= as_of:
                    out[row] = status
        return out

    def forget(self, below: int) -> None:
        """Drop the statuses of windows before ``below``, and ignore later records of them."""
        if self._floor is not None and below <= self._floor:
            return
        self._floor = below
        for window in [w for w in self._status if w < below]:
            del self._status[window]
        for place in [p for p in self._done if p[0] < below]:
            del self._done[place]

    def reopen(self) -> int | None:
        """Take records of all windows again; return the window before which some are missing."""
        floor, self._floor = self._floor, None
        return floor

    def recall(self, fresh: Feedback, below: int) -> None:
        """Fill in forgotten windows from feedback that has read the topic again.

        Shards run meanwhile, so windows from ``below`` on, which they may need, are not touched.
        Records that came since `reopen` may be in both.

        Args:
            fresh: feedback of the same topic, read from its beginning.
            below: the answer of `reopen`.
        """
        for window in [w for w in fresh._status if w < below]:
            mine = self._status[window]
            for key, history in fresh._status[window].items():
                mine[key] = sorted({*history, *mine.get(key, ())})
        for place in [p for p in fresh._done if p[0] < below]:
            self._done[place] |= fresh._done[place]

    def blank(self) -> Feedback:
        """Make empty feedback for the same number of shards."""
        return Feedback(self._shards)


def feedback_of(deployment: Deployment) -> dict[str, Feedback]:
    """Make empty feedback for every pipeline whose mechanism wants it, by name."""
    wanting = (p for p in deployment.pipelines if p.traits.feedback)
    return {p.name: Feedback(p.cells_partitions) for p in wanting}


def lookup(feedback: Mapping[str, Feedback]) -> Statuses:
    """Make the function with which the bound stage looks up statuses of any pipeline."""

    def statuses(pipeline: str, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        return feedback[pipeline].statuses(window, keys, as_of)

    return statuses


def needed_from(
    clock: ClockLog, pipeline: str, clocks: Sequence[int], closed: Sequence[int]
) -> int | None:
    """The first window whose feedback shards may still need; None if that cannot be told.

    Args:
        clocks: next clock entry of each ingest shard, as committed.
        closed: last trigger that each bound shard has closed, as committed.
    """
    over = clock.over(pipeline)
    if not clocks and not closed:
        return over.floor(1 << 62)  # not asked for here; a new shard has it read again
    floors = [over.floor(ordinal) for ordinal in closed]
    if clocks:
        timeline = clock.timelines(min(clocks))[pipeline]
        floors.append(None if timeline.first is None else timeline.floor)
    known = [floor for floor in floors if floor is not None]
    return min(known) if len(known) == len(floors) else None
