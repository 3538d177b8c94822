"""Computes a release from closed state: chooses rows, runs the mechanism, stores changed rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple, TypeAlias

import numpy as np

from ....mechanisms.columns import FIRST, Closed, Part, Releases
from ....mechanisms.keys import Keys
from ....mechanisms.noise import KeyedNoise, Nonces, derive
from ....topics.names import Names
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.layout import rows_of
from ...state.store import Changes, KeyLimit, StateReader
from ..feedback import changed_statuses
from ..step import Step
from .chain import hop_of
from .first_sightings import of_keys, sighted
from .key_rows import DueKeys, KeyRows, due_entries, due_keys, named, united
from .nonces import renewals
from .partial_sums import PartialSums

CHUNK = 50_000  # keys read in one step
CHUNK_BYTES = 8 << 20  # of these keys
NoiseKey: TypeAlias = bytes | Callable[[Trigger], bytes]
"""The noise key of a pipeline, or a function that returns the key of a trigger's epoch."""
_EVERY = KeyLimit(1 << 62, 1 << 62)
SHARED = b""  # the row that belongs to a whole shard


class Chosen(NamedTuple):
    """The input of one computation."""

    keys: Keys  # keys of the rows, in canonical order
    part: Part  # exact sums of the micro-batch for some of them
    end: bytes | None = None  # the last key of this chunk; None: everything has been read
    known: Changes | None = None  # rows of the pairs counted in these sums


