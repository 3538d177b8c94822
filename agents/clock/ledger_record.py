"""One line of the ledger: canonical JSON, chained by its hash, signed if there is a key."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ...topics.signatures import SigningKey, record_statement, verified


class Record(msgspec.Struct, frozen=True, omit_defaults=False):
    """One line of the ledger; ``body`` depends on ``kind``.

    Kinds: ``genesis`` (topic ids and partitions), ``pipeline`` (its configuration and number),
    ``charge`` (privacy loss of one epoch, before its first trigger), ``refused`` (an epoch that
    could not be paid for), ``retired`` (the first epoch that a pipeline will never serve),
    ``format`` (a format reached since the genesis), ``grown`` (partitions were added to a raw
    topic, and count from the next trigger on), ``loss`` (records of a raw topic were deleted before
    they were used, and releases go on without them).
    """

    seq: int  # place in the ledger, from 0
    prev_hash: str  # hash of the previous record; `ZERO` for the first
    kind: str  # decides what ``body`` holds
    time: int  # microseconds since 1970
    body: dict[str, Any]
    # signature by the deployment's key, hexadecimal; absent if it signs nothing
    signature: str | msgspec.UnsetType = msgspec.UNSET

    def encode(self) -> bytes:
        """Encode as canonical bytes."""
        return msgspec.json.encode(self, order="deterministic")

    def hash(self) -> str:
        """Hash the record; the next record and every noise label of a charge contain the hash."""
        return hashlib.sha256(self.encode()).hexdigest()

    def sign(self, key: SigningKey) -> Record:
        """Return the record with a signature."""
        return msgspec.structs.replace(self, signature=key.sign(self._statement()))

    def genuine(self, public: str) -> bool:
        """Whether a public key has signed this record and, by the chain, all before it."""
        signature = self.signature
        return isinstance(signature, str) and verified(public, self._statement(), signature)

    def _statement(self) -> bytes:
        return record_statement(msgspec.structs.replace(self, signature=msgspec.UNSET).hash())
