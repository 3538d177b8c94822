"""Values without a TOML type: durations, instants, exact numbers, names."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NewType

from ...digits import MOST_DIGITS, NOT_HUGE, huge

Duration = NewType("Duration", int)  # microseconds
Instant = NewType("Instant", int)  # microseconds since 1970, UTC


class Secret(str):
    """A string that never appears in its own or its containers' representations."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Loose(str):
    """The text of an environment variable or flag; the setting determines its type."""

    __slots__ = ()


Check = Callable[[Any], str | None]  # None if the value is valid, else the rule that it breaks

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_LONGEST = 10**8 * _UNITS["d"]  # above, microseconds do not fit into 64 bits
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern}\s*)+")


def parse_duration(text: str) -> Duration:
    """Return the microseconds of a duration such as ``"250ms"``, ``"1h30m"`` or ``"31d"``.

    Raises:
        ValueError: the text is not a duration, finer than a microsecond, or beyond 10⁸ days.

    >>> parse_duration("1h30m")
    5400000000
    """
    if not is_duration(text):
        raise ValueError('must be a duration such as "250ms", "5s", "1h30m" or "31d"')
    if len(text) > MOST_DIGITS:
        raise ValueError(f"is no duration: it has more than {MOST_DIGITS} characters")
    total = sum(Fraction(n) * _UNITS[unit] for n, unit in _PART.findall(text))
    if total > _LONGEST:
        raise ValueError("must be at most 100000000d")
    if total.denominator != 1:
        raise ValueError("is finer than a microsecond")
    return Duration(int(total))


def is_duration(text: str) -> bool:
    """Whether a text has the form of a duration; its value may be too large or too fine."""
    return _DURATION.fullmatch(text.strip()) is not None


ZERO = Duration(0)
ONE_SECOND = parse_duration("1s")
FIVE_SECONDS = parse_duration("5s")
TEN_SECONDS = parse_duration("10s")
THIRTY_SECONDS = parse_duration("30s")
ONE_MINUTE = parse_duration("1m")
FIVE_MINUTES = parse_duration("5m")
SIX_HOURS = parse_duration("6h")
SEVEN_DAYS = parse_duration("7d")
UNIX_EPOCH = Instant(0)