class Computation:
    """The mechanism of one pipeline at one aggregate shard."""

    def __init__(self, pipeline: Pipeline, partition: int, names: Names, secret: NoiseKey) -> None:
        self._pipeline = pipeline
        self._partition = partition
        self._names = names
        self._secret = secret
        self._mechanism, self._traits = pipeline.mechanism, pipeline.traits
        # Chunks are safe only if each row is released independently. If rows depend on each other,
        # a chunk would be another content under the same noise.
        self._indivisible = self._traits.load == "all" or self._traits.routing == "single"
        self._rows = KeyRows(pipeline.traits)
        self._due = DueKeys(pipeline, partition)

    def whole(
        self, reader: StateReader, trigger: Trigger, sums: PartialSums, nonces: Nonces
    ) -> Chosen | None:
        """Choose everything that a release reads, given the complete sums of its micro-batch.

        Returns:
            None if that is too much for one step; the caller then calls `chunk` until ``end`` is
            None.
        """
        place, limit = (trigger.window, trigger.index), KeyLimit(CHUNK, CHUNK_BYTES)
        if not (sums.small(place, limit) or self._indivisible):
            return None
        part, known = sums.whole(reader, place), Changes()
        if self._traits.pairs:
            part, known = sighted(reader, trigger.window, part)
        most = _EVERY if self._indivisible else limit
        every = _renewed(trigger, nonces)
        keys = self._due.keys(reader, trigger, part, most, every)
        if keys is None:
            return None
        return Chosen(keys, part._replace(totals=sums.totals(trigger.ordinal)), known=known)

    def chunk(
        self,
        reader: StateReader,
        trigger: Trigger,
        begun: bytes | None,
        sums: PartialSums,
        nonces: Nonces,
    ) -> Chosen:
        """Choose the next chunk of a large micro-batch, in key order.

        Args:
            begun: last key of the previous chunk; None for the first chunk.
        """
        place, limit = (trigger.window, trigger.index), KeyLimit(CHUNK, CHUNK_BYTES)
        due = self._due.due(reader, trigger, begun, limit, _renewed(trigger, nonces))
        seeds = self._due.seeds(trigger, begun)
        ends = [sums.end(place, begun, limit), limit.end(due), limit.end(seeds)]
        end = min((e for e in ends if e is not None), default=None)
        part = sums.chunk(reader, place, begun, end)
        part = of_keys(part) if self._traits.pairs else part
        further = [k for k in (*due, *seeds) if end is None or k <= end]
        totals = sums.totals(trigger.ordinal)
        if begun is not None and len(totals):
            # The first chunk has added the totals to the shared row, which every chunk reads.
            # Adding them twice would put another content under the same noise labels, and the
            # difference of the two releases would be exact.
            further.append(SHARED)
            totals = np.zeros_like(totals)
        return Chosen(united(part, further), part._replace(totals=totals), end)

    def settle(
        self,
        reader: StateReader,
        trigger: Trigger,
        begun: bytes | None,
        sums: PartialSums,
        step: Step,
    ) -> bytes | None:
        """Count the new pairs in the next range of names; return its end, None for the final range.

        Their sums by key become one more run of the micro-batch, which `chunk` reads. A key's name
        sorts before those of its pairs, so no later range reads these sums.

        Args:
            begun: last name of the previous range; None for the first range.
            step: step to which the sums and the newly known pairs are added.
        """
        place, limit = (trigger.window, trigger.index), KeyLimit(CHUNK, CHUNK_BYTES)
        end = sums.end(place, begun, limit)
        found = sighted(reader, trigger.window, sums.chunk(reader, place, begun, end))
        step.rows.update(found.rows)
        if len(found.part.key):
            step.rows.update(sums.write(place, found.part))
        return end

    def run(
        self,
        reader: StateReader,
        trigger: Trigger,
        chosen: Chosen,
        nonces: Nonces,
        step: Step,
    ) -> Releases:
        """Run the mechanism on closed state.

        Args:
            chosen: result of `whole` or `chunk`.
            nonces: segments of the window, including this trigger's.

        Returns:
            Released columns; their values are on the mechanism's public grid.
        """
        step.rows.update(chosen.known or {})
        carries = self._traits.carries
        # Made once, as one object for each key costs more than all of its numbers.
        before = trigger.window - carries
        names, first = named(before, chosen.keys), trigger.index == 1 and not carries
        rows = self._rows.load(reader, before, chosen.keys, first, names)
        rows, seeded = self._due.seeded(trigger, rows)
        self._rows.store(trigger.window, seeded, step)
        if not _renewed(trigger, nonces):  # otherwise every row is predicted anew, due or not
            rows = self._due.live(trigger, rows, chosen.part)
        hop = hop_of(reader, self._pipeline, trigger, step.rows) if carries else FIRST
        closed = Closed(rows, chosen.part, trigger.index, renewals(nonces), hop)
        changed, releases = self._mechanism.release(closed, self._noise(trigger, nonces))
        known = changed.key is chosen.keys and not carries
        self._rows.store(trigger.window, changed, step, names if known else None)
        if self._traits.feedback:
            topic, shard = self._names.selected(self._pipeline.name), self._partition
            step.out += changed_statuses(topic, reader, trigger, shard, releases, step.rows)
        # Delete this trigger's index entries only as their rows are read: later chunks find their
        # rows through their own entries.
        if len(chosen.keys):
            last, due = chosen.keys[-1], due_keys(reader, trigger.window, trigger.index, None)
            if passed := list(takewhile(lambda key: key <= last, due)):
                prefix, gone = rows_of(before), set(names)
                passed = [key for key in passed if prefix + key in gone]
                step.local |= due_entries(trigger.window, trigger.index, passed)
        return releases

    def _noise(self, trigger: Trigger, nonces: Nonces) -> KeyedNoise:
        """Make the noise of one release, bound to the charge that paid for it and to its nonces."""
        pipeline, secret = self._pipeline, self._secret
        return KeyedNoise(
            derive(secret if isinstance(secret, bytes) else secret(trigger), "noise"),
            charge=bytes.fromhex(trigger.charge),
            mechanism=pipeline.config["mechanism"]["kind"],
            config=pipeline.config_hash.encode(),
            pipeline=pipeline.name,
            window=str(trigger.window),
            nonces=nonces,
        )


def _renewed(trigger: Trigger, nonces: Nonces) -> bool:
    """Whether the noise has a new nonce from this trigger on.

    Rows hold predictions made from future noise. A new nonce changes that noise, so every row is
    predicted anew.
    """
    return trigger.index in renewals(nonces)
