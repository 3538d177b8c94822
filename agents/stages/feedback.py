"""Feeds released keys back to bound shards, for mechanisms that adapt to public releases."""

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
"""Looks up public statuses: called with pipeline, window, keys and the last trigger that counts."""


def changed_statuses(
    topic: str, reader: StateReader, trigger: Trigger, shard: int, releases: Releases, rows: Changes
) -> Iterator[Out]:
    """Yield records of keys whose public status has changed.

    Args:
        releases: releases with the status of each key.
        rows: changes of the step, to which the new statuses are added.
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
    """Make the last record of a trigger and shard, which marks its statuses as complete."""
    return Out(topic, 0, None, encode(Selected(trigger.window, trigger.index, shard, [], [], True)))


class Feedback:
    """Public statuses of released keys, read from the selected topic of one pipeline.

    Args:
        shards: number of aggregate shards; each marks the end of a trigger with a record.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._status: dict[int, dict[bytes, list[tuple[int, int]]]] = defaultdict(dict)
        self._done: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._floor: int | None = None  # windows before it have been dropped

    def apply(self, value: bytes) -> int:
        """Take one record of the selected topic; return its window.

        Raises:
            EngineError: ``value`` is not a record of a selected topic.
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
            trigger: index in the window, from 1; below 1 there is nothing to wait for.
        """
        return trigger < 1 or len(self._done.get((window, trigger), ())) == self._shards

    def statuses(self, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        """Look up the (k,) public statuses of keys; 0 if a key has none.

        Args:
            keys: the k keys.
            as_of: index of the last trigger whose releases count; ignoring later ones makes the
                answer independent of how far this process has read.
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
        """Accept records of all windows again; return the window before which some are missing."""
        floor, self._floor = self._floor, None
        return floor

    def recall(self, fresh: Feedback, below: int) -> None:
        """Fill in dropped windows from feedback that has read the topic again.

        Shards run meanwhile and may need windows from ``below`` on, so these are not touched.
        Records that came since `reopen` may be in both.

        Args:
            fresh: feedback of the same topic, read from its beginning.
            below: result of `reopen`.
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
    """Make empty feedback, by name, for every pipeline whose mechanism needs it."""
    wanting = (p for p in deployment.pipelines if p.traits.feedback)
    return {p.name: Feedback(p.cells_partitions) for p in wanting}


def lookup(feedback: Mapping[str, Feedback]) -> Statuses:
    """Make the function by which the bound stage looks up statuses of any pipeline."""

    def statuses(pipeline: str, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        return feedback[pipeline].statuses(window, keys, as_of)

    return statuses


def needed_from(
    clock: ClockLog, pipeline: str, clocks: Sequence[int], closed: Sequence[int]
) -> int | None:
    """Find the first window whose feedback shards may still need; None if it is unknown.

    Args:
        clocks: committed next clock entry of each ingest shard.
        closed: committed last closed trigger of each bound shard.
    """
    over = clock.over(pipeline)
    if not clocks and not closed:
        return over.floor(1 << 62)  # no shard here needs it; a new shard has it read again
    floors = [over.floor(ordinal) for ordinal in closed]
    if clocks:
        timeline = clock.timelines(min(clocks))[pipeline]
        floors.append(None if timeline.first is None else timeline.floor)
    known = [floor for floor in floors if floor is not None]
    return min(known) if len(known) == len(floors) else None