def format_duration(duration: int) -> str:
    """Return the shortest text that `parse_duration` turns into ``duration``.

    >>> format_duration(5_400_000_000), format_duration(0)
    ('1h30m', '0s')
    """
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, duration = divmod(duration, _UNITS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def counted(number: float, what: str) -> str:
    """Write a number of things, rounded to an integer.

    >>> counted(1, "unit"), counted(2000, "unit")
    ('1 unit', '2,000 units')
    """
    text = f"{number:,.0f}"
    return f"{text} {what}" if text == "1" else f"{text} {what}s"


def parse_instant(value: object) -> Instant:
    """Return the microseconds since 1970 of a TOML date-time or an ISO text; UTC if unzoned.

    Raises:
        ValueError: the value is not a point in time.

    >>> parse_instant("1970-01-02T00:00:00Z")
    86400000000
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        raise ValueError("must be a point in time such as 2019-03-01T00:00:00Z")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Instant((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def format_instant(instant: int) -> str:
    """Return the ISO text that `parse_instant` turns into ``instant``.

    >>> format_instant(86_400_000_000), format_instant(1)
    ('1970-01-02T00:00:00Z', '1970-01-01T00:00:00.000001Z')
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    return moment.isoformat().replace("+00:00", "Z")


def parse_fraction(value: object) -> Fraction:
    """Return a number exactly as written: 0.1 is one tenth; ``"1/3"`` is allowed as text.

    Raises:
        ValueError: the value is not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError("must be a number")
    if huge(str(value)):  # refuse hundreds of millions of digits, too
        raise ValueError(NOT_HUGE)
    try:
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise ValueError("must be a finite number") from error


def beyond_doubles(value: object) -> bool:
    """Whether a value is a number beyond the range of doubles.

    >>> beyond_doubles(Fraction(10) ** 308), beyond_doubles(-(10**309)), beyond_doubles("1e309")
    (False, True, False)
    """
    if not isinstance(value, int | Fraction):
        return False
    try:
        float(value)
    except OverflowError:
        return True
    return False


def above(least: float) -> Check:
    return lambda value: None if value > least else f"must be greater than {least}"


def _above_rounding(value: Fraction) -> str | None:
    """Refuse a number so small that it is 0 wherever it is shown or computed with as a double."""
    return None if float(value) else "is too small: it must be greater than 0 as a double"


def within(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must lie between {low} and {high}"


def span(low: str, high: str) -> Check:
    """Check that a duration lies between two others, given as text."""
    ends = parse_duration(low), parse_duration(high)
    return lambda value: (
        None if ends[0] <= value <= ends[1] else f"must lie between {low} and {high}"
    )


def matches(pattern: str, rule: str) -> Check:
    """Check that a whole text matches a pattern."""
    compiled = re.compile(pattern)
    return lambda value: None if compiled.fullmatch(value) else rule


Name = Annotated[
    str,
    matches(
        r"[A-Za-z0-9][A-Za-z0-9-]{0,62}",
        "must be 1 to 63 letters, digits and hyphens, not starting with a hyphen",
    ),
]
TopicName = Annotated[
    str,
    matches(
        r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}",
        "must be 1 to 249 letters, digits, dots, hyphens and underscores",
    ),
]
ValueName = Annotated[
    str, matches(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", "must be 1 to 63 letters, digits, hyphens and _")
]
_INDEX = re.compile(r"\[(?:-?\d+|\*)\]")  # of JSONPath
_QUOTED = re.compile(r"""\[(["'])(.*?)\1\]""")


def _json_path(path: str) -> str | None:
    """Refuse what means something in JSONPath, where paths here would take it as a name."""
    rooted = re.split(r"[.\[]", path)[0] == "$"
    if not (rooted or _INDEX.search(path) or _QUOTED.search(path)):
        return None
    plain = _QUOTED.sub(r".\2", path).removeprefix("$").strip(".")
    if not _STEPS.fullmatch(plain) or _INDEX.search(plain):
        return "is JSONPath: write names with dots, a.b.c; no path reads elements of a list"
    return f"is JSONPath: write {plain}"


_STEPS = re.compile(r"[^.]+(\.[^.]+)*")
FieldPath = Annotated[
    str, matches(_STEPS.pattern, "must be a field name or a path such as a.b.c"), _json_path
]


_HOST_PORT = matches(
    r"((\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):\d{1,5}(,|$))+(?<!,)",
    "must be host:port, or several separated by commas",
)


def address_rule(addresses: str) -> str | None:
    """Return the rule that addresses of servers break; None if they are valid."""
    if (rule := _HOST_PORT(addresses)) is not None:
        return rule
    ports = [int(one.rpartition(":")[2]) for one in addresses.split(",")]
    wrong = [port for port in ports if not 1 <= port <= 65_535]
    return f"names port {wrong[0]}: write one from 1 to 65535" if wrong else None


Addresses = Annotated[str, address_rule]
Extensions = Annotated[
    str,
    matches(
        r"[A-Za-z]+=[\x21-\x2b\x2d-\x7e]+(,[A-Za-z]+=[\x21-\x2b\x2d-\x7e]+)*",
        "must be name=value, or several separated by commas",
    ),
]
Words = Annotated[
    tuple[str, ...], lambda words: None if words and words[0] else "must name a program"
]
Partitions = Annotated[int, within(1, 10_000)]
INPUT: Literal["input"] = "input"
"""A number of partitions that follows those of the inputs."""
Port = Annotated[int, within(0, 65_535)]
Epsilon = Annotated[Fraction, above(0), within(0, 1000), _above_rounding]
Delta = Annotated[Fraction, within(0, 0.5)]
Paths = tuple[str, ...]
