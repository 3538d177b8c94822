"""Signatures and digests of releases and ledger, computed again from their description.

All input is public. The judge takes the public key from the ledger's first record.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Record(NamedTuple):
    """One record of a release topic."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]


def of_ledger(ledger: Sequence[bytes]) -> Iterator[str]:
    """Ledger records that lack a required signature, or have a wrong or superfluous one."""
    public = json.loads(ledger[0])["body"].get("public_key")
    for place, value in enumerate(ledger):
        bare, comma, signature = value.rpartition(b',"signature":"')
        if bool(comma) != (public is not None):
            yield f"ledger record {place} is signed, or not, and must be as the genesis says"
        elif public is not None:
            digest = hashlib.sha256(bare + b"}").hexdigest().encode()
            if not holds(public, joined(b"hush ledger 1", digest), signature[:-2].decode()):
                yield f"ledger record {place} is not signed by the key of the genesis"


def of_releases(
    ledger: Sequence[bytes], topic: str, pipeline: str, logs: Sequence[Sequence[Record]]
) -> Iterator[str]:
    """Objections to the seals of a pipeline's releases, each partition in order."""
    public = json.loads(ledger[0])["body"].get("public_key")
    genesis = hashlib.sha256(ledger[0]).hexdigest()
    paid = {hashlib.sha256(value).hexdigest() for value in ledger if b'"kind":"charge"' in value}
    ends: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
    seals: dict[int, list[list[Any]]] = defaultdict(list)
    for partition, log in enumerate(logs):
        for record in log:
            kind, more = record.headers[0][0], list(record.headers[1:])
            where = f"{topic}-{partition}, offset {record.offset}"
            if public is None or len(more) != 1:
                if more or public is not None:
                    yield f"{where}: {len(more)} further headers, and the genesis names {public}"
                continue
            words = more[0][1].decode().split(" ")
            if (kind, more[0][0]) == ("hush-row", "hush-place"):
                end = ends[int(words[0]), int(words[1])]
                end[partition] = hashlib.sha256(end.get(partition, bytes(32)) + joined(
                    record.key, record.value, str(record.timestamp).encode(),
                    *flat(record.headers))).digest()  # fmt: skip
                continue
            sealed = " ".join([*words[:-1], ""]).encode()
            statement = joined(
                b"hush release 1", genesis.encode(), topic.encode(), str(partition).encode(),
                record.key, str(record.timestamp).encode(), record.value, sealed,
                *flat(record.headers[:1]),
            )  # fmt: skip
            if more[0][0] != "hush-signature" or not holds(public, statement, words[-1]):
                yield f"{where}: the manifest's signature does not hold"
                continue
            if words[5] not in paid:
                yield f"{where}: the ledger has not charged for this release"
            seals[int(words[1])].append([int(words[3]), words[6]])
    for shard, told in seals.items():
        if [ordinal for ordinal, _ in told] != list(range(1, len(told) + 1)):
            yield f"{pipeline}, shard {shard}: releases {[n for n, _ in told]}"
        for ordinal, digest in told:
            end = ends[shard, ordinal]
            parts = [part for n in sorted(end) for part in (str(n).encode(), end[n])]
            if hashlib.sha256(joined(*parts)).hexdigest() != digest:
                yield f"{pipeline}, shard {shard}, release {ordinal}: other rows were signed"


def flat(headers: Sequence[tuple[str, bytes]]) -> Iterator[bytes]:
    """Names and values of headers, one after the other."""
    for name, value in headers:
        yield from (name.encode(), value)


def joined(*parts: bytes) -> bytes:
    """Join the parts, each preceded by its length in decimal digits and a colon."""
    return b"".join(str(len(part)).encode() + b":" + part for part in parts)


def holds(public: str, statement: bytes, signature: str) -> bool:
    """Whether an Ed25519 signature is valid."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            bytes.fromhex(signature), statement
        )
    except (InvalidSignature, ValueError):
        return False
    return True
