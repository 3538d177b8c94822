"""Log lines: at most one a minute for each cause, with the worker's name, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime

from ...kafka.outage import OUTAGE, is_noise, is_sign
from .redaction import Formatter, quoting
from .visible import visible

EVERY_SECONDS = 60.0
MOST = 1000  # causes that are remembered
TEXT = "%(asctime)s %(levelname)-7s %(who)s%(message)s%(more)s"


class Lines(logging.Filter):
    """Passes one warning or error of each cause a minute; the next says how many were held back.

    A cause is the text of a line before its values are filled in. At level debug, all lines pass.
    At other levels, library messages about brokers that are away count as one `Outage`.

    Attributes:
        who: name of the worker, on every line; empty: it has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.who = ""
        self._since: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record; sets its worker and the number of similar ones held back."""
        record.who = f"[{self.who}] " if self.who else ""
        record.more = ""
        if is_sign(record):
            OUTAGE.sign(_cause(record))
        if record.levelno < logging.WARNING or quoting() or hasattr(record, "change"):
            return True
        if is_sign(record) or is_noise(record):
            return False
        text = str(record.msg)
        cause = record.name, record.getMessage() if text == "%s" else text
        now = time.monotonic()
        since, held = self._since.get(cause, (-EVERY_SECONDS, 0))
        if now - since < EVERY_SECONDS:
            self._since[cause] = since, held + 1
            return False
        if len(self._since) >= MOST:
            self._since.clear()
        self._since[cause] = now, 0
        record.more = f" (and {held} more like it since the last such line)" if held else ""
        return True


def _cause(record: logging.LogRecord) -> str:
    """Name the cause of a line: the type of its error, or its text without values."""
    given = record.args if isinstance(record.args, tuple) else ()
    found = [type(one).__name__ for one in given if isinstance(one, BaseException)]
    return found[0] if found else "no connection"


class JsonFormatter(Formatter):
    """One JSON object a line: time, level, logger, worker, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Text of a record."""
        body = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._text(record),
        }
        if who := getattr(record, "who", "").strip(" []"):
            body["worker"] = who
        return visible(json.dumps(body))  # the same JSON, with DEL escaped


def set_up(level: int, as_json: bool) -> None:
    """Write the log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Lines())
    formatter = JsonFormatter("%(message)s%(more)s") if as_json else Formatter(TEXT, "%H:%M:%S")
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def name_lines(who: str) -> None:
    """Put the name of its worker on every line of this process."""
    for handler in logging.getLogger().handlers:
        for one in handler.filters:
            if isinstance(one, Lines):
                one.who = who
