"""Compiled loops, and numba's cache of them with a seal on every file.

What the cache holds is run as it is: one flipped bit may end a process without a word, at every
start. So each file ends with a seal, a SHA-256 of its content and of what it is for, and numba
reads no file whose seal does not fit: it is dropped, and the loop compiled anew. A pickle ends
before the seal, so that numba reads sealed files as its own. Files are written under another
name and renamed, seal and all: processes that share a folder meet whole files only.

The seal of a data file also holds the function's source stamp and signature. An index names its
data files by numbers, and two processes may give one number to two signatures, or one may end
between index and data: then the name fits, and the code is another's.

A seal does not help where wrong code was sealed. So a process that loads all of it leaves a mark
while it does (`marked`). A mark whose process has ended says that it did not get through. After
two in a row everything is dropped; not after one, which may have been killed while it loaded, for
all workers would compile for a minute or two.

The seal is no signature: a user who may write into the folder can run code here. Files are
therefore for their owner alone, and files of others, or that others may write, are not read.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger("hushstream")

F = TypeVar("F", bound=Callable[..., Any])

MARK = "hush-warming-"
STRIKE = "hush-not-warmed"  # a process did not get through, and none has since
_SEAL = 32
_marks: set[Path] = set()
_told: set[str] = set()
_saved: list[str] = []  # loops that this process has compiled


def compiled(function: F) -> F:
    """Compile a function of numbers and arrays, which raises nothing, at its first call.

    Later processes find it in numba's cache, sealed.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "boundscheck": False}
    # Where no folder for a cache can be written, or none can be sealed, each process compiles.
    with suppress(RuntimeError):
        kept: F = njit(cache=True, **options)(function)
        if _sealing(kept):
            return kept
    made: F = njit(**options)(function)
    return made


def _sealing(dispatcher: Any) -> bool:
    """Let a function read and write sealed files alone; False if numba has another cache."""
    try:
        kept = dispatcher._cache
        file = kept._cache_file
        name = file._index_name.removesuffix(".nbi")
        kept._cache_file = _sealed()(file._cache_path, name, file._source_stamp)
    except (AttributeError, ImportError):
        return False
    return True


@cache
def _sealed() -> Any:
    """The class of sealed files; numba is imported where loops are."""
    from numba.core.caching import IndexDataCacheFile

    class Sealed(IndexDataCacheFile):  # type: ignore[misc]
        """Index and data files of one function."""

        _key: Any = None  # numba compiles and loads one signature at a time

        def save(self, key: Any, data: Any) -> None:
            self._key = key
            super().save(key, data)
            _saved.append(self._index_name)

        def load(self, key: Any) -> Any:
            self._key = key
            return super().load(key)

        def _purpose(self, path: str) -> bytes:
            name = os.path.basename(path)
            of = () if name == self._index_name else (self._source_stamp, self._key)
            return repr((name, of)).encode()

        def _load_index(self) -> Any:
            return super()._load_index() if fits(self._index_path, self._purpose) else {}

        def _load_data(self, name: str) -> Any:
            path = self._data_path(name)
            if not fits(path, self._purpose):
                raise FileNotFoundError(path)
            return super()._load_data(name)

        @contextmanager
        def _open_for_write(self, filepath: str) -> Iterator[BytesIO]:
            with super()._open_for_write(filepath) as file:
                os.fchmod(file.fileno(), 0o600)
                body = BytesIO()
                yield body
                content = body.getvalue()
                file.write(content + _digest(self._purpose(filepath), content))

    return Sealed


def saved() -> int:
    """Count what this process has compiled and kept, and not found in the cache."""
    return len(_saved)


def fits(path: str, purpose: Any) -> bool:
    """Whether a file has the seal of its purpose and only its owner may write it; else drop it."""
    try:
        with open(path, "rb") as file:
            about, content = os.fstat(file.fileno()), file.read()
    except OSError:
        return False
    own = about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o002
    body, found = content[:-_SEAL], content[-_SEAL:]
    if own and found == _digest(purpose(path), body):
        return True
    with suppress(OSError):
        os.unlink(path)
    _tell(path)
    return False


def _digest(purpose: bytes, content: bytes) -> bytes:
    return sha256(sha256(purpose).digest() + content).digest()


def _tell(path: str) -> None:
    level = logging.DEBUG if _told else logging.WARNING
    _told.add(path)
    log.log(
        level,
        "compiled code in the cache does not match its checksum (%s), since it is damaged or of "
        "another version: it is dropped and compiled anew, with all other files like it",
        path,
    )


@contextmanager
def marked(folder: Path, code: Iterable[Path]) -> Iterator[None]:
    """Leave a mark in ``folder`` while the cache in the folders ``code`` is loaded.

    If the last two processes that tried did not get through, the cache is dropped first.
    """
    strike = folder / STRIKE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _left(folder):
            if strike.exists():
                log.warning(
                    "two starts ended while compiled code was loaded: all of its cache is dropped "
                    "and compiled anew"
                )
                drop(code)
            strike.touch(mode=0o600)
        name = secrets.token_hex(8)
        mark, hidden = folder / f"{MARK}{name}", folder / f".{name}"
        held = hidden.open("w")
    except OSError:  # a folder that cannot be written holds what another process has checked
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)  # its end says that the process has ended
        hidden.rename(mark)
        _marks.add(mark)
        yield
        unmark()
        with suppress(OSError):
            strike.unlink(missing_ok=True)


def unmark() -> None:
    """Take away the marks of this process: it ends on purpose, or all was loaded."""
    while _marks:
        with suppress(FileNotFoundError):
            _marks.pop().unlink()


def _left(folder: Path) -> bool:
    """Whether there are marks of processes that have ended; takes them away."""
    found = False
    for mark in folder.glob(f"{MARK}*"):
        with suppress(OSError), mark.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mark.unlink()
            found = True
    return found


def drop(code: Iterable[Path]) -> None:
    """Delete all files of the cache."""
    for folder in code:
        for path in folder.rglob("*.nb[ic]"):
            with suppress(OSError):
                path.unlink()
