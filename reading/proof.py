"""Proof that all publications are complete, unaltered and paid for, from the public topics alone.

The ledger is a chain of signed records. It names all pipelines, their topics, their numbers of
shards and partitions, and every charge. Manifests are signed by the same key, over the digests of
their rows, and numbered by shard without gaps. A manifest names the hash of its charge, which holds
random bytes, so it cannot have been made before the charge was written.

If the newest releases of all shards are missing, they look like releases that have not come yet.
`Checkpoint` remembers what was seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from ..agents.clock.ledger import Ledger
from ..errors import LedgerError
from ..formats.events.decode import RawRecord
from ..topics.config.pipelines.schedule import Schedule
from ..topics.names import Names
from ..topics.releases import MANIFEST, ROW
from ..topics.signatures import (
    PLACE,
    SIGNATURE,
    START,
    RowPlace,
    Seal,
    Sealing,
    Signed,
    chained,
    rows_digest,
)

EVERY = 1_000  # records between two reports of progress
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


class Checkpoint(msgspec.Struct, frozen=True):
    """Extent of an earlier proof; all of it must still be there."""

    genesis: str  # hash of the ledger's first record
    records: int  # number of ledger records
    head: str  # hash of the last of them
    releases: dict[str, int]  # number of the last release of each pipeline


@dataclass
class Proof:
    """Result of a verification."""

    deployment: str  # its name
    public_key: str = ""  # of the signatures, hexadecimal; empty: nothing is signed
    fault: str = ""  # what is wrong, and where; empty: nothing is
    unfinished: str = ""  # what is still missing, or withheld; empty: nothing
    records: int = 0  # number of ledger records
    charges: int = 0  # number of epochs charged
    head: str = ""  # hash of the last ledger record
    # number of the last release of each pipeline
    releases: dict[str, int] = field(default_factory=dict)
    rows: int = 0  # number of rows of all releases
    until: str = ""  # scheduled time of the newest release, ISO; empty before the first
    genesis: str = ""

    @property
    def proved(self) -> bool:
        """Whether everything is there, unaltered and paid for."""
        return bool(self.public_key) and not (self.fault or self.unfinished)

    def checkpoint(self) -> Checkpoint:
        """Make the extent that a later proof must cover."""
        return Checkpoint(self.genesis, self.records, self.head, self.releases)


class FaultError(LedgerError):
    """Failure of a proof; the message names the place at fault."""


class _Declared(NamedTuple):
    """Declaration of a pipeline's releases in the ledger."""

    topic: str
    shards: int
    partitions: int
    windows: Schedule


def _declared(ledger: Ledger) -> dict[str, _Declared]:
    found = {}
    try:
        names = Names(ledger.genesis["deployment"], ledger.genesis["genesis"])
        for name, body in ledger.pipelines.items():
            config, shards = body["config"], body["partitions"][names.cells(name)]
            found[name] = _Declared(
                str(config["release"]["topic"]),
                int(shards),
                int(body["placement"]["release_partitions"]),
                Schedule.declared(config),
            )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise FaultError("a pipeline's declaration in the ledger cannot be read") from error
    if not found:
        raise FaultError("the ledger declares no pipeline, so nothing can be proved")
    return found


def topics_of(ledger: Ledger) -> dict[str, int]:
    """List the release topics of a deployment, with their numbers of partitions."""
    return {one.topic: one.partitions for one in _declared(ledger).values()}


def check_ledger(
    ledger: Ledger,
    pinned: str = "",
    told: Callable[[int], None] = lambda records: None,
    since: int = 0,
) -> Sealing:
    """Check the signature of each record of a ledger whose chain has been verified.

    Args:
        ledger: result of `Ledger.read`.
        pinned: public key that must have signed it, hexadecimal; empty: the key it names.
        told: called with the number of records from time to time.
        since: first record whose signature was not checked before.

    Raises:
        FaultError: it names no key, or a key other than ``pinned``.
        LedgerError: a signature does not hold.
    """
    public = ledger.public_key
    if public is None:
        raise FaultError(
            "this deployment began without a signing key: the ledger's chain is whole, but nothing "
            "is signed, so anyone who may write to its topics can have changed releases"
        )
    if pinned and pinned != public:
        raise FaultError(f"ledger record 0 names the public key {public}, and not {pinned}")
    for place in range(since, len(ledger.records)):
        ledger.check_signature(place)
        if place % EVERY == 0:
            told(place)
    return Sealing(ledger.records[0].hash(), public)


