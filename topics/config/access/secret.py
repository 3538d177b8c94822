"""The two secret keys, 32 bytes each: noise key and signing key. Neither is in TOML.

A key comes from the environment, from a file or from a command that prints it.

Anyone who has the noise key can subtract the noise from releases. If it is lost, open epochs cannot
be continued. Anyone who has the signing key can forge releases of the deployment.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import secrets
import signal
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ....errors import ConfigError, KeyOutageError
from ...signatures import SigningKey
from ..model import Config, KeyCommand
from ..toml.values import format_duration

KEY_BYTES = 32
UNRUNNABLE = (126, 127)
"""Exit codes of shells, `env` and the like for a program that is no program or is not there."""


def noise_key(config: Config, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the 32-byte noise key.

    ``HUSH_NOISE_KEY`` overrides ``HUSH_NOISE_KEY_FILE``, which overrides the command named in the
    configuration, which overrides the file named there.

    Raises:
        ConfigError: there is no key, it is malformed, others may read its file, or the command
            cannot be run. The message does not contain any part of the key.
        KeyOutageError: the command fails now.
    """
    key = _key("noise", config.secret.key, "secret.key.command", environ)
    return key or read_key(Path(config.secret.noise_key_file))


def signing_key(config: Config, environ: Mapping[str, str] | None = None) -> SigningKey | None:
    """Return the key that signs releases and ledger; None if none is configured.

    ``HUSH_SIGNING_KEY`` and ``HUSH_SIGNING_KEY_FILE`` override the configuration, as for the noise
    key.

    Raises:
        ConfigError, KeyOutageError: as for the noise key.
    """
    secret = config.secret
    key = _key("signing", secret.signing_key, "secret.signing_key.command", environ)
    if key is None and secret.signing_key_file is not None:
        key = read_key(Path(secret.signing_key_file), "signing key")
    return None if key is None else SigningKey(key)


def _key(
    what: str, command: KeyCommand | None, setting: str, environ: Mapping[str, str] | None
) -> bytes | None:
    """The key from the environment or from the command ``setting``; None if neither gives one."""
    environ, variable = os.environ if environ is None else environ, f"HUSH_{what.upper()}_KEY"
    if environ.get(variable):
        return decode_key(environ[variable].encode(), variable)
    if environ.get(f"{variable}_FILE"):
        return read_key(Path(environ[f"{variable}_FILE"]), f"{what} key")
    return None if command is None else decode_key(_printed(command, setting), setting)


def own_keys(config: Config) -> dict[str, bytes]:
    """Return the 32-byte noise keys of pipelines that have their own, by name.

    Raises:
        ConfigError: one is missing, malformed, or others may read its file.
    """
    files = {p.name: p.noise_key_file for p in config.pipeline}
    return {name: read_key(Path(file)) for name, file in files.items() if file is not None}


def _printed(key: KeyCommand, setting: str) -> bytes:
    """Run the command. Its output is never shown, since it may be part of the key."""
    name = f"{setting} ({key.command[0]})"
    try:
        running = subprocess.Popen(
            key.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its children can be ended with it
        )
    except OSError as error:
        raise ConfigError(f"{name} cannot be run: {error.strerror}") from None
    with running:
        try:
            data, _ = running.communicate(timeout=key.timeout / 1e6)
        except subprocess.TimeoutExpired:
            limit = format_duration(key.timeout)
            raise KeyOutageError(
                f"{name}: no key within {limit} ({setting.replace('command', 'timeout')})"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    if running.returncode:
        how = f"ended with {running.returncode}"
        wrong = running.returncode in UNRUNNABLE
        raise (ConfigError if wrong else KeyOutageError)(
            f"{name} {how}; run it by hand, since what it prints is not shown here"
        )
    if not data.strip():
        raise ConfigError(f"{name} printed nothing; it must print the key and nothing else")
    return data


def read_key(path: Path, what: str = "noise key") -> bytes:
    """Return the key in a file that only its owner, and at most a group, can read.

    Args:
        what: name of the key, for messages.

    Raises:
        ConfigError: the file is missing, readable by everyone, writable by others, or does not hold
            a key.
    """
    return decode_key(read_private(path, what, "`hush init` creates one"), str(path))


_KEY_TEXT = re.compile(r"(^|/)[0-9a-fA-F]{64}$|[A-Za-z0-9+/_-]{43}=$")  # 32 bytes as text


def read_private(path: Path, what: str, remedy: str) -> bytes:
    """Return the content of a file that only its owner, and at most a group, can read.

    Args:
        remedy: what to do if it is missing.

    Raises:
        ConfigError: the file is missing, or readable by everyone, or writable by others.
    """
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except FileNotFoundError as error:
        if _KEY_TEXT.search(str(path)):
            raise ConfigError(
                f"the setting that names the file of the {what} holds a key, which is not shown: "
                "write the key into a file, and name that"
            ) from None
        raise ConfigError(f"{path}: no {what} found; {remedy}") from error
    except OSError as error:
        raise ConfigError(f"{path}: the {what} cannot be read ({error.strerror})") from error
    if os.name == "posix" and mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"{path}: others have access to the {what}; run `chmod 600 {path}`")
    return data


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
        raise ConfigError(f"{path} already exists; a key is never overwritten") from error
    with os.fdopen(handle, "w") as file:
        os.fchmod(handle, 0o600)
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
