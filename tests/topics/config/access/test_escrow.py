"""Escrow: only the auditor opens sealed keys, each under its own charge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hushstream.errors import ConfigError
from hushstream.mechanisms.noise import Charge
from hushstream.topics.config.access.escrow import Escrow, open_escrow

NAME = "ab" * 16
KEYS = {Charge(n, "p", n - 4): bytes([n]) * 32 for n in range(4, 7)}


def auditor(
    folder: Path, name: str, private: X25519PrivateKey | Ed25519PrivateKey | None = None
) -> tuple[Path, Path]:
    """Files of a private and a public key."""
    key = private or X25519PrivateKey.generate()
    secret, public = folder / f"{name}.key", folder / f"{name}.pem"
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    secret.chmod(0o600)
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return secret, public


def test_what_was_sealed_opens_with_the_private_key_alone(tmp_path: Path) -> None:
    (secret, public), (other, _) = auditor(tmp_path, "a"), auditor(tmp_path, "b")
    file = tmp_path / "hush.escrow"
    escrow = Escrow(file, public)
    escrow.add(NAME, [])
    assert not file.exists()
    escrow.add(NAME, list(KEYS.items())[:2])
    escrow.add(NAME, list(KEYS.items())[1:])  # as after a crash between sealing and forgetting
    assert open_escrow(file, secret) == {NAME: KEYS}
    held = file.read_bytes()
    assert not any(key.hex().encode() in held or key in held for key in KEYS.values())
    with pytest.raises(ConfigError, match="was sealed to another key than"):
        open_escrow(file, other)


def test_a_line_that_a_crash_has_torn_is_sealed_again(tmp_path: Path) -> None:
    secret, public = auditor(tmp_path, "a")
    file = tmp_path / "hush.escrow"
    escrow = Escrow(file, public)
    escrow.add(NAME, KEYS.items())
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert set(open_escrow(file, secret).get(NAME, {})) <= set(KEYS)
        escrow.add(NAME, KEYS.items())
        assert open_escrow(file, secret) == {NAME: KEYS}


@pytest.mark.parametrize(
    ("field", "value"), [("epoch", 9), ("number", 9), ("pipeline", "q"), ("ratchet", "cd" * 16)]
)
def test_a_key_is_not_taken_for_that_of_another_charge(
    tmp_path: Path, field: str, value: object
) -> None:
    secret, public = auditor(tmp_path, "a")
    file = tmp_path / "hush.escrow"
    Escrow(file, public).add(NAME, [*KEYS.items()][:1])
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {field: value}))
    with pytest.raises(ConfigError, match="or was changed"):
        open_escrow(file, secret)


def test_other_files_are_refused_in_words(tmp_path: Path) -> None:
    secret, public = auditor(tmp_path, "a")
    signer, checker = auditor(tmp_path, "s", Ed25519PrivateKey.generate())
    file = tmp_path / "hush.escrow"
    for wrong in (secret, checker, tmp_path / "none"):
        with pytest.raises(ConfigError, match="holds no public X25519 key"):
            Escrow(file, wrong)
    with pytest.raises(ConfigError, match="sealed keys cannot be read"):
        open_escrow(file, secret)
    Escrow(file, public).add(NAME, KEYS.items())
    public.chmod(0o600)
    for wrong in (signer, public):
        with pytest.raises(ConfigError, match="holds no private X25519 key"):
            open_escrow(file, wrong)
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="others have access"):
        open_escrow(file, secret)
