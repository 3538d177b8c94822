"""Raw records as the judge reads them: each is one JSON object, by the documented rules."""

import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from .conditions import Bad, after, at, double, fulfils

REPORT = ("slot", "group", "theta", "code", "survey")
EPOCH_FACTORS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}


class Column(NamedTuple):
    """A summed field: values are clipped to [low, high] and counted in steps of ``grid``.

    ``where`` is the condition of its records; others count as 0. Without ``field``, a record is 1.
    """

    path: str  # its name: the field's, if there is no condition
    low: Fraction
    high: Fraction
    grid: Fraction
    where: dict[str, Any] | None = None
    field: str | None = None
    choice: dict[str, Any] | None = None  # a choice among several numbers, in place of the field


def columns(config: dict[str, Any]) -> list[Column]:
    """The distinct columns that a pipeline sums, in order."""
    found: dict[str, Column] = {}
    keys = [*config["key"], distinct(config)]
    chosen = {n: how for n, how in config.get("derive", {}).items() if n not in keys}
    for one in config["aggregate"]:
        if "where" in one:
            limits = [Fraction(one.get(name, n)) for n, name in enumerate(("low", "high", "grid"))]
            limits[2] = Fraction(one.get("grid", 1))
            more = one["where"], one.get("field"), chosen.get(one.get("field", ""))
            found.setdefault(one["column"], Column(one["column"], *limits, *more))
            if one["kind"] in ("variance", "stddev"):
                name, unit = counted(one), (Fraction(0), Fraction(1), Fraction(1))
                found.setdefault(name, Column(name, *unit, one["where"]))
        elif one["kind"] not in ("count", "distinct"):
            limits = (Fraction(one[name]) for name in ("low", "high", "grid"))
            more = None, one["field"], chosen.get(one["field"])
            found.setdefault(one["field"], Column(one["field"], *limits, *more))
    return list(found.values())


def counted(aggregate: dict[str, Any]) -> str:
    """Name of the column that counts the records of a variance with a condition."""
    return str(aggregate["column"]).removeprefix(aggregate["field"] + " ")


def distinct(config: dict[str, Any]) -> str | None:
    """The field whose distinct values are counted; None if there is none."""
    return next((a["field"] for a in config["aggregate"] if a["kind"] == "distinct"), None)


def key_bytes(parts: Sequence[Any]) -> bytes:
    """A key as canonical JSON."""
    return json.dumps(list(parts), separators=(",", ":"), ensure_ascii=False).encode()


class Event(NamedTuple):
    """One usable record."""

    time: int
    unit: tuple[Any, ...]
    key: bytes
    values: tuple[int, ...]  # clipped, in grid steps
    sign: int
    pair: bytes = b""  # key and value, if distinct values are counted
    value: float = 0.0  # if the mechanism is quantiles
    numbers: tuple[float, ...] = ()  # what other mechanisms read, in the order of `inputs_of`


