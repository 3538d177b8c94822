"""Windows of a query: TUMBLE, truncated times, and the columns that name a window."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlglot import exp

from ....errors import ConfigError
from ....formats.events.decode import utc
from ...calendar import midnight
from ..columns import ROW_TIME, QuerySource, bare, meant_text, number_of, path_of
from ..parsing.spoken import HOPPED, SMOOTH
from ..refusal import call_of, refused, shown, single_quotes

_UNITS = {
    "millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w",
    "sec": "s", "min": "m", "hr": "h", "s": "s", "m": "m", "h": "h", "d": "d", "w": "w",
}  # fmt: skip
_CUT = ("DATE_TRUNC", "TIMESTAMP_TRUNC", "DATETIME_TRUNC")
_BINS = ("TIME_BUCKET", "DATE_BIN", "TIME_SLICE")
_OTHER = ("CUMULATE", "SLIDING")
_NAMES = {
    "WINDOW_START", "WINDOW_END", "WINDOW_TIME", "WINDOWSTART", "WINDOWEND", "WSTART", "WEND",
    "WINDOW", "WINDOW.START", "WINDOW.END",
}  # fmt: skip
_MONDAY, _SUNDAY = "1970-01-05T00:00:00Z", "1970-01-04T00:00:00Z"
_WEEKS = {
    "week": _MONDAY, "isoweek": _MONDAY, "week(monday)": _MONDAY, "week(sunday)": _SUNDAY,
}  # fmt: skip
_SHORT_WEEKS = ("w", "wk")
"""Words for a week from Monday in DATE_TRUNC."""
_CALENDAR = ("month", "quarter", "year")
_MONDAY_2000 = 946_857_600  # seconds from 1970 to 2000-01-03
_NAMED = [name for name in (*_UNITS, *_CALENDAR) if name != "millisecond"]
"""Units that a message may suggest."""
_TRUNC = {
    **dict.fromkeys(("MM", "MON"), "month"), **dict.fromkeys(("YYYY", "YY", "Y"), "year"),
    "Q": "quarter", "DD": "day", "IW": "week", "HH24": "hour", "MI": "minute",
}  # fmt: skip
"""Oracle's names of units."""
_DAYS = "is a day in Snowflake, a week in Oracle: write 'DD' for days, 'IW' for weeks from Monday"
_UNLIKE = {
    **dict.fromkeys(("D", "DY", "DAY"), _DAYS),
    "W": "is a week from Monday in Snowflake and from the month's first day in Oracle: write 'IW'",
    "WW": "begins weeks on the year's first day in Oracle: write 'IW' for weeks from Monday",
}
"""Units of TRUNC that mean no week from Monday, or differ between systems."""
_MOST_DIGITS = 12  # digits of a length; ten years are 315,360,000,000 milliseconds
_LONG = ("day", "week", *_CALENDAR)
_WRAPPED = {
    "TIMESTAMP_MILLIS", "TIMESTAMP_SECONDS", "TIMESTAMP_MICROS", "TO_TIMESTAMP",
    "TO_TIMESTAMP_LTZ", "FROM_UNIXTIME", "TIMESTAMP", "DATETIME",
}  # fmt: skip


