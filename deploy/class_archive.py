"""Archive of the classes that a broker loads, with which its Java starts in half the time.

A Java runtime that pip installed has no archive of its own, so every start parses 11,000 classes
anew. ``python -m hushstream.deploy.many_brokers`` makes one in about ten seconds; later starts of
this user's brokers find it. It does not pay for a single broker, so no start makes it.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import BrokerError
from .places import cache_dir

KEPT_SECONDS = 14 * 86_400.0  # archives of other runtimes, 60 MB each


def place(java: Path, classpath: str) -> Path:
    """Name the archive for a Java executable and a classpath; it need not exist."""
    about = java.resolve().stat()
    sign = f"{java.resolve()} {about.st_size} {about.st_mtime_ns} {classpath}"
    return cache_dir() / f"classes-{hashlib.sha256(sign.encode()).hexdigest()[:16]}.jsa"


def options(java: Path, classpath: str) -> list[str]:
    """Return the flags of Java that use the archive; none if there is no archive.

    Java itself checks whether the archive is its own and of these jars, and goes on without it
    otherwise.
    """
    archive = place(java, classpath)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def listing(into: Path) -> list[str]:
    """Return the flags with which Java writes the names of all classes that it loads to a file."""
    return [f"-XX:DumpLoadedClassList={into}"]


def make(java: Path, flags: Sequence[str], classpath: str, listed: Path) -> Path:
    """Make an archive of the classes in ``listed``, a file that `listing` named.

    Raises:
        BrokerError: Java made none; the message ends with what it said.
    """
    archive = place(java, classpath)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=archive.parent) as scratch:
        part = Path(scratch) / archive.name
        done = subprocess.run(
            [java, *flags, "-Xshare:dump", f"-XX:SharedClassListFile={listed}",
             f"-XX:SharedArchiveFile={part}", "-cp", classpath],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode or not part.is_file():
            said = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise BrokerError(f"{java} made no archive of classes:\n{said}")
        part.replace(archive)
    for other in archive.parent.glob("classes-*.jsa"):
        if time.time() - other.stat().st_mtime > KEPT_SECONDS:
            other.unlink(missing_ok=True)
    return archive
