"""Archive of the classes that a broker loads and links: it halves the CPU time of a start.

A Java runtime installed by pip has no archive, so every start parses 11,000 classes anew. ``python
-m hushstream.deploy.many_brokers`` makes an ahead-of-time cache (JEP 483) in about twenty seconds;
later starts of this user's brokers find it. It does not pay for a single broker, so no start makes
it.
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

LEAST = 24  # first version of Java that can make an archive
KEPT_SECONDS = 14 * 86_400.0  # archives of other runtimes, 60 MB each


def place(java: Path, classpath: str) -> Path:
    """Name the archive for a Java executable and a classpath; it need not exist."""
    about = java.resolve().stat()
    sign = f"{java.resolve()} {about.st_size} {about.st_mtime_ns} {classpath}"
    return cache_dir() / f"classes-{hashlib.sha256(sign.encode()).hexdigest()[:16]}.aot"


def options(java: Path, classpath: str) -> list[str]:
    """Return the Java flags that use the archive; none if there is no archive.

    Java itself checks that the archive fits the runtime and these jars, and ignores it otherwise.
    """
    archive = place(java, classpath)
    return [f"-XX:AOTCache={archive}"] if archive.is_file() else []


def recording(into: Path) -> list[str]:
    """Return the Java flags that record all loaded and linked classes in a file."""
    return ["-XX:AOTMode=record", f"-XX:AOTConfiguration={into}"]


def make(java: Path, flags: Sequence[str], classpath: str, recorded: Path) -> Path:
    """Make an archive of the classes in ``recorded``, a file that `recording` named.

    Raises:
        BrokerError: Java made none; the message ends with its output.
    """
    archive = place(java, classpath)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=archive.parent) as scratch:
        part = Path(scratch) / archive.name
        done = subprocess.run(
            [java, *flags, "-XX:AOTMode=create", f"-XX:AOTConfiguration={recorded}",
             f"-XX:AOTCache={part}", "-cp", classpath],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode or not part.is_file():
            said = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise BrokerError(f"{java} made no archive of classes:\n{said}")
        part.replace(archive)
    for other in archive.parent.glob("classes-*.*"):
        if time.time() - other.stat().st_mtime > KEPT_SECONDS:
            other.unlink(missing_ok=True)
    return archive
