"""Escrow: noise keys sealed to an auditor's public key before every machine forgets them.

A key is sealed by HPKE (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), bound to the ratchet and
the charge. Sealing needs no secret. The file grows by a line for each charge, and need not be
secret as long as the auditor's private key is. A line torn by a crash is skipped, and its key is
sealed again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from ....errors import ConfigError
from ....mechanisms.noise import Charge, encode
from .secret import read_private

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class _Sealed(msgspec.Struct, frozen=True):
    """One sealed key; ``sealed`` is base64."""

    ratchet: str
    number: int
    pipeline: str
    epoch: int
    sealed: bytes


class Escrow:
    """A file of sealed keys, to which keys are added.

    Args:
        key_file: the auditor's public key, PEM.

    Raises:
        ConfigError: ``key_file`` holds no such key.
    """

    def __init__(self, path: Path, key_file: Path) -> None:
        self._path = path
        self._key = _public(key_file)

    def add(self, ratchet: str, keys: Iterable[tuple[Charge, bytes]]) -> None:
        """Seal keys and append them, durably.

        Raises:
            OSError: the file cannot be written.
        """
        lines = [
            msgspec.json.encode(
                _Sealed(ratchet, *one, _SUITE.encrypt(key, self._key, _label(ratchet, one)))
            )
            for one, key in keys
        ]
        if not lines:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            # The file may end with a line torn by a crash.
            file.write(b"".join(b"\n" + line for line in lines) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def open_escrow(path: Path, key_file: Path) -> dict[str, dict[Charge, bytes]]:
    """Open a file's sealed keys, by ratchet, with a private key (X25519, PEM, without a password).

    Raises:
        ConfigError: a file cannot be read, or a key was sealed to another public key.
    """
    private = _private(key_file)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: sealed keys cannot be read ({error.strerror})") from None
    found: dict[str, dict[Charge, bytes]] = {}
    for line in lines:
        try:
            one = msgspec.json.decode(line, type=_Sealed)
        except msgspec.MsgspecError:
            continue  # empty, or torn by a crash: then it was sealed again
        charge = Charge(one.number, one.pipeline, one.epoch)
        try:
            key = _SUITE.decrypt(one.sealed, private, _label(one.ratchet, charge))
        except (InvalidTag, ValueError):
            raise ConfigError(
                f"{path}: the key of epoch {one.epoch} of pipeline {one.pipeline!r} was sealed to "
                f"another key than {key_file}, or was changed"
            ) from None
        found.setdefault(one.ratchet, {})[charge] = key
    return found


def _label(ratchet: str, charge: Charge) -> bytes:
    words = ("hushstream escrow", ratchet, str(charge.number), charge.pipeline, str(charge.epoch))
    return encode([word.encode() for word in words])


def _public(path: Path) -> X25519PublicKey:
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, X25519PublicKey):
        raise ConfigError(
            f"secret.escrow_key_file: {path} holds no public X25519 key in PEM; "
            "`openssl pkey -in auditor.key -pubout` prints that of a private one"
        )
    return key


def _private(path: Path) -> X25519PrivateKey:
    remedy = "`openssl genpkey -algorithm X25519` creates one"
    data = read_private(path, "private key", remedy)
    try:
        key = load_pem_private_key(data, None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, X25519PrivateKey):
        raise ConfigError(f"{path}: holds no private X25519 key in PEM without a password")
    return key