class ReleaseProof:
    """Proof in the making: takes all records of the release topics, each partition in its order.

    Args:
        sealing: result of `check_ledger`.
    """

    def __init__(self, ledger: Ledger, sealing: Sealing) -> None:
        self._sealing = sealing
        self._declared = _declared(ledger)
        self._rows: dict[tuple[str, int, int], dict[int, bytes]] = {}  # ends of the chains
        self._newest: dict[tuple[str, int, int], int] = {}  # release of the last row, by partition
        self._sealed: dict[tuple[str, int], int] = {}  # number of the last manifest
        self._digests: dict[tuple[str, int, int], str] = {}
        self._triggers: dict[tuple[str, int, str], int] = {}
        self._cited: dict[tuple[str, str, int], str] = {}
        self.rows = 0
        self.until = -1  # milliseconds since 1970

    def take(self, topic: str, partition: int, record: RawRecord) -> None:
        """Take the next record of a partition.

        Raises:
            FaultError: no worker of this deployment could have written it there.
        """
        where = f"{topic}-{partition}, offset {record.offset}"
        name = (record.key or b"").partition(b"|")[0].decode("latin-1")
        declared = self._declared.get(name)
        known = declared is not None and declared.topic == topic
        if declared is None or not known or partition >= declared.partitions:
            raise FaultError(f"{where}: no pipeline of this deployment releases this here")
        if record.value is None or [name for name, _ in record.headers] not in (
            [ROW, PLACE],
            [MANIFEST, SIGNATURE],
        ):
            raise FaultError(f"{where}: neither a row nor a signed manifest")
        if record.headers[0][0] == ROW:
            self._row(where, name, declared, partition, record)
        else:
            self._manifest(where, name, declared, partition, record)

    def _row(
        self, where: str, name: str, declared: _Declared, partition: int, record: RawRecord
    ) -> None:
        place = RowPlace.decode(record.headers[1][1])
        if place is None:
            raise FaultError(f"{where}: the row does not say which release it belongs to")
        shard, ordinal = place
        least = self._newest.get((name, shard, partition), 0)
        home = shard % declared.partitions == partition  # where manifests stand between the rows
        due = self._sealed.get((name, shard), 0) + 1
        if ordinal < least or (home and ordinal != due):
            raise FaultError(f"{where}: a row of release {ordinal} of {name} out of its order")
        self._newest[name, shard, partition] = ordinal
        chains = self._rows.setdefault((name, shard, ordinal), {})
        chains[partition] = chained(
            chains.get(partition, START), record.key or b"", record.value or b"",
            record.timestamp, record.headers,
        )  # fmt: skip
        self.rows += 1

    def _manifest(
        self, where: str, name: str, declared: _Declared, partition: int, record: RawRecord
    ) -> None:
        key, value, seal = record.key or b"", record.value or b"", Seal.decode(record.headers[1][1])
        signed = Signed(declared.topic, partition, key, value, record.timestamp, record.headers[:1])
        if seal is None or not self._sealing.holds(signed, seal):
            raise FaultError(f"{where}: the signature of this manifest does not hold")
        shard, begin = seal.shard, key.decode().split("|")[1]
        if (seal.shards, shard % declared.partitions) != (declared.shards, partition):
            raise FaultError(
                f"{where}: the manifest names another number of shards, or another partition"
            )
        before = self._sealed.get((name, shard), 0)
        if seal.ordinal != before + 1:
            raise FaultError(
                f"{where}: shard {shard} of {name} goes from release {before} to {seal.ordinal}"
            )
        last = self._triggers.get((name, shard, begin), 0)
        if seal.trigger != last + 1:
            raise FaultError(
                f"{where}: the window of {begin} of {name} goes from trigger {last} to "
                f"{seal.trigger}"
            )
        self._sealed[name, shard] = seal.ordinal
        self._triggers[name, shard, begin] = seal.trigger
        self._digests[name, shard, seal.ordinal] = seal.rows
        epoch = declared.windows.epoch(declared.windows.opened(_micros(begin)))
        self._cited.setdefault((seal.charge, name, epoch), where)
        self.until = max(self.until, record.timestamp)

    def finish(self, ledger: Ledger) -> tuple[dict[str, int], str]:
        """Close the proof after all topics were read to their ends.

        Returns:
            Number of the last whole release of each pipeline, and what is still missing, in words.

        Raises:
            FaultError: rows are missing or changed, or a release was not charged beforehand.
        """
        for (name, shard, ordinal), digest in self._digests.items():
            if rows_digest(self._rows.pop((name, shard, ordinal), {})) != digest:
                raise FaultError(
                    f"release {ordinal} of {name}, shard {shard}: its rows are not those that its "
                    "manifest was signed with: some are changed, missing, doubled or out of order"
                )
        self._check_charges(ledger)
        return self._whole(), self._unfinished(ledger)

    def _check_charges(self, ledger: Ledger) -> None:
        hashes = {place: record.hash() for place, record in ledger.charges.items()}
        for (charge, name, epoch), where in self._cited.items():
            if hashes.get((name, epoch)) != charge:
                raise FaultError(
                    f"{where}: the ledger has no charge of epoch {epoch} of {name} with the hash "
                    "that this release names: it was not paid for before"
                )

    def _whole(self) -> dict[str, int]:
        return {
            name: min(self._sealed.get((name, shard), 0) for shard in range(one.shards))
            for name, one in self._declared.items()
        }

    def _unfinished(self, ledger: Ledger) -> str:
        whole = self._whole()
        begun = {(name, ordinal) for name, _, ordinal in self._rows}
        begun |= {(name, ordinal) for (name, _), ordinal in self._sealed.items()}
        for name, ordinal in sorted(begun):
            if ordinal > whole[name]:
                return f"release {whole[name] + 1} of {name} is there in part"
        cited = {(name, epoch) for _, name, epoch in self._cited}
        for name, epoch in ledger.charges:
            if (name, epoch) not in cited:
                return f"epoch {epoch} of {name} was charged, and nothing of it is released"
        return ""


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text) - _1970) // timedelta(microseconds=1)