class Windowed(NamedTuple):
    """A window: its length, its origin if it is not midnight of 1970-01-01, its zone.

    If windows overlap, one begins every ``hop``.
    """

    length: str
    origin: str | None = None
    zone: str | None = None
    hop: str | None = None

    def settings(self) -> dict[str, Any]:
        found = {
            "length": self.length, "hop": self.hop, "origin": self.origin, "zone": self.zone
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def duration_of(node: exp.Expr) -> str:
    """The length of an INTERVAL, as in settings; raises `QueryError` if it has none."""
    if isinstance(node, exp.Literal) and node.is_string:  # '10 minutes', of Spark
        node = exp.Interval(this=node)
    if not isinstance(node, exp.Interval):
        raise refused(node, "must be an INTERVAL such as INTERVAL '1' DAY")
    amount, unit = str(node.this.name if node.this else ""), node.args.get("unit")
    found = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", amount)
    word = (unit.name if unit is not None else found.group(2) if found else "").lower()
    short = _UNITS.get(word.removesuffix("s") or word)
    calendar = word.removesuffix("s") in _CALENDAR
    digits = "" if found is None else found.group(1).lstrip("0")
    if found is None or not digits or (short is None and not calendar):
        near = difflib.get_close_matches(word, _NAMED, 1, 0.6)
        hint = f"did you mean {near[0].upper()}? it " if near and short is None else ""
        raise refused(
            node, hint + "must be a positive number of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, "
                  "QUARTER, YEAR"
        )  # fmt: skip
    if len(digits) > _MOST_DIGITS:
        raise refused(node, "is longer than any window: 3650 days are the most")
    count = int(digits)
    if short is None:
        return f"{count} {word.removesuffix('s')}{'s' * (count > 1)}"
    if short == "ms":
        if count % 1000:
            raise refused(node, "must be whole seconds")
        return f"{count // 1000}s"
    return f"{count}{short}"


def names_window(node: exp.Expr, table: Sequence[str]) -> bool:
    """Whether a column names the window of a row, which every release does anyway."""
    node = bare(node)
    if isinstance(node, exp.Anonymous):
        return node.name.upper().startswith(
            ("TUMBLE", HOPPED, "HOP_", "WINDOW_", "SESSION_START", "SESSION_END")
        )
    path = path_of(node, table)
    return path is not None and path.upper() in _NAMES


def window_of(node: exp.Expr, source: QuerySource, table: Sequence[str]) -> Windowed | None:
    """The window that an expression of GROUP BY states; None if it states none.

    Raises `QueryError` for another kind of window, or one on anything but the event time.
    """
    node = bare(node)
    while isinstance(node, exp.Cast | exp.TryCast):
        node = bare(node.this)
    if isinstance(node, exp.Floor) and node.args.get("to") is not None:
        zone = check_time(node, node.this, source, table)
        return _whole(node, node.args["to"].name, zone, sunday=False)
    if not isinstance(node, exp.Anonymous):
        return None
    name, given = node.name.upper(), node.expressions
    if name in _OTHER:
        raise refused(node, f"{SMOOTH} TUMBLE(time, INTERVAL '1' DAY)")
    if name in ("HOP", "HOPPING") and len(given) != 3:
        raise refused(node, "must be HOP(time, INTERVAL '1' HOUR, INTERVAL '24' HOUR)")
    if name in ("HOP", "HOPPING", HOPPED):
        check_fixed(node, given[0], source, table)
        return _hopping(node, *(given[2:0:-1] if name == HOPPED else given[1:]))
    if name.startswith("TUMBLE"):
        return _tumbling(node, given, source, table)
    if name == "TRUNC" and len(given) == 2 and isinstance(given[1], exp.Literal):
        zone, unit = check_time(node, given[0], source, table, days=True), given[1].name.upper()
        if unit in _UNLIKE:  # of Oracle, Snowflake and Spark
            raise refused(node, f"{unit} {_UNLIKE[unit]}")
        return _whole(node, _TRUNC.get(unit, given[1].name), zone, sunday=False)
    if name in _CUT:
        return _truncated(node, given, source, table)
    if name == "TIME_SLICE" and len(given) in (3, 4):  # of Snowflake: a time, a number, its unit
        check_fixed(node, given[0], source, table)
        return _sliced(node, *given[1:])
    if name in _BINS:
        if len(given) < 2:
            raise refused(node, f"needs a length and a time: {name}(INTERVAL '1 hour', time)")
        time, length = (given[1], given[0]) if path_of(given[0], table) is None else given[:2]
        if len(given) > 2:
            raise refused(node, "leave out the origin: windows begin at whole multiples of 1970")
        check_fixed(node, time, source, table)
        return _bucket(name, duration_of(length))
    return None


def _bucket(name: str, length: str) -> Windowed:
    """Buckets of a length: those of TIME_BUCKET count from a Monday, 2000-01-03, as elsewhere."""
    fixed = re.fullmatch(r"\d+[smhdw]", length) is not None
    moved = _MONDAY_2000 % _seconds(length) if fixed and name == "TIME_BUCKET" else 0
    return Windowed(length, utc(moved * 1_000_000) if moved else None)


def _sliced(
    node: exp.Expr, number: exp.Expr, unit: exp.Expr, end: exp.Expr | None = None
) -> Windowed:
    """Slices of Snowflake: those of weeks count from the Monday before 1970."""
    if end is not None and end.name.upper() not in ("START", "END"):
        raise refused(node, "the fourth argument must be 'START' or 'END', which name one window")
    length = duration_of(exp.Interval(this=number, unit=exp.var(unit.name)))
    weeks = re.fullmatch(r"(\d+)w", length)
    if weeks is None:
        return Windowed(length)
    return Windowed(length, utc((int(weeks[1]) * 7 - 3) * 86_400_000_000))


def _tumbling(
    node: exp.Anonymous, given: Sequence[exp.Expr], source: QuerySource, table: Sequence[str]
) -> Windowed:
    if len(given) > 2:
        raise refused(node, f"is moved: {SMOOTH} TUMBLE(time, INTERVAL '1' DAY)")
    if len(given) != 2:
        raise refused(node, "must be TUMBLE(time, INTERVAL '1' DAY)")
    check_fixed(node, given[0], source, table)
    return Windowed(duration_of(given[1]))


def _hopping(node: exp.Expr, hop: exp.Expr, length: exp.Expr) -> Windowed:
    """Windows of a length that begin every ``hop``."""
    every, whole = duration_of(hop), duration_of(length)
    if _seconds(every) > _seconds(whole):
        raise refused(
            node,
            f"windows of {whole} every {every} leave gaps: HOP takes the time, the hop and the "
            f"length, HOP(time, INTERVAL '1' HOUR, INTERVAL '24' HOUR)",
        )
    return Windowed(whole) if every == whole else Windowed(whole, hop=every)


def _seconds(length: str) -> int:
    """Seconds of a length; approximate for calendar lengths."""
    found = re.fullmatch(r"(\d+)(s|m|h|d|w)", length)
    sizes = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    return int(found[1]) * sizes[found[2]] if found else 2_592_000


def check_fixed(node: exp.Expr, time: exp.Expr, source: QuerySource, table: Sequence[str]) -> None:
    """Refuse (`QueryError`) anything but the event time, or a zone: lengths are fixed."""
    if (zone := check_time(node, time, source, table)) is not None:
        raise refused(
            node, f"windows in a zone are of the calendar: DATE_TRUNC('day', t, '{zone}')"
        )


def _truncated(
    node: exp.Anonymous, given: Sequence[exp.Expr], source: QuerySource, table: Sequence[str]
) -> Windowed:
    """A time truncated to a unit: a text as first argument, or a word as last."""
    if len(given) not in (2, 3):
        raise refused(node, f"must be {node.name.upper()}('day', time)")
    first = isinstance(given[0], exp.Literal)
    unit, time = given[:2] if first else (given[1], given[0])
    week = isinstance(unit, exp.Week)
    word = f"week({unit.this.name})" if week else unit.name
    word = "week" if first and word.lower() in _SHORT_WEEKS else word
    days = word.lower().removesuffix("s") in (*_LONG, *_WEEKS)
    zone = check_time(node, time, source, table, days=days)
    if len(given) == 3:
        if (named := meant_text(given[2])) is not None:
            raise refused(node, single_quotes(named))
        if zone is not None or not (isinstance(given[2], exp.Literal) and given[2].is_string):
            raise refused(given[2], "must name a time zone, and one alone, such as 'Europe/Berlin'")
        zone = given[2].name
    return _whole(node, word, zone, sunday=not first)


def _whole(node: exp.Expr, unit: str, zone: str | None, *, sunday: bool) -> Windowed:
    if zone is None or zone.upper() in _UTC:
        return _cut(node, unit, day_first=sunday)
    return _zoned(node, unit.lower().removesuffix("s"), zone, sunday=sunday)


def _zoned(node: exp.Expr, word: str, zone: str, *, sunday: bool) -> Windowed:
    """A time truncated to days or more in a zone; ``sunday``: whether weeks begin on Sunday."""
    if word in _WEEKS:
        if word != "week(sunday)" and not (sunday and word == "week"):
            return Windowed("1 week", None, zone)
        try:
            begin = midnight(zone, date(1970, 1, 4))
        except ConfigError as error:
            raise refused(node, str(error)) from error
        return Windowed("1 week", utc(begin), zone)
    if word not in _LONG:
        instead = "windows in a zone are DAY, WEEK, MONTH, QUARTER, YEAR; for others leave it out"
        raise refused(node, instead)
    return Windowed(f"1 {word}", None, zone)


def _cut(node: exp.Expr, unit: str, *, day_first: bool) -> Windowed:
    """A truncated time; ``day_first``: whether a plain week begins on Sunday, as in BigQuery."""
    word = unit.lower().removesuffix("s")
    if word in _WEEKS:
        return Windowed("7d", _SUNDAY if day_first and word == "week" else _WEEKS[word])
    if word in _CALENDAR:
        return Windowed(f"1 {word}")
    short = _UNITS.get(word)
    if short is None or short in ("ms", "w"):
        near = difflib.get_close_matches(word, _NAMED, 1, 0.6)
        hint = f"did you mean {near[0].upper()}? " if near and len(word) > 2 else ""
        instead = "cut to SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER or YEAR"
        raise refused(node, hint + instead)
    return Windowed(f"1{short}")


def check_time(
    node: exp.Expr,
    given: exp.Expr,
    source: QuerySource,
    table: Sequence[str],
    *,
    days: bool = False,
) -> str | None:
    """Refuse (`QueryError`) a time that is not the input's event time; return its zone.

    ``days``: whether a date suffices, because the window is at least a day.
    """
    inner, zone = _unwrapped(given, days)
    path = path_of(inner, table)
    if source.time is None:
        if path is None or path.upper() != ROW_TIME:
            instead = f"input {source.name} has the time of its records: write {ROW_TIME}"
            raise refused(node, instead)
    elif path != source.time:
        if isinstance(node, exp.Anonymous) and node.name.upper() in _CUT:
            unit = path_of(given, table) or ""
            if unit.lower() in (*_UNITS, *_CALENDAR):
                raise refused(node, f"write {node.name.upper()}('{unit}', {source.time})")
        raise refused(
            node, f"the event time of input {source.name} is {source.time}: write {source.time}"
        )
    return zone


def _unwrapped(node: exp.Expr, days: bool) -> tuple[exp.Expr, str | None]:
    """A time without conversions to a timestamp, and the zone that it is converted to.

    The input declares how the time itself is written.
    """
    whole, zones = node, list[str]()
    while True:
        node = bare(node)
        if isinstance(node, exp.Cast | exp.TryCast) and (
            node.to.this in _TIMES or (days and node.to.this == exp.DataType.Type.DATE)
        ):
            node = node.this
        elif isinstance(node, exp.AtTimeZone):
            zones.append(node.args["zone"].name)
            node = node.this
        elif isinstance(node, exp.Date | exp.Datetime) and (days or isinstance(node, exp.Datetime)):
            zone = node.args.get("zone") or node.args.get("expression")
            zones += [] if zone is None else [zone.name]
            node = node.this
        elif type(node) in _MADE or call_of(node) in _WRAPPED:
            given = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
            if not given or given[0] is None:
                raise refused(node, "needs the event time in its brackets")
            node = bare(given[0])
            if isinstance(node, exp.Div) and number_of(bare(node.expression)) in _DIVISORS:
                node = node.this
        else:
            break
    if len(zones) == 2 and zones[1].upper() in _UTC:
        zones.pop()  # how Postgres converts a UTC time to a zone
    if len(zones) > 1:
        raise refused(whole, f"name one time zone: {shown(node)} AT TIME ZONE '{zones[0]}'")
    return node, zones[0] if zones else None


_DIVISORS = (1000, 1_000_000)
"""Numbers of milliseconds and microseconds in a second."""
_UTC = ("UTC", "ETC/UTC", "GMT", "Z", "+00", "+00:00")
_TIMES = {
    exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.DATETIME, exp.DataType.Type.TIMESTAMPNTZ,
}  # fmt: skip
_MADE = (
    exp.UnixToTime, exp.Timestamp, exp.StrToTime, exp.TsOrDsToDate, exp.TsOrDsToTimestamp,
    exp.UnixToStr,
)  # fmt: skip
