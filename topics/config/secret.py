"""The noise key: 32 secret bytes that determine every draw of noise. It is never in TOML.

Anyone who has the key can subtract the noise from releases. If it is lost, open epochs cannot be
continued.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConfigError
from .model import Config

KEY_BYTES = 32
VARIABLE = "HUSH_NOISE_KEY"
FILE_VARIABLE = "HUSH_NOISE_KEY_FILE"


def noise_key(config: Config, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the 32-byte noise key.

    ``HUSH_NOISE_KEY`` overrides ``HUSH_NOISE_KEY_FILE``, which overrides the file named in the
    configuration.

    Raises:
        ConfigError: there is no key, it is malformed, or others may read its file. The message does
            not contain any part of the key.
    """
    environ = os.environ if environ is None else environ
    if environ.get(VARIABLE):
        return decode_key(environ[VARIABLE].encode(), VARIABLE)
    return read_key(Path(environ.get(FILE_VARIABLE) or config.secret.noise_key_file))


def read_key(path: Path) -> bytes:
    """Return the key in a file that only its owner, and at most a group, can read.

    Raises:
        ConfigError: the file is missing, readable by everyone, writable by others, or does not hold
            a key.
    """
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no noise key found; `hush init` creates one") from error
    except OSError as error:
        raise ConfigError(f"{path}: the noise key cannot be read ({error.strerror})") from error
    if os.name == "posix" and mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"{path}: others have access to the noise key; run `chmod 600 {path}`")
    return decode_key(data, str(path))


def decode_key(data: bytes, name: str) -> bytes:
    """Decode a key from 64 hexadecimal digits, base64, or the 32 bytes themselves.

    Raises:
        ConfigError: the data is none of these, or obviously not random.
    """
    key = _decoded(data)
    if key is None:
        raise ConfigError(f"{name}: must hold {KEY_BYTES} bytes in hexadecimal or base64")
    if len(set(key)) < 8:  # of 32 random bytes: probability below 1e-30
        raise ConfigError(f"{name}: is not a random key; `hush init` creates one")
    return key


def _decoded(data: bytes) -> bytes | None:
    text = data.strip()
    for decode in (binascii.unhexlify, _from_base64):
        try:
            key = decode(text)
        except (binascii.Error, ValueError):
            continue
        if len(key) == KEY_BYTES:
            return key
    return data if len(data) == KEY_BYTES else None


def _from_base64(text: bytes) -> bytes:
    standard = text.replace(b"-", b"+").replace(b"_", b"/")
    return base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)


def write_new_key(path: Path) -> None:
    """Write a fresh key, readable only by its owner; never touch an existing file.

    Raises:
        ConfigError: the file already exists.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} already exists; a noise key is never overwritten") from error
    with os.fdopen(handle, "w") as file:
        os.fchmod(handle, 0o600)
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