Records = Iterable[RawRecord]
Read = Callable[[str, int], Records]
"""Reads all committed records of a topic's partition."""
Partitions = Callable[[str], int]
"""Number of partitions of a topic on its cluster; 0 if there is none."""


def prove(
    read_ledger: Callable[[], Ledger],
    read: Read,
    partitions: Partitions,
    deployment: str,
    pinned: str = "",
    known: Checkpoint | None = None,
    told: Callable[[str, int], None] = lambda what, records: None,
) -> Proof:
    """Prove all that a deployment has published.

    Args:
        read_ledger: function that reads the ledger and verifies its chain; called twice.
        read: function that reads a partition of a release topic.
        partitions: function that counts the partitions of a release topic.
        pinned: public key that must have signed everything; empty: the one in the genesis.
        known: extent of an earlier proof.
        told: called with the topic being read and the number of records so far.
    """
    proof = Proof(deployment)
    try:
        _prove(proof, read_ledger, read, partitions, pinned, known, told)
    except LedgerError as error:
        proof.fault = str(error)
    return proof


def _prove(
    proof: Proof,
    read_ledger: Callable[[], Ledger],
    read: Read,
    partitions: Partitions,
    pinned: str,
    known: Checkpoint | None,
    told: Callable[[str, int], None],
) -> None:
    ledger = read_ledger()
    sealing = check_ledger(ledger, pinned, lambda n: told("ledger", n))
    _fill(proof, ledger)
    made = ReleaseProof(ledger, sealing)
    for topic, number in topics_of(ledger).items():
        _check_partitions(topic, number, partitions(topic))
        for partition in range(number):
            for number, record in enumerate(read(topic, partition)):
                made.take(topic, partition, record)
                if number % EVERY == 0:
                    told(f"{topic}-{partition}", number)
    newer = read_ledger()  # with charges of what was released meanwhile
    check_ledger(newer, sealing.public, since=len(ledger.records))
    if [r.hash() for r in newer.records[: len(ledger.records)]] != [
        r.hash() for r in ledger.records
    ]:
        raise FaultError("the ledger was replaced while it was read")
    _fill(proof, newer)
    proof.releases, proof.unfinished = made.finish(newer)
    proof.rows = made.rows
    if made.until >= 0:
        proof.until = datetime.fromtimestamp(made.until / 1000, UTC).isoformat()
    if known is not None:
        _check_known(known, newer, proof)


def _check_partitions(topic: str, declared: int, there: int) -> None:
    """Refuse partitions that are undeclared, which readers see, and missing ones."""
    if there != declared:
        raise FaultError(
            f"topic {topic} has {there} partitions, and the ledger declares {declared}"
            + (": no release was signed for the others" if there > declared else "")
        )


def _fill(proof: Proof, ledger: Ledger) -> None:
    proof.public_key, proof.genesis = ledger.public_key or "", ledger.records[0].hash()
    proof.records, proof.charges = len(ledger.records), len(ledger.charges)
    proof.head = ledger.head


def _check_known(known: Checkpoint, ledger: Ledger, proof: Proof) -> None:
    """Refuse a proof that lacks part of an earlier one.

    Raises:
        FaultError: something is.
    """
    if known.genesis != proof.genesis:
        raise FaultError("ledger record 0 is another one than when this was proved before")
    there = 0 < known.records <= len(ledger.records)
    if not there or ledger.records[known.records - 1].hash() != known.head:
        raise FaultError(
            f"the ledger has lost records since: there were {known.records}, up to {known.head}"
        )
    for name, number in known.releases.items():
        if proof.releases.get(name, 0) < number:
            raise FaultError(
                f"{name} has lost releases since: there were {number}, and now there are "
                f"{proof.releases.get(name, 0)}"
            )


def plain(proof: Proof) -> dict[str, Any]:
    """Write a proof for programs."""
    return {"proved": proof.proved, **vars(proof)}
