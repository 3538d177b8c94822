"""Signatures over public data: releases with their rows, and records of the ledger.

Workers sign, anyone verifies. Signatures are Ed25519 (RFC 8032), which is deterministic: a release
that is made again has the same bytes. Only public bytes are signed, so digests and signatures
reveal nothing more.

The rows of one shard and trigger form a SHA-256 chain on each partition, in log order. The
manifest's signature covers the ends of all these chains, so it reveals any row that is changed,
left out, doubled or moved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PLACE, SIGNATURE = "hush-place", "hush-signature"
"""Names of a row's and a manifest's header in signed deployments."""
Headers = tuple[tuple[str, bytes], ...]

_RELEASE, _RECORD = b"hush release 1", b"hush ledger 1"  # no signature fits both
_NUMBER = "(0|[1-9][0-9]{0,17})"
_PLACE = re.compile(f"{_NUMBER} {_NUMBER}")
_SEAL = re.compile(
    f"1 {' '.join([_NUMBER] * 4)} ([0-9a-f]{{64}}) ([0-9a-f]{{64}}) ([0-9a-f]{{128}})"
)


class SigningKey:
    """The secret key (32 bytes) of a deployment's signatures."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public(self) -> str:
        """The public key, 64 hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, statement: bytes) -> str:
        """Sign a statement; returns 128 hexadecimal digits."""
        return self._key.sign(statement).hex()


def verified(public: str, statement: bytes, signature: str) -> bool:
    """Whether a signature over a statement is valid for a public key.

    Args:
        public: 64 hexadecimal digits.
        signature: 128 hexadecimal digits; anything else is not valid.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_public_key(text: object) -> bool:
    """Whether something can be a public key."""
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def record_statement(digest: str) -> bytes:
    """The bytes to sign for a ledger record, from the digest of the unsigned record."""
    return _joined([_RECORD, digest.encode()])


def _joined(parts: Iterable[bytes]) -> bytes:
    """Join parts so that different lists of parts give different bytes."""
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


class RowPlace(NamedTuple):
    """The release that a row belongs to, as stated in a header of each signed row."""

    shard: int  # number of the aggregate shard
    ordinal: int  # number of the trigger among all of the pipeline, from 1

    def encode(self) -> bytes:
        """Write the header's value."""
        return b"%d %d" % self

    @classmethod
    def decode(cls, value: bytes) -> RowPlace | None:
        """Read the header's value; None if it is none."""
        found = _PLACE.fullmatch(value.decode("latin-1"))
        return None if found is None else cls(int(found[1]), int(found[2]))


class Seal(NamedTuple):
    """A manifest's second header: its signature, and what is signed besides the manifest."""

    shard: int  # number of the aggregate shard
    shards: int  # number of aggregate shards
    ordinal: int  # number of the trigger among all of the pipeline, from 1
    trigger: int  # number of the trigger in its window, from 1
    charge: str  # hash of the ledger record that paid for the release, hexadecimal
    rows: str  # digest of the rows, hexadecimal; see `rows_digest`
    signature: str = ""  # hexadecimal; empty: not signed

    def encode(self) -> bytes:
        """Write the header's value: version and fields, separated by spaces."""
        return " ".join(map(str, (1, *self))).encode()

    @classmethod
    def decode(cls, value: bytes) -> Seal | None:
        """Read the header's value; None if it is none."""
        found = _SEAL.fullmatch(value.decode("latin-1"))
        if found is None:
            return None
        shard, shards, ordinal, trigger = map(int, found.groups()[:4])
        return cls(shard, shards, ordinal, trigger, found[5], found[6], found[7])


class Signed(NamedTuple):
    """A record of a release topic, without the header that holds its signature."""

    topic: str  # the release topic
    partition: int  # of the topic
    key: bytes  # of the record
    value: bytes  # of the record
    timestamp: int  # the record's timestamp, in milliseconds
    headers: Headers  # all others

    def statement(self, genesis: str, seal: Seal) -> bytes:
        """The bytes to sign for a manifest.

        Args:
            genesis: hash of the ledger's first record.
            seal: its seal; the signature in it is ignored.
        """
        named = [one for name, value in self.headers for one in (name.encode(), value)]
        sealed = seal._replace(signature="").encode()
        return _joined([_RELEASE, genesis.encode(), self.topic.encode(), b"%d" % self.partition,
                        self.key, b"%d" % self.timestamp, self.value, sealed, *named])  # fmt: skip


START = bytes(32)
"""The start value of every chain."""


def chained(before: bytes, key: bytes, value: bytes, timestamp: int, headers: Headers) -> bytes:
    """Extend a chain by its next row.

    Args:
        before: value of the chain so far; `START` before the first row.
        timestamp: the record's timestamp, in milliseconds.
        headers: all headers of the record.
    """
    named = [one for name, told in headers for one in (name.encode(), told)]
    return hashlib.sha256(before + _joined([key, value, b"%d" % timestamp, *named])).digest()


def rows_digest(chains: Mapping[int, bytes]) -> str:
    """The digest of all rows of one shard and trigger, hexadecimal.

    Args:
        chains: final value of the chain on each partition that has such rows.
    """
    parts = [one for n in sorted(chains) for one in (b"%d" % n, chains[n])]
    return hashlib.sha256(_joined(parts)).hexdigest()


@dataclass(frozen=True)
class Sealing:
    """Seals of the releases of a signed deployment."""

    genesis: str  # hash of the ledger's first record
    public: str  # the public key that the first record names, hexadecimal
    # the secret key; None when recomputing: the seals then have no signature
    key: SigningKey | None = field(default=None, repr=False)

    def seal(self, record: Signed, seal: Seal) -> tuple[str, bytes]:
        """Sign a manifest; returns the header with the seal."""
        if self.key is not None:
            signature = self.key.sign(record.statement(self.genesis, seal))
            seal = seal._replace(signature=signature)
        return SIGNATURE, seal.encode()

    def holds(self, record: Signed, seal: Seal) -> bool:
        """Whether a manifest's signature is the deployment's."""
        return verified(self.public, record.statement(self.genesis, seal), seal.signature)
