"""Errors of RocksDB without its text, which may quote contents of the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import DamagedError, EngineError, HushError

IN_USE = ("lock hold by current process", "While lock file")
REASONS = (
    "No space left on device",
    "File too large",
    "Disk quota exceeded",
    "Read-only file system",
    "Permission denied",
    "Too many open files",
)
DAMAGED = ("Corruption", "No such file or directory", "Input/output error")


@contextlib.contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Replace errors of the library, while it works on the table in ``path``, by our own.

    Raises:
        DamagedError: the table is damaged.
        EngineError: any other error.
    """
    try:
        yield
    except (HushError, GeneratorExit):
        raise
    except Exception as error:
        raise told(path, what, str(error)) from None


def told(path: Path, what: str, text: str) -> EngineError:
    """Make our own error from the library's text."""
    if any(word in text for word in IN_USE):
        return EngineError(
            f"the state folder {path} is in use by another process: "
            "give each worker a data_dir of its own, never a shared volume"
        )
    reason = next((reason for reason in REASONS if reason in text), None)
    if reason is None and any(word in text for word in DAMAGED):
        return DamagedError(f"the table in {path} cannot be {what}: it is damaged")
    return EngineError(
        f"the table in {path} cannot be {what}: {reason or 'RocksDB refuses'}; mend that and "
        "restart the worker: what was committed is in the changelog"
    )
