"""Redaction: unexpected errors are logged without their values.

The text of an unexpected error may quote a record, and more people read a log at its default level
than may read raw data. So the log shows only the type of such an error and the place in our code.
Level `debug` (``hush -v``, or ``engine.log_level = "debug"``) adds the whole text and traceback.
Texts of our own errors (`HushError`) never quote records.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....errors import HushError
from .visible import visible_lines

if TYPE_CHECKING:
    import asyncio

PACKAGE = "hushstream"
MORE = 'its text may quote records; run with -v, or log_level = "debug", inside the trust boundary'
UNCLOSED = "Unclosed AIOKafka"  # what a client's finaliser says

log = logging.getLogger(PACKAGE)


def quoting() -> bool:
    """Whether texts of unexpected errors may be shown: at level debug."""
    return log.isEnabledFor(logging.DEBUG)


def where(error: BaseException) -> str:
    """Name the type of an error and the innermost of our lines in its traceback, no values.

    >>> where(ValueError("secret"))
    'ValueError outside of hushstream'
    """
    place = f"outside of {PACKAGE}"
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] == PACKAGE:
            place = f"at {module}:{line}"
    return f"{type(error).__name__} {place}"


def traced(error: BaseException) -> BaseException | None:
    """Return the error if its traceback is to be logged, else None.

    Our own errors need none, since their texts say all. Other tracebacks may quote records.
    """
    return error if quoting() and not isinstance(error, HushError) else None


def told(error: BaseException) -> str:
    """Describe an error in words that anyone may read."""
    if isinstance(error, HushError):
        return str(error)
    if isinstance(error, ImportError):  # it names modules, and occurs before any record is read
        return f"{error} ({where(error)})"
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        return f"{error.filename}: {error.strerror} ({where(error)})"  # a path, and no record
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        return f"{error.strerror} ({where(error)})"  # the system's words, such as of a full disk
    more = "" if quoting() else f" ({MORE})"
    return f"unexpected error: {where(error)}{more}"


class Formatter(logging.Formatter):
    """Formats log records of any library; errors in them become `where` unless `quoting`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record so that nothing in it acts on a terminal."""
        return visible_lines(self._text(record))

    def _text(self, record: logging.LogRecord) -> str:
        if quoting():
            return super().format(record)
        shown = copy.copy(record)
        shown.args = _veiled(record.args)
        error = record.exc_info[1] if record.exc_info else None
        shown.exc_info = shown.exc_text = None
        text = super().format(shown)
        if error is None or any(error is arg for arg in _listed(record.args)):
            return text
        return f"{text} [{where(error)}]"


def _listed(args: Any) -> list[Any]:
    return list(args.values() if isinstance(args, Mapping) else args or ())


def _veiled(args: Any) -> Any:
    if isinstance(args, Mapping):
        return {name: _veil(arg) for name, arg in args.items()}
    return args and tuple(map(_veil, args))


class _Bare(str):
    """A text that stands for an error, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _veil(arg: Any) -> Any:
    if isinstance(arg, BaseException) and not isinstance(arg, HushError):
        return _Bare(where(arg))
    # The repr of a failed task contains the text of its error.
    return _Bare(f"<{type(arg).__name__}>") if _is_task(arg) else arg


def _is_task(arg: Any) -> bool:
    """Whether an argument is a task or a future; does not load asyncio, which is slow."""
    loaded = sys.modules.get("asyncio")
    return loaded is not None and isinstance(arg, loaded.Future)


def on_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task waited for; for `loop.set_exception_handler`.

    A worker that ends on an error leaves its clients to the end of the process. Each says so, and
    two dozen such lines would hide the reason before them.
    """
    error, text = context.get("exception"), context["message"]
    level = logging.DEBUG if text.startswith(UNCLOSED) else logging.ERROR
    log.log(level, "%s", text, exc_info=error)


@contextlib.contextmanager
def hooks() -> Iterator[None]:
    """Send errors of threads and finalisers to the log, which redacts them."""

    def thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.error("a thread failed", exc_info=args.exc_value)

    def finaliser(args: Any) -> None:
        if args.exc_value is not None:
            log.error("a finaliser failed", exc_info=args.exc_value)

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = thread, finaliser
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before