def read(
    config: dict[str, Any], timestamp: int, value: bytes | None,
    stated: Callable[[tuple[Any, ...]], dict[str, Any]] = lambda unit: {},
) -> Event | None:  # fmt: skip
    """What a pipeline takes from a record; None for a dead letter or one that `where` leaves out.

    ``stated`` returns the attributes of a unit.
    """
    source = config["input"]
    try:
        if value is None or len(value) > source["max_record_bytes"]:
            raise Bad
        record = json.loads(value.decode(), parse_constant=refuse)
        if not isinstance(record, dict) or levels(record) > 64:
            raise Bad
        time = time_of(source["time"], timestamp, record)
        unit = tuple(at(record, path, (str, int)) for path in source["unit"])
        if None in unit or sum(len(str(part).encode()) for part in unit) > 4096:
            raise Bad
        if not fulfils(record, config.get("where")):
            return None
        derive = config.get("derive", {})
        parts = [
            attribute(derive[name], stated(unit))
            if derive.get(name, {}).get("kind") in ("attribute", "attribute_cases")
            else derived(derive[name], record, time)
            if name in derive
            else at(record, name, (str, int, bool))
            for name in config["key"]
        ]
        key, pair = key_bytes(parts), b""
        if (counted := distinct(config)) is not None:
            parts.append(derived(derive[counted], record, time) if counted in derive
                         else at(record, counted, (str, int, bool)))  # fmt: skip
            pair = key_bytes(parts)
        if None in parts or "" in parts or max(len(key), len(pair)) > 1024:
            raise Bad
        summed = [] if config["mechanism"]["kind"] == "topl" else columns(config)
        inside = {c.path: fulfils(record, c.where) for c in summed}
        for group in config.get("apart", ()):
            assert sum(inside[name] for name in group) <= 1, "one sensitivity is not enough"
        values = tuple(stepped(c, record, inside[c.path]) for c in summed)
        number = value_of(config, record)
        numbers = tuple(finite(record, path) for path in inputs_of(config))
        sign = sign_of(None if config["sign"] is None
                       else at(record, config["sign"], (str, int, bool)))  # fmt: skip
    except (Bad, ValueError, TypeError, OverflowError, RecursionError):
        return None
    return Event(time, unit, key, values, sign, pair, number, numbers)


def levels(value: Any) -> int:
    """Lists and objects within each other."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(levels, inner), default=0)


def attribute(how: dict[str, Any], known: dict[str, Any]) -> Any:
    """The value of a column that is an attribute of the unit, or a choice by attributes."""
    if how["kind"] == "attribute_cases":
        met = [holds(known, case) for case in how["cases"]]
        return json.loads(how["values"][(*met, True).index(True)])
    found = known.get(how["field"])
    return how["otherwise"] if found is None or isinstance(found, float) else found


def holds(known: dict[str, Any], condition: dict[str, Any]) -> bool:
    """Whether a unit fulfils a condition; an attribute of the wrong type fulfils none."""
    if condition["kind"] in ("every", "some"):
        parts = [holds(known, part) for part in condition["parts"]]
        return all(parts) if condition["kind"] == "every" else any(parts)
    try:
        return fulfils({"v": known.get(condition["field"])}, {**condition, "field": "v"})
    except Bad:
        return False


def value_of(config: dict[str, Any], record: Any) -> float:
    """The number whose quantiles the pipeline releases; 0 for other mechanisms."""
    if config["mechanism"]["kind"] != "quantile":
        return 0.0
    return finite(record, (config["inputs"] or {}).get("value", "value"))


def inputs_of(config: dict[str, Any]) -> list[str]:
    """Paths of the numbers that a mechanism with keys of its own reads, and of their time."""
    mechanism, given = config["mechanism"], config["inputs"] or {}
    names: tuple[str, ...] = {"pak": ("value",), "tops": ("value",), "topl": REPORT}.get(
        mechanism["kind"], ()
    )
    if "domain" in mechanism.get("parameters", ()):
        names = tuple(axis["name"] for axis in mechanism["parameters"]["domain"]["axes"])
    usual = {"value": columns(config)[0].field or ""} if names == ("value",) else {}
    timed = [given["time"]] if names == ("value",) and "time" in given else []
    return [given.get(name, usual.get(name, name)) for name in names] + timed


def finite(record: Any, path: str) -> float:
    """A finite number, which the record must have."""
    found = at(record, path, (int, float))
    number = float(math.nan if found is None else found)
    if not math.isfinite(number):
        raise Bad
    return number


def refuse(text: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have."""
    raise Bad(text)


