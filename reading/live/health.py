"""Health of a pipeline in words: how old its last release is against the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .declared import MILLI, Declared

SECOND = 1_000_000
LEAST = 120 * SECOND  # patience with a due release
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Evidence:
    """Facts about a pipeline."""

    read: bool = True  # whether its topic has been read to its end once
    # scheduled time of its newest complete release, microseconds; None: there is none
    last: int | None = None
    incomplete: int = 0  # releases that are there only in part
    damaged: int = 0  # records that could not be decoded
    refused: tuple[int, ...] = ()  # epochs that the ledger refused
    silent: str = ""  # why its topic cannot be read; empty: it can
    until: int | None = None  # end of a retired pipeline, microseconds; None: it goes on


def health(pipeline: Declared, seen: Evidence, now: int) -> dict[str, Any]:
    """Judge a pipeline by what is known of its releases at ``now``, microseconds since 1970.

    Returns:
        A JSON object: ``state`` (good, waiting, asked, ended, late or stopped), ``words``, and in
        milliseconds ``last`` and ``due``.
    """
    due = None if pipeline.external else pipeline.next_due(now if seen.last is None else seen.last)
    if ended := _ended(pipeline, seen, now):
        due = None
    state, words = ("ended", ended) if ended else _judged(pipeline, seen, due, now)
    more = []
    if seen.damaged:
        more.append(f"{seen.damaged} records of the topic are damaged and were passed over.")
    if seen.incomplete:
        more.append(f"{_number(seen.incomplete, 'release')} not complete yet.")
    return {
        "state": "late" if seen.damaged and state in ("good", "asked") else state,
        "words": " ".join([words, *more]),
        "last": None if seen.last is None else seen.last // MILLI,
        "due": None if due is None else due // MILLI,
    }


def _judged(pipeline: Declared, seen: Evidence, due: int | None, now: int) -> tuple[str, str]:
    if seen.silent:
        return "stopped", f"Its topic cannot be read: {seen.silent}."
    if not seen.read:
        return "waiting", "Reading what has been released so far."
    if (epoch := _refused(pipeline, seen, now)) is not None:
        return "stopped", (
            f"Out of budget: epoch {epoch} was refused, so nothing more is released in it."
        )
    if seen.last is None:
        first = "" if due is None else f" The first release is due at {moment(due)}."
        return "waiting", f"Nothing has been released yet.{first}"
    newest = f"The newest release is of {moment(seen.last)}, {ago(now - seen.last)}"
    if due is None:
        return "asked", f"{newest}. Releases come on request."
    if now < due:
        return "good", f"{newest}. The next one is due at {moment(due)}."
    if now <= due + max(LEAST, pipeline.windows.longest_gap() // 2):
        return "good", f"{newest}. The one of {moment(due)} is being made."
    return "late", (f"Stale: the release of {moment(due)} is {span(now - due)} late. {newest}.")


def _ended(pipeline: Declared, seen: Evidence, now: int) -> str:
    """Text for a retired pipeline with no release to come; empty for others."""
    if seen.until is None or seen.silent or not seen.read:
        return ""
    windows = pipeline.windows
    last = windows.window(seen.until) - 1
    refused = now >= seen.until and windows.epoch(last) in seen.refused
    if not refused and (seen.last is None or seen.last < windows.times(last)[-1]):
        return ""
    newest = "" if seen.last is None else f" The last release is of {moment(seen.last)}."
    return f"Ended: it was retired at {moment(seen.until)}.{newest}"


def _refused(pipeline: Declared, seen: Evidence, now: int) -> int | None:
    """The refused epoch to which releases would belong now; past ones do not matter."""
    if not seen.refused:
        return None
    newest = max(seen.refused)
    if pipeline.external:
        last = pipeline.windows.epoch(pipeline.windows.window(seen.last or 0))
        return newest if newest >= last else None
    return newest if newest >= pipeline.windows.epoch(pipeline.windows.window(now)) else None


def moment(time: int) -> str:
    """Write a time, microseconds since 1970, for people.

    >>> moment(1_551_398_400_000_000)
    '2019-03-01 00:00 UTC'
    """
    at = datetime.fromtimestamp(time / SECOND, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at.second else f"{at:%Y-%m-%d %H:%M} UTC"


def span(length: int) -> str:
    """Write a length of time, in microseconds, in its largest unit.

    >>> span(7_200_000_000), span(86_400_000_000), span(-5)
    ('2 hours', '1 day', '0 seconds')
    """
    seconds = max(length, 0) // SECOND
    for name, size in UNITS:
        if seconds >= size:
            return _number(seconds // size, name)
    return "0 seconds"


def ago(length: int) -> str:
    """Write how long ago something was; ``length`` in microseconds."""
    return f"{span(length)} ago" if length >= SECOND else "just now"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
