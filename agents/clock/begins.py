"""The first offsets of raw topics: they are exact counts, so they stay inside the trust boundary.

The offsets at which a pipeline begins count the earlier records of its raw topics, which another
pipeline may protect. The transaction that declares the pipeline writes them to an internal topic;
the ledger, which may be public, holds a keyed hash of them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from ...errors import LedgerError
from ...mechanisms.noise import derive
from ...topics.names import Names
from ...topics.records import encode
from ..deployment.model import Input
from ..kafka.cluster import Cluster
from .ledger import Ledger


class SealedOffsets(msgspec.Struct, frozen=True):
    """A record of exact offsets whose seal is in the ledger; ``purpose`` names its key."""

    purpose: ClassVar[str]

    def encode(self) -> bytes:
        """Encode as canonical bytes."""
        return encode(self)

    def seal(self, secret: bytes) -> str:
        """Hash the record for the ledger: HMAC-SHA256 under a key derived from the noise key.

        The ledger may be public, and a hash without a key would let a reader test likely offsets.
        """
        return hmac.new(derive(secret, self.purpose), self.encode(), hashlib.sha256).hexdigest()


class Begins(SealedOffsets, frozen=True):
    """First offset that each partition of an input still had when a pipeline was declared."""

    purpose: ClassVar[str] = "begins"

    genesis: str
    pipeline: str
    topic: str
    offsets: list[int]


def read_begins(
    cluster: Cluster, names: Names, ledger: Ledger, secret: bytes
) -> dict[str, list[int]]:
    """Read the first offsets of every declared pipeline, checked against the ledger.

    Raises:
        LedgerError: those of a pipeline are missing, or are not what the ledger pinned.
    """
    return opened((m.value() for m in cluster.read(names.begins)), names, ledger, secret)


def opened(
    values: Iterable[bytes], names: Names, ledger: Ledger, secret: bytes
) -> dict[str, list[int]]:
    """Match records of the internal topic with the seals of the ledger; see `read_begins`.

    Raises:
        LedgerError: the offsets of a pipeline are missing, or are not what the ledger pinned.
    """
    sealed: dict[str, list[int]] = {}
    pinned = {body.get("begins"): name for name, body in ledger.pipelines.items()}
    for value in values:
        try:
            record = msgspec.json.decode(value, type=Begins)
        except msgspec.MsgspecError:
            continue  # it matches no seal of the ledger
        if pinned.get(record.seal(secret)) == record.pipeline:
            sealed[record.pipeline] = record.offsets
    if missing := sorted(set(ledger.pipelines) - set(sealed)):
        raise LedgerError(
            f"topic {names.begins} does not hold where the input of pipeline {missing[0]!r} began "
            "as the ledger sealed it: one of the two was changed or restored alone; restore both "
            "from the same moment, or begin a new deployment (another deployment.name)"
        )
    return sealed


def begin_of(begins: Mapping[str, list[int]], ledger: Ledger, source: Input) -> list[int]:
    """Find the first offset of each partition of an input; 0 before a pipeline is declared.

    The same shards serve all pipelines of an input, so the first declared pipeline decides for all.
    """
    declared = [p.name for p in source.pipelines if p.name in ledger.pipelines]
    first = min(declared, key=lambda name: ledger.pipelines[name]["number"], default="")
    known = begins.get(first, [])
    return known + [0] * (source.partitions - len(known))  # added partitions are used from 0 on
