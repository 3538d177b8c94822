"""Attributes of units at the first stage: the newest record of each unit, as of the clock.

A clock record covers raw records, and records of the attribute topic. A raw record is joined with
the attributes covered by the first clock record that covers the raw record: all of these are
applied before it, and no later ones. So the key of a record is a function of three logs, however
far a worker had read when it was stopped.

*Statement.* Neighbours are two streams: one has all records of one unit in one epoch, and perhaps
its attributes, the other has none of them; all else is the same in both, on the same side of every
cut. Then their accepted records differ by records of that unit alone, within the bound that it has
without attributes, so every sensitivity computed from the bound stands.

*Proof.* A row is kept under the digest of the unit that its record names, and `complete` reads it
under the digest of the record whose key it completes: nothing else reads rows, and no setting can
name another digest. Hence the key of a record is a function of that record, of its own unit's
attributes (as they are, or the case of a choice that they fulfil), and of cuts. So every other
record has the same key with and without the unit's records and attributes. The unit adds some
sequence of records with keys, and the bound holds for every such sequence, whatever the keys are. A
unit without attributes has a key too (``otherwise``): its records go to the same topic, so that its
lack of attributes does not show. ∎

A tombstone names its unit by text, which may be that of a text and of a whole number: it then
removes the attributes of both units, and belongs to neither: both neighbours have it.

If another unit's attributes completed a record's key, removing that unit would move records of the
first to other keys, and no bound on one unit's records would cover that. If only a unit's
attributes differ, its records are replaced by others: one unit removed and one added, 2ε in each
epoch that has records of it, other epochs than the one above included.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ....formats.events.attributes import AttributeDecoder, completed, values_of
from ....formats.events.keys import MAX_KEY
from ....formats.events.raw import RawRecord
from ....formats.events.reasons import Bad
from ....formats.events.views import View
from ....mechanisms.columns import compact
from ....mechanisms.keys import Keys
from ....topics.records import ClockRecord
from ...deployment.model import Attributed, Attributes
from ...state.layout import ATTRIBUTED, SAID, attributes_of
from ...state.rows.columns import RowColumns
from ...state.store import StateReader
from ..bound.codec import distinct
from ..step import Step
from .schemas import KnownSchemas, SchemaSource
from .unit_digests import UnitDigests

AT_ONCE = 40_000  # records of one step
_INTEGER = re.compile("0|-?[1-9][0-9]*")


class AttributeLog(Protocol):
    """Reads attribute topics, in addition to the topics that feed the shards."""

    def read(
        self, topic: str, partition: int, begin: int, end: int
    ) -> tuple[Sequence[RawRecord], int] | None:
        """Return records in [begin, end) and how far they are complete; None: still to come."""


class NoAttributes:
    """An empty log, for inputs without attributes."""

    def read(
        self, topic: str, partition: int, begin: int, end: int
    ) -> tuple[Sequence[RawRecord], int] | None:
        """Return no records."""
        return [], end


class Refused(NamedTuple):
    """Records that state no attributes, or incomplete ones, each with the reason."""

    records: Sequence[RawRecord]
    bad: Bad


class UnitAttributes:
    """The attributes of the units of one raw partition.

    The state is a row for each unit, and a row with the offset up to which the topic was applied.
    Their keys contain a digest of the list of kept attributes: if pipelines need more attributes,
    the whole topic is read again.

    Args:
        units: digests of units, those of the raw partition, which has the same units.
        schemas: source of schemas by id, for records that carry one.
    """

    def __init__(
        self, given: Attributes, partition: int, units: UnitDigests, log: AttributeLog,
        schemas: SchemaSource,
    ) -> None:  # fmt: skip
        self.topic, self._partition = given.topic, partition
        self._units, self._log = units, log
        self._paths = given.paths
        self._decoder = AttributeDecoder(given.fields, given.paths, given.compared)
        kept = "\n".join([given.topic, *given.fields.unit, *given.paths])
        version = hashlib.sha256(kept.encode()).digest()[:8]
        self._prefix, self._place = attributes_of(version), ATTRIBUTED + version
        asked = KnownSchemas(schemas, given.topic, partition, SAID)
        self._schemas = asked if given.fields.framed else None
        self._held: list[RawRecord] = []
        self._applied: int | None = None
        self._reached = 0  # offset read so far
        self._usable = 0  # offset before the first record whose schema is pending

    def reopen(self) -> None:
        """Forget what was read: the state has the applied offset."""
        self._held, self._applied = [], None
        if self._schemas is not None:
            self._schemas.reopen()

    def covered(self, record: ClockRecord) -> int:
        """Offset below which a clock record covers the topic; 0 if it does not mention it."""
        ends = getattr(record, "offsets", {}).get(self.topic, ())
        return int(ends[self._partition]) if self._partition < len(ends) else 0

    def ready(self, reader: StateReader, entries: Sequence[tuple[int, ClockRecord]]) -> int:
        """Read on as far as the given clock records cover; return how many of these can be used."""
        if self._applied is None:
            (row,) = reader.get_many([self._place])
            self._applied = self._reached = 0 if row is None else int.from_bytes(row, "big")
        ends = np.maximum.accumulate([self.covered(record) for _, record in entries] or [0])
        if ends[-1] > self._reached and len(self._held) < AT_ONCE:
            found = self._log.read(self.topic, self._partition, self._reached, int(ends[-1]))
            if found is not None:
                self._held.extend(found[0])
                self._reached = found[1]
        self._usable = self._reached
        if self._schemas is not None:
            _, self._usable = self._schemas.ready(reader, self._held, self._reached)
        return int(np.searchsorted(ends, self._usable, side="right")) if entries else 0

    @property
    def ahead(self) -> bool:
        """Whether usable records wait to be applied."""
        return self._applied is not None and self._usable > self._applied

    def apply(self, reader: StateReader, end: int | None, step: Step) -> Refused:
        """Apply the records below an offset to the state; None: all usable records.

        Args:
            step: step that receives changed rows.
        """
        end = self._usable if end is None else end
        if self._applied is None or end <= self._applied:
            return Refused([], {})
        mine = [one for one in self._held if one.offset < end]
        self._held = self._held[len(mine) :]
        self._applied = end
        step.rows[self._place] = end.to_bytes(8, "big")
        return Refused(mine, self._take(mine, step)) if mine else Refused([], {})

    def _take(self, records: Sequence[RawRecord], step: Step) -> Bad:
        known = None if self._schemas is None else self._schemas.known
        stated = self._decoder.decode(records, known)
        if self._schemas is not None:
            step.rows |= self._schemas.rows(records)
        digests, stray = self._units.look(stated.units)
        bad = stated.bad | {
            row: "wrong_partition" for row in np.flatnonzero(stray).tolist()
            if row not in stated.bad
        }  # fmt: skip
        good = [row for row in range(len(records)) if row not in bad]
        rows, named = [stated.rows[row] for row in good], digests[good]
        # A record's key does not show whether its unit is a text or a number.
        numbers = [
            (n, int(stated.units[row])) for n, row in enumerate(good)
            if not stated.rows[row] and _whole(stated.units[row])
        ]  # fmt: skip
        if numbers:
            also, _ = self._units.look([unit for _, unit in numbers])
            named = np.concatenate([named, also])
            rows += [b""] * len(numbers)
            order = np.argsort([*range(len(good)), *(n for n, _ in numbers)], kind="stable")
            named, rows = named[order], [rows[n] for n in order.tolist()]
        if rows:
            keys, unit = distinct(named, self._prefix)
            last = np.zeros(len(keys), np.intp)
            last[unit] = np.arange(len(unit))  # the last of several stays
            step.units.put(RowColumns(keys, Keys.of(rows[n] for n in last.tolist())))
        return stated.faults | bad

    def complete(
        self, reader: StateReader, given: Attributed, view: View, digests: NDArray[np.uint8],
        step: Step,
    ) -> View:  # fmt: skip
        """Complete the keys of records with attributes.

        Args:
            view: records, with the other columns of their keys.
            digests: (n, 16) digests of their units.
            step: step so far, whose applied attributes count.

        Returns:
            The same records; a record whose key became too long is bad, and one whose key is not
            among the public keys is dropped.
        """
        if len(view.rows) == 0:
            return view
        keys, unit = distinct(digests, self._prefix)
        stated, place = step.units.read(reader, keys).unique()
        pairs = view.key.astype(np.int64) * len(stated) + place[unit]
        each, number = np.unique(pairs, return_inverse=True)
        places, columns = zip(*given.columns, strict=True)
        known, other = values_of(stated.tolist(), self._paths, columns), view.keys.tolist()
        made = [completed(other[one // len(known)], known[one % len(known)], places)
                for one in each.tolist()]  # fmt: skip
        allowed = given.sampled.allowed
        kept = np.array([len(key) <= MAX_KEY and (allowed is None or key in allowed)
                         for key in made])[number]  # fmt: skip
        long = np.array([len(key) > MAX_KEY for key in made])[number]
        names, key = Keys.of(made).unique()
        used, key = compact(key[number[kept]], len(names))
        bad = view.bad | dict.fromkeys(view.rows[long].tolist(), "huge_key")
        return View(view.rows[kept], names.take(used), key, view.value[kept], view.sign[kept], bad)


def _whole(unit: Any) -> bool:
    return isinstance(unit, str) and _INTEGER.fullmatch(unit) is not None
