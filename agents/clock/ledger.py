"""The ledger: one hash-chained topic, never compacted, of what was declared and spent.

Records are canonical JSON. Each holds the SHA-256 of its predecessor; the first is the genesis.
Only the owner of the clock's transactional id writes, so a charge and its trigger are in one
transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from ...errors import EngineError, LedgerError
from ...mechanisms.accounting.composition import Spent, charge_of
from ...mechanisms.contract import Cost
from ...topics.names import Names
from ...topics.signatures import SigningKey, is_public_key
from ..deployment.cluster.growth import extended, joined, keyed, refused
from ..deployment.cluster.seats import read_seats
from ..deployment.cluster.seats import refused as wrong_seats
from ..deployment.model import Pipeline
from ..deployment.spread import StatePartitions, held
from .ledger_record import Record

ZERO = "0" * 64
FORMAT = 2  # raise it when older versions would misread state, or release other bytes
GROWN = 3  # format of deployments with added partitions; others keep theirs
LOST = 4  # format of deployments that have accepted lost records
SIGNED = 5  # format of deployments whose releases and ledger are signed
SHARED = 6  # format of deployments whose pipelines share topics, signed or not
# Stricter than `Fraction`, which takes spaces, exponents, and numbers that take minutes to compute.
_RATIONAL = re.compile(r"-?[0-9]{1,2000}(/[1-9][0-9]{0,1999})?")


@dataclass
class Ledger:
    """The ledger as read so far; verified record by record.

    Attributes:
        records: all records so far.
        genesis: body of the first record.
        pipelines: body of each declared pipeline.
        charges: (pipeline, epoch) -> record.
        refused: (pipeline, epoch) pairs that were refused.
        retired: body of the record that ends a pipeline, by its name: ``until``, microseconds since
            1970, and ``epoch``, the first epoch that is not served.
        format: format of the deployment, see `FORMAT`.
        grown: bodies of the records that count more partitions of a raw topic, in order.
        losses: bodies of the records that accept lost records of a raw topic, in order: ``topic``;
            ``epochs``, the first and last epoch that may lack some, by pipeline; ``seal``.
        key: signing key for records that `next` makes; None: read only.
    """

    records: list[Record] = field(default_factory=list)
    genesis: dict[str, Any] = field(default_factory=dict)
    pipelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    charges: dict[tuple[str, int], Record] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    retired: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = 0
    grown: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    key: SigningKey | None = field(default=None, repr=False)
    _spent: dict[str, Spent] = field(default_factory=dict)
    _unspent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # not added up yet

    @classmethod
    def read(cls, values: Iterable[bytes], key: SigningKey | None = None) -> Ledger:
        """Verify and index raw records.

        Raises:
            LedgerError: the chain is broken; the message says where.
        """
        ledger = cls(key=key)
        for value in values:
            ledger.take(value)
        if ledger.public_key is not None:
            ledger.check_signature(len(ledger.records) - 1)  # it covers all records before
        return ledger

    @property
    def public_key(self) -> str | None:
        """Public signing key of the deployment, hexadecimal; None: it signs nothing."""
        return self.genesis.get("public_key")

    def check_signature(self, place: int) -> None:
        """Check that the deployment's key has signed a record.

        Raises:
            LedgerError: it has not.
        """
        if self.public_key is None or not self.records[place].genuine(self.public_key):
            raise LedgerError(
                f"ledger record {place} is not signed by the key that the genesis names: restore "
                "the topic from its backup; nothing is released without a whole ledger"
            )

    def take(self, value: bytes) -> Record:
        """Verify and index the next raw record.

        Raises:
            LedgerError: it is not a record, breaks the chain, charges an epoch twice or beyond the
                end of its pipeline, ends a pipeline twice, declares a follower that does not begin
                at the other's end, or lets a topic grow that must not; or a later version wrote it.
            EngineError: it moves the deployment to the format of a later version.
        """
        place = len(self.records)
        try:
            record = msgspec.json.decode(value, type=Record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LedgerError(f"ledger record {place} is not a ledger record: {error}") from None
        # The hash covers the canonical bytes. A different text with the same content would have the
        # same hash, and could replace the first one unseen.
        if record.encode() != value:
            raise LedgerError(f"ledger record {place} is not in canonical form")
        if record.seq != place or record.prev_hash != self.head:
            raise LedgerError(
                f"the ledger's chain is broken at record {place}: restore the topic from its "
                "backup; nothing is released without a whole ledger"
            )
        public = (self.genesis or record.body).get("public_key")
        if (record.signature is not msgspec.UNSET) != (public is not None):
            raise LedgerError(
                f"ledger record {place} must be signed if, and only if, the genesis names a key: "
                "restore the topic from its backup"
            )
        try:
            self._index(record)
        except (KeyError, TypeError) as error:
            raise LedgerError(f"ledger record {place} is not a {record.kind} record") from error
        return record

    def _index(self, record: Record) -> None:
        if (record.kind == "genesis") != (not self.records):
            raise LedgerError(f"ledger record {record.seq}: a genesis must be first, and alone")
        self.records.append(record)
        body = record.body
        if record.kind in ("genesis", "format"):
            self.genesis = self.genesis or body
            self._reach(record)
        elif record.kind == "pipeline":
            if body.get("follows") is not None:
                self._follow(record)
            if body.get("seats"):
                self._seat(record)
            self.pipelines[body["pipeline"]] = body
        elif record.kind == "charge":
            place = body["pipeline"], body["epoch"]
            if place in self.charges:
                raise LedgerError(f"ledger record {record.seq} charges {place} a second time")
            if self.over(*place):
                raise LedgerError(
                    f"ledger record {record.seq} charges {place}, and the pipeline was retired "
                    f"before epoch {self.retired[place[0]]['epoch']}"
                )
            self.charges[place] = record
            self._unspent.setdefault(place[0], []).append(body)
        elif record.kind == "refused":
            self.refused.add((body["pipeline"], body["epoch"]))
        elif record.kind == "retired":
            self._retire(record)
        elif record.kind == "grown":
            self._grow(record)
        elif record.kind == "loss":
            self._lose(record)
        else:
            raise LedgerError(
                f"ledger record {record.seq} is of a kind that this version does not know "
                f"({record.kind!r}): a later version wrote it, perhaps to forbid charges; use that "
                "version"
            )

    def _reach(self, record: Record) -> None:
        number = record.body.get("format", 1)  # the first geneses named no format
        if type(number) is not int or number <= self.format:
            raise LedgerError(
                f"ledger record {record.seq}: format {number!r} after {self.format}; it only rises"
            )
        if "public_key" in record.body and not (
            number >= SIGNED and is_public_key(record.body["public_key"])
        ):
            raise LedgerError(f"ledger record {record.seq} names an invalid public key")
        if number > (known := max(FORMAT, GROWN, LOST, SIGNED, SHARED)):
            raise EngineError(
                f"this deployment has reached format {number}, but this version of Hushstream "
                f"knows formats up to {known}: use the version that raised it, or a later one"
            )
        self.format = number

    def _retire(self, record: Record) -> None:
        name, first = record.body["pipeline"], record.body["epoch"]
        if name not in self.pipelines or name in self.retired:
            raise LedgerError(
                f"ledger record {record.seq} retires pipeline {name!r}, which was never declared, "
                "or is retired already"
            )
        if any(owner == name and epoch >= first for owner, epoch in self.charges):
            raise LedgerError(
                f"ledger record {record.seq} retires pipeline {name!r} before epoch {first}, but "
                "that epoch or a later one is charged already"
            )
        self.retired[name] = record.body

    def _grow(self, record: Record) -> None:
        topic, number = record.body["topic"], record.seq
        if self.format < GROWN:
            raise LedgerError(
                f"ledger record {number} lets {topic} grow in format {self.format}, which older "
                f"versions would not notice: a record of format {GROWN} must come before it"
            )
        layouts = {name: self.layout(name) for name in self.readers(topic)}
        fixed = [name for name in layouts if keyed(self.pipelines[name])]
        if (wrong := refused(record.body, layouts, fixed)) is not None:
            raise LedgerError(f"ledger record {number} lets {topic} grow, {wrong}")
        self.grown.append(record.body)

    def _lose(self, record: Record) -> None:
        topic, epochs = record.body["topic"], record.body["epochs"]
        whole = set(epochs) == set(self.readers(topic)) and isinstance(record.body["seal"], str)
        if self.format < LOST or not whole or any(first > last for first, last in epochs.values()):
            raise LedgerError(
                f"ledger record {record.seq} accepts lost records of {topic} in format "
                f"{self.format}, for other pipelines than read it, or for no epoch"
            )
        self.losses.append(record.body)

    def _seat(self, record: Record) -> None:
        before = self.names("").seats.values()
        wrong = wrong_seats(record.body, before) if self.shared else "has seats in shared topics"
        if wrong is not None:
            raise LedgerError(f"ledger record {record.seq} {wrong}")

    @property
    def shared(self) -> bool:
        """Whether pipelines of one input share topics; the genesis fixes it."""
        return self.format >= SHARED and self.genesis.get("shared_topics") is True

    @property
    def spread(self) -> StatePartitions:
        """The number of partitions of state; the genesis fixes it."""
        return held(self.genesis)

    def names(self, deployment: str) -> Names:
        """Names of a deployment's topics, and the seats of its declared pipelines."""
        seats = {t: s for body in self.pipelines.values() for t, s in read_seats(body).items()}
        return Names(deployment, str(self.genesis["genesis"]), seats)

    def readers(self, topic: str) -> list[str]:
        """List the declared pipelines that read a raw topic."""
        declared = self.pipelines.items()
        return [name for name, body in declared if topic in body.get("partitions", ())]

    def layout(self, pipeline: str) -> dict[str, int]:
        """Look up the number of partitions of each topic of a declared pipeline, with growth."""
        return extended(self.pipelines[pipeline]["partitions"], self.grown)

    def joined(self, pipeline: str) -> tuple[int, ...]:
        """Look up the last trigger before each raw partition counted; () if all always did."""
        return joined(pipeline, self.grown)

    def _follow(self, record: Record) -> None:
        other, begin = record.body["follows"]["pipeline"], record.body["follows"]["from"]
        end = self.retired.get(other, {}).get("until")
        if begin != end or begin != record.body["config"]["window"]["origin"]:
            raise LedgerError(
                f"ledger record {record.seq} declares a pipeline that follows {other!r} from "
                f"{begin} on, and that one ends at {end}"
            )
        if (second := self.follower(other)) is not None:
            raise LedgerError(
                f"ledger record {record.seq} declares a pipeline that follows {other!r}, which "
                f"{second!r} follows already"
            )

    def follower(self, pipeline: str) -> str | None:
        """Name the pipeline that follows another; None if none does."""
        for name, body in self.pipelines.items():
            if (body.get("follows") or {}).get("pipeline") == pipeline:
                return name
        return None

    def over(self, pipeline: str, epoch: int) -> bool:
        """Whether an epoch lies beyond the end of its pipeline and must not be charged."""
        end = self.retired.get(pipeline)
        return end is not None and epoch >= int(end["epoch"])

    def end(self, pipeline: Pipeline) -> int | None:
        """Find the first window that a retired pipeline does not serve; None: it is not retired."""
        body = self.retired.get(pipeline.name)
        return None if body is None else int(body["epoch"]) * pipeline.windows.per_epoch

    @property
    def head(self) -> str:
        """Hash of the last record."""
        return self.records[-1].hash() if self.records else ZERO

    def next(self, kind: str, time: int, body: dict[str, Any]) -> Record:
        """Make the next record; `take` its encoding once it is committed.

        Args:
            time: microseconds since 1970.
            body: fields that ``kind`` requires.

        Raises:
            LedgerError: the deployment signs its records, but this ledger has no key.
        """
        made = Record(len(self.records), self.head, kind, time, body)
        if (self.genesis or body).get("public_key") is None:
            return made
        if self.key is None:
            raise LedgerError("this deployment signs its ledger, and there is no signing key here")
        return made.sign(self.key)

    def epochs(self, pipeline: str) -> int:
        """Count the charged epochs of a pipeline."""
        return sum(1 for name, _ in self.charges if name == pipeline)

    def spent(self, pipeline: str) -> Spent:
        """Add up a pipeline's charges, for a unit that is in all of its epochs.

        Raises:
            LedgerError: a charge holds something else where a rational should be.
        """
        found, waiting = self._spent.get(pipeline, Spent()), self._unspent.pop(pipeline, [])
        for body in waiting:
            found = found.plus(cost_of(body))
        self._spent[pipeline] = found
        return found

    def standing(self, pipeline: Pipeline) -> Spent:
        """Add up what counts against a pipeline's limits.

        For a shared budget, each epoch that any member has charged counts in full, since the other
        members may charge it at any time.
        """
        if pipeline.purse is None:
            return self.spent(pipeline.name)
        return Spent().plus(pipeline.purse.one, len(self._opened(pipeline)))

    def affordable(self, pipeline: Pipeline, epochs: Sequence[int]) -> int:
        """Count how many of the given uncharged epochs stay within the pipeline's limits.

        Args:
            epochs: epochs in the order in which they would be charged.
        """
        left = pipeline.terms.room(self.standing(pipeline), len(epochs))
        opened = self._opened(pipeline) if pipeline.purse is not None else ()
        for place, epoch in enumerate(epochs):
            left -= epoch not in opened
            if left < 0:
                return place
        return len(epochs)

    def _opened(self, pipeline: Pipeline) -> set[int]:
        """Epochs that a member of a pipeline's shared budget has charged."""
        members = pipeline.purse.members if pipeline.purse is not None else (pipeline.name,)
        return {epoch for name, epoch in self.charges if name in members}


def number(value: Any) -> Fraction:
    """Read the rational that `text` wrote.

    Raises:
        LedgerError: the text is not what `text` writes.
    """
    if not (isinstance(value, str) and _RATIONAL.fullmatch(value)):
        raise LedgerError(f"the ledger has {str(value)[:40]!r} where a rational should be")
    return Fraction(value)


def cost_of(body: Mapping[str, Any]) -> Spent:
    """Read the cost in the body of a charge.

    Raises:
        LedgerError: it holds something else where a rational should be.
    """
    mu2, pure, coupling, epsilon, delta = (
        number(body.get(name))
        for name in ("mu2", "pure_epsilon", "coupling_delta", "epsilon", "delta")
    )
    return charge_of(epsilon, delta, Cost(mu2, pure, coupling))


def totals(ledger: Ledger, pipelines: Iterable[str]) -> dict[str, Spent]:
    """Add up the charges of each pipeline.

    Raises:
        LedgerError: a charge holds something else where a rational should be.
    """
    return {name: ledger.spent(name) for name in pipelines}