def derived(how: dict[str, Any], record: Any, time: int) -> Any:
    """A key's column that is computed from the record; None if it has no value."""
    if how["kind"] == "timepart":
        moment = datetime.fromtimestamp(time // 1_000_000, ZoneInfo(how["zone"]))
        named: dict[str, Any] = {"quarter": (moment.month + 2) // 3, "weekday": moment.isoweekday()}
        named |= {"dow": moment.isoweekday() % 7, "dayofweek": moment.isoweekday() % 7 + 1}
        named["date"] = moment.date().isoformat()
        found = named.get(how["part"])
        return getattr(moment, how["part"], None) if found is None else found
    if how["kind"] == "cases":
        asked = [fulfils(record, case) for case in how["cases"]]  # all: any may be unreadable
        return json.loads(how["values"][(*asked, True).index(True)])
    if how["kind"] == "lookup":
        return value_in(how, str(at(record, how["field"], (str, int))))
    if how["kind"] == "textpart":
        return after(at(record, how["field"], (str,)), how["steps"])
    return band(how, at(record, how["field"], (int, float)))


def value_in(how: dict[str, Any], text: str) -> Any:
    """A table's value for a text, after the column's function."""
    value = how["rows"].get(text)
    if value is not None and "steps" in how:
        value = after(value, how["steps"]) or None
    elif value is not None and "width" in how:
        value = band(how, float(value))
    return how["otherwise"] if value is None else value


def band(how: dict[str, Any], number: float | None) -> Any:
    """The band of a number; None if it has none."""
    if number is None:
        return None
    width = Fraction(how["width"])
    if not math.isfinite(double(number) / float(width)):
        return None
    quotient = Decimal(repr(double(number) / float(width))).quantize(
        Decimal("1e-9"), ROUND_HALF_EVEN, Context(prec=400)
    )
    steps = math.floor(quotient + Decimal("0.5") if how["nearest"] else quotient)
    if abs(steps) > 2**53:
        return None
    edge = steps * width
    if width.denominator == 1:
        return int(edge)
    places = next(n for n in range(10) if (width * 10**n).denominator == 1)
    return f"{Decimal(edge.numerator) / Decimal(edge.denominator):.{places}f}"


def time_of(how: dict[str, Any], timestamp: int, record: Any) -> int:
    """Microseconds since 1970; only times before the year 10000 count."""
    if how["format"] == "record":
        time = timestamp * 1000
    elif how["format"] == "iso":
        moment = datetime.fromisoformat(at(record, how["field"], (str,)))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(how["zone"]))
        time = round(moment.timestamp() * 1_000_000)
    else:
        time = round(at(record, how["field"], (int, float)) * EPOCH_FACTORS[how["format"]])
    if not 0 <= time < 253_402_300_800_000_000:
        raise Bad
    return time


def stepped(column: Column, record: Any, inside: bool) -> int:
    """The value of a column in grid steps; 0 for a record that the condition leaves out."""
    if column.field is None:
        return int(inside)
    if column.choice is None:
        number = at(record, column.field, (int, float))
    else:
        number = choice(column.choice, record)
    return clipped(column, number) if inside else 0


def choice(how: dict[str, Any], record: Any) -> float | None:
    """The number of the first case that a record fulfils; None if its field is missing."""
    asked = [fulfils(record, case) for case in how["cases"]]
    numbers = how.get("numbers", how.get("values"))
    given = [at(record, one["field"], (int, float)) if isinstance(one, dict)
             else float(Fraction(one)) for one in numbers]  # fmt: skip
    return given[(*asked, True).index(True)]


def clipped(column: Column, value: float | None) -> int:
    """A value in grid steps, clipped to the limits and rounded to the nearest step."""
    number = float(math.nan if value is None else value)
    if not math.isfinite(number):
        raise Bad
    return round(min(max(number, float(column.low)), float(column.high)) / float(column.grid))


def sign_of(value: Any) -> int:
    """1 for an insertion, -1 for a deletion."""
    if isinstance(value, bool):
        return -1 if value else 1
    known = {None: 1, 1: 1, -1: -1, "insert": 1, "delete": -1}
    if value not in known:
        raise Bad
    return known[value]
