"""The bytes of a snapshot: a head that says what it is of, and parts of a table's files.

Both are sealed with AES-256-GCM (NIST SP 800-38D), bound to the table by the data that is
authenticated beside them: a snapshot of another table opens as little as one that was changed.

- The *head* has a key that follows from the deployment's key and is the same for ever. So a head is
  evidence: only a worker can have made it, and it tells how far the table had come.
- The *parts* need a *seal* as well: 32 random bytes in the marker of the shard's changelog. A later
  marker has another one, so with the older markers the older snapshots are forgotten, wherever
  copies of them are left.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...errors import SnapshotError
from ...mechanisms.noise import derive

PART = 8 << 20  # bytes of files in one object
TAG = 16
NONCE = 12
HEAD_BYTES = 1 << 22  # more than the head of the largest table has
MAGIC = b"hush-snapshot-1\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class CopyHead(msgspec.Struct, frozen=True):
    """The description of a snapshot.

    Attributes:
        name: folder of its parts, which no other one has.
        seal: fingerprint of the seal.
        made: when the table was copied, seconds since 1970.
        rows: those of the table that tell how far it had come (`evidence.TOLD`).
        files: names and bytes, in the order in which they follow each other in the parts.
    """

    name: str
    seal: str
    made: float
    rows: list[bytes | None]
    files: list[tuple[str, int]]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.size // PART)

    def length(self, part: int) -> int:
        """Bytes of files in a part."""
        return min(PART, self.size - part * PART)


_HEAD = msgspec.json.Decoder(CopyHead)


def new_seal() -> str:
    """Make a seal, in hexadecimal digits."""
    return secrets.token_hex(32)


def fingerprint_of(seal: str) -> str:
    """Name a seal without telling it."""
    return hashlib.sha256(b"hushstream seal " + seal.encode()).hexdigest()[:32]


class TableKeys:
    """The keys of one table's snapshots.

    Args:
        secret: the deployment's key.
        place: name of the table, which no other table of any deployment has.
    """

    def __init__(self, secret: bytes, place: str) -> None:
        self._place = place.encode()
        self._head = AESGCM(derive(secret, "snapshot head"))
        self._parts = derive(secret, "snapshot parts")

    def seal_head(self, head: CopyHead) -> bytes:
        """Encode a head."""
        nonce = os.urandom(NONCE)
        data = self._head.encrypt(nonce, msgspec.json.encode(head), self._place)
        return MAGIC + nonce + data

    def open_head(self, data: bytes) -> CopyHead:
        """Decode a head.

        Raises:
            SnapshotError: it is of another version, table or deployment, or was changed.
        """
        if not data.startswith(MAGIC):
            raise SnapshotError("its head is of another version")
        nonce, rest = data[len(MAGIC) :][:NONCE], data[len(MAGIC) + NONCE :]
        try:
            head = _HEAD.decode(self._head.decrypt(nonce, rest, self._place))
        except (InvalidTag, ValueError, msgspec.MsgspecError):
            raise SnapshotError("its head is of another table, or was changed") from None
        names = [name for name, _ in head.files]
        fine = all(map(_NAME.fullmatch, [head.name, *names])) and len(set(names)) == len(names)
        if not fine or min((size for _, size in head.files), default=0) < 0:
            raise SnapshotError("its head names files that no table has")
        return head

    def parts(self, seal: str, name: str) -> PartKey:
        """Make the key of the parts of one snapshot.

        HMAC-SHA256 of the seal and all names, under a key that follows from the deployment's: who
        has one of the two alone learns nothing of it.
        """
        told = b"\n".join([seal.encode(), name.encode(), self._place])
        return PartKey(hmac.digest(self._parts, told, "sha256"), self._place)


class PartKey:
    """The key of one snapshot's parts, each of which it seals once: the number is the nonce."""

    def __init__(self, key: bytes, place: bytes) -> None:
        self._key, self._place = AESGCM(key), place

    def seal(self, part: int, data: bytes) -> bytes:
        """Encrypt a part."""
        return self._key.encrypt(part.to_bytes(NONCE, "big"), data, self._place)

    def open(self, part: int, data: bytes, length: int) -> bytes:
        """Decrypt a part.

        Args:
            length: bytes that it must have.

        Raises:
            SnapshotError: it was changed or cut, or is another one.
        """
        try:
            found = self._key.decrypt(part.to_bytes(NONCE, "big"), data, self._place)
        except (InvalidTag, ValueError):
            raise SnapshotError("a part was changed, or is of another snapshot") from None
        if len(found) != length:
            raise SnapshotError("a part is not as long as its head says")
        return found
