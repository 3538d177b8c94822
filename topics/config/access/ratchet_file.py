"""The file of a ratchet: replaced at each step so that no old content remains readable.

A step writes the new content beside the file and syncs it, gives the old content a second name,
renames the new one over the first, syncs the folder, and only then overwrites the old content and
removes its name. So at each moment the name holds all of the old or all of the new content. The
next step, and each start does one, wipes what a crash leaves under the two other names. Overwriting
is effective only on file systems that write in place; copy-on-write, snapshots and flash keep older
blocks: encrypt such disks.

Each machine has its own file. Its workers share it: a lock on the folder makes them take turns.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from ....errors import ConfigError, EngineError
from ....mechanisms.noise import Charge, Ratchet
from ....mechanisms.noise.ratchet import Over
from ...private_files import settle
from ..model import Config
from .escrow import Escrow
from .secret import KEY_BYTES, read_private

SCHEMA = "hush.ratchet/1"


class _Kept(msgspec.Struct, frozen=True):
    number: int
    pipeline: str
    epoch: int
    key: str


class _Content(msgspec.Struct, frozen=True):
    """Keys in hexadecimal; ``check`` shows that the disk has kept them."""

    schema: str
    name: str
    step: int
    key: str
    kept: list[_Kept]
    check: str = ""


class RatchetFile:
    """The ratchet of one machine: in its file, and in the memory of one process.

    Args:
        escrow: escrow that receives the key of each charge passed; None: no escrow.

    Raises:
        ConfigError: there is no ratchet, others may read it, or it is damaged.
    """

    def __init__(self, path: Path, escrow: Escrow | None = None) -> None:
        self.path = path
        self._escrow = escrow
        self._lock = threading.Lock()
        self._held = read(path)

    @property
    def name(self) -> str:
        """Its public name, which never changes."""
        return self._held.name

    @property
    def step(self) -> int:
        """Number of ledger records that it has passed."""
        return self._held.step

    @property
    def kept(self) -> list[Charge]:
        """Charges before the step whose keys are held."""
        return sorted(self._held.kept)

    def known(self, charge: Charge) -> bytes | None:
        """Look up the noise key of an epoch; None if it was forgotten."""
        with self._lock:
            return self._held.of(charge)

    def key(self, charge: Charge) -> bytes:
        """Look up the noise key of an epoch that may still be released.

        Raises:
            EngineError: it was forgotten.
        """
        key = self.known(charge)
        if key is None:
            raise EngineError(
                f"pipeline {charge.pipeline!r}: the noise key of epoch {charge.epoch} was "
                f"forgotten ({self.path}): all of its releases had been published, so the cluster "
                "was set back since; it cannot release this epoch again"
            )
        return key

    def forget(self, step: int, charges: Collection[Charge], over: Over) -> None:
        """Pass the ledger records that were read, and erase the keys of epochs that are over.

        Args:
            step: number of ledger records that were read.
            charges: all charges under this ratchet's keys, from record `step` of this one on.
            over: whether an epoch is over, that is, will have no further release.

        Raises:
            ConfigError: the file holds another ratchet, or a damaged one.
            EngineError: it cannot be written.
        """
        try:
            with locked(self.path):
                base = self._newest()
                if self._escrow is not None:
                    self._escrow.add(base.name, base.keys(c for c in charges if c.number < step))
                made = base.forward(step, charges, over)
                replace(self.path, made)
        except OSError as error:
            raise EngineError(
                f"{self.path}: noise keys cannot be forgotten ({error.strerror}): the folder of "
                "the ratchet and secret.escrow_file must be writable"
            ) from None
        with self._lock:
            before, self._held = self._held, made
            before.wipe()

    def _newest(self) -> Ratchet:
        """The ratchet of the file, which another worker may have advanced; never an older copy."""
        if not self.path.exists():
            return self._held
        there = read(self.path)
        if there.name != self.name:
            raise ConfigError(f"{self.path}: holds another ratchet than this worker began with")
        return there if there.step >= self.step else self._held


def ratchet_of(config: Config) -> RatchetFile | None:
    """Read the ratchet, if a pipeline forgets its keys.

    Raises:
        ConfigError: it cannot be read, or is another than is configured; or the auditor's public
            key cannot be read.
    """
    if not any(p.forget_keys for p in config.pipeline):
        return None
    files = config.secret
    escrow = None
    if files.escrow_key_file is not None:
        escrow = Escrow(Path(files.escrow_file), Path(files.escrow_key_file))
    found = RatchetFile(Path(files.ratchet_file), escrow)
    if found.name != files.ratchet:
        raise ConfigError(
            f"{found.path}: holds ratchet {found.name}, and secret.ratchet names {files.ratchet}"
        )
    return found


def create(path: Path) -> Ratchet:
    """Make a new ratchet with random bytes; never touch an existing file.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    made = Ratchet.new(secrets.token_bytes(KEY_BYTES))
    try:
        _write(path, made, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} already exists; a ratchet is never overwritten") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: the ratchet cannot be written ({error.strerror}): name a file in a folder "
            "that exists and that the worker may write to"
        ) from None
    settle(path.parent)
    return made


def read(path: Path) -> Ratchet:
    """Read a ratchet from a file that only its owner, and at most a group, can read.

    Raises:
        ConfigError: it is missing or damaged, or others may read it.
    """
    remedy = "`hush ratchet new` creates the first one; further workers get a copy of its file"
    data = read_private(path, "ratchet", remedy)
    try:
        found = msgspec.json.decode(data, type=_Content)
        made = Ratchet(
            found.name, found.step, bytearray.fromhex(found.key),
            {Charge(k.number, k.pipeline, k.epoch): bytearray.fromhex(k.key) for k in found.kept},
        )  # fmt: skip
    except (msgspec.MsgspecError, ValueError):
        found = None
    if found is None or found.schema != SCHEMA or found.check != _check(found):
        raise ConfigError(f"{path}: the ratchet is damaged: copy the file of another worker")
    return made


def replace(path: Path, ratchet: Ratchet) -> None:
    """Put a later ratchet into a file and wipe its old content; the caller holds `locked`."""
    new, old = _beside(path)
    _clean(path)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    _write(new, ratchet, mode)
    with contextlib.suppress(OSError):  # no old content, or a system without hard links
        os.link(path, old)
    os.replace(new, path)
    settle(path.parent)
    _clean(path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make processes take turns with a file, by a lock on its folder."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _beside(path: Path) -> tuple[Path, Path]:
    """Names of the new and the old content during a replacement."""
    return path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")


def _clean(path: Path) -> None:
    """Wipe unfinished new content, and old content."""
    for one in _beside(path):
        try:
            file = os.open(one, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            # A crash before the rename leaves two names for the current content: remove one only.
            if not (path.exists() and path.samefile(one)):
                os.write(file, bytes(os.fstat(file).st_size))
                os.fsync(file)
        finally:
            os.close(file)
        os.unlink(one)
        settle(path.parent)


def _write(path: Path, ratchet: Ratchet, mode: int) -> None:
    """Write a new file, durably."""
    kept = [_Kept(*one, key.hex()) for one, key in sorted(ratchet.kept.items())]
    content = _Content(SCHEMA, ratchet.name, ratchet.step, ratchet.key.hex(), kept)
    whole = msgspec.structs.replace(content, check=_check(content))
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        os.fchmod(number, mode)
        file.write(msgspec.json.encode(whole))
        file.flush()
        os.fsync(number)


def _check(content: _Content) -> str:
    blank = msgspec.structs.replace(content, check="")
    return hashlib.sha256(msgspec.json.encode(blank)).hexdigest()
