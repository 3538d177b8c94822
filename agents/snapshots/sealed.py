"""The bytes of a snapshot: a head that describes it, and parts of a table's files.

Both are sealed with AES-256-GCM (NIST SP 800-38D) and bound to the table by associated data:
neither a changed snapshot nor another table's can be opened.

- The *head* has a fixed key, derived from the deployment's key. So a head is evidence: only a
  worker can have made it, and it records the table's progress.
- The *parts* need a *seal* as well: 32 random bytes in the marker of the shard's changelog. A later
  marker has another seal, so older snapshots are lost with the older markers, wherever copies of
  them remain.
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
HEAD_BYTES = 1 << 22  # larger than the head of any table
MAGIC = b"hush-snapshot-1\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class CopyHead(msgspec.Struct, frozen=True):
    """The description of a snapshot.

    Attributes:
        name: unique folder of its parts.
        seal: fingerprint of the seal.
        made: time at which the table was copied, seconds since 1970.
        rows: rows that record the table's progress (`evidence.TOLD`).
        files: names and sizes in bytes, in their order in the parts.
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
    """Compute a public fingerprint of a seal."""
    return hashlib.sha256(b"hushstream seal " + seal.encode()).hexdigest()[:32]


class TableKeys:
    """The keys of one table's snapshots.

    Args:
        secret: the deployment's key.
        place: name of the table, unique among all deployments.
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

        It is an HMAC-SHA256 of the seal and all names, under a key derived from the deployment's:
        both secrets are needed to compute it.
        """
        told = b"\n".join([seal.encode(), name.encode(), self._place])
        return PartKey(hmac.digest(self._parts, told, "sha256"), self._place)


class PartKey:
    """The key of one snapshot's parts; each is sealed once, with its number as nonce."""

    def __init__(self, key: bytes, place: bytes) -> None:
        self._key, self._place = AESGCM(key), place

    def seal(self, part: int, data: bytes) -> bytes:
        """Encrypt a part."""
        return self._key.encrypt(part.to_bytes(NONCE, "big"), data, self._place)

    def open(self, part: int, data: bytes, length: int) -> bytes:
        """Decrypt a part.

        Args:
            length: expected bytes.

        Raises:
            SnapshotError: it was changed or truncated, or is another part.
        """
        try:
            found = self._key.decrypt(part.to_bytes(NONCE, "big"), data, self._place)
        except (InvalidTag, ValueError):
            raise SnapshotError("a part was changed, or is of another snapshot") from None
        if len(found) != length:
            raise SnapshotError("a part is not as long as its head says")
        return found
