"""Raw records to typed columns: one precise reason per bad record, no payload in any message.

A decoder is built once per input from the union of the fields that its pipelines use; each
record is decoded once, whatever the number of pipelines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from hushstream.mechanisms.contract import I64, Mechanism
from hushstream.mechanisms.errors import ConfigError
from hushstream.mechanisms.keys import Keys
from numpy.typing import NDArray

MAX_KEY = 1024  # bytes of one encoded key
MAX_UNIT = 4096  # bytes of one encoded unit
LATEST = 253_402_300_800_000_000  # microseconds: the year 10000

Bad = dict[int, str]  # row -> reason, a word from `REASONS`

REASONS = (
    "null",
    "oversized",
    "malformed",
    "wrong_type",
    "missing_unit",
    "huge_unit",
    "missing_time",
    "bad_time",
    "missing_key",
    "empty_key",
    "huge_key",
    "missing_value",
    "not_finite",
    "bad_sign",
    "wrong_partition",
)


class Raw(NamedTuple):
    """One record of a raw topic."""

    offset: int
    timestamp: int  # milliseconds
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Column:
    """A numeric field with its clipping interval and public grid."""

    field: str
    low: Fraction
    high: Fraction
    grid: Fraction


@dataclass(frozen=True)
class InputFields:
    """How an input's records are read.

    Attributes:
        time: path of the event time, or None for the record's own timestamp.
        time_format: "iso", "epoch_s", "epoch_ms", "epoch_us" or "record".
        zone: of ISO times without an offset.
        unit: paths that together name the privacy unit.
    """

    time: str | None
    time_format: str
    zone: str
    unit: tuple[str, ...]
    max_record_bytes: int = 1_000_000


@dataclass(frozen=True)
class PipelineFields:
    """What a pipeline reads of each record."""

    key: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    sign: str | None = None  # "delete" where this field is true, -1 or "delete"
    inputs: Mapping[str, str] | None = None  # numeric inputs of the mechanism -> path
    allowed: frozenset[bytes] | None = None  # the public key list; other keys are dropped


class View(NamedTuple):
    """What one pipeline sees: rows of the decoded records, in log order."""

    rows: NDArray[np.intp]  # (n,) rows of the record list
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,)
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,)
    bad: Bad  # rows that this pipeline cannot use


class Decoded(NamedTuple):
    """All records of a list; ``bad`` rows are absent from every view."""

    time: I64  # (N,) microseconds; undefined in bad rows
    unit: list[Any]  # (N,) hashable unit values; None in bad rows
    views: tuple[View, ...]
    bad: Bad


class Decoder:
    """Typed decoding of JSON events, one record at a time, into columns."""

    def __init__(
        self,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
    ) -> None:
        self._fields = fields
        self._pipelines = tuple(pipelines)
        self._mechanisms = tuple(mechanisms)
        self._zone = ZoneInfo(fields.zone)
        paths = _paths(fields, pipelines)
        tree = _tree(paths)
        self._decode = msgspec.json.Decoder(_define(tree)).decode
        self._get = {path: _getter(path, tree) for path in paths}

    def decode(self, records: Sequence[Raw]) -> Decoded:
        """Decode a list of records; never raises for what a record contains."""
        events, bad = self._parse(records)
        time = self._times(events, records, bad)
        unit = self._units(events, bad)
        views = tuple(
            self._view(p, m, events, time, bad)
            for p, m in zip(self._pipelines, self._mechanisms, strict=True)
        )
        return Decoded(time, unit, views, bad)

    def _parse(self, records: Sequence[Raw]) -> tuple[list[Any], Bad]:
        decode, limit = self._decode, self._fields.max_record_bytes
        try:
            if max((len(r.value) for r in records), default=0) <= limit:  # type: ignore[arg-type]
                return [decode(r.value) for r in records], {}  # type: ignore[arg-type]
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
            pass  # at least one bad record: find out which, one by one
        bad: Bad = {}
        return [self._parse_one(row, r, bad) for row, r in enumerate(records)], bad

    def _parse_one(self, row: int, record: Raw, bad: Bad) -> Any:
        if record.value is None:
            bad[row] = "null"
        elif len(record.value) > self._fields.max_record_bytes:
            bad[row] = "oversized"
        else:
            try:
                return self._decode(record.value)
            except msgspec.ValidationError:
                bad[row] = "wrong_type"
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                bad[row] = "malformed"
        return None

    def _column(self, path: str, events: list[Any]) -> list[Any]:
        get = self._get[path]
        try:
            return [get(e) for e in events]
        except AttributeError:  # a bad record, or a parent that is null
            return [_safely(get, e) for e in events]

    def _times(self, events: list[Any], records: Sequence[Raw], bad: Bad) -> I64:
        how = self._fields.time_format
        if how == "record":
            values: list[Any] = [r.timestamp for r in records]
        else:
            values = self._column(self._fields.time or "", events)
        if how in _FACTORS and (quick := _scale(values, _FACTORS[how])) is not None:
            return quick
        convert = _iso(self._zone) if how == "iso" else _scaled(_FACTORS[how])
        out = np.zeros(len(events), np.int64)
        try:
            out[:] = [convert(v) for v in values]
            wrong = np.flatnonzero((out < 0) | (out >= LATEST))
        except (TypeError, ValueError, OverflowError):
            wrong = np.array([r for r, v in enumerate(values) if not _fits(convert, v, out, r)])
        for row in wrong.tolist():
            bad.setdefault(row, "missing_time" if values[row] is None else "bad_time")
        return out

    def _units(self, events: list[Any], bad: Bad) -> list[Any]:
        columns = [self._column(path, events) for path in self._fields.unit]
        units: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        if len(columns) == 1 and None not in units:
            return units
        for row, values in enumerate(zip(*columns, strict=True)):
            if None in values:
                bad.setdefault(row, "missing_unit")
        return units

    def _view(
        self, p: PipelineFields, m: Mechanism, events: list[Any], time: I64, bad: Bad
    ) -> View:
        own: Bad = {}
        value = self._values(p, events, bad, own)
        sign = self._signs(p, events, bad, own)
        if m.inputs:
            return self._encoded(p, m, events, time, (bad, own), sign)
        keys, key = self._keys(p, events, bad, own)
        rows = _good(len(events), bad, own)
        if p.allowed is not None:
            listed = np.fromiter((k in p.allowed for k in keys), bool, len(keys))
            rows = rows[listed[key[rows]]]
        used, key = np.unique(key[rows], return_inverse=True)
        return View(rows, keys.take(used), key.astype(np.intp), value[rows], sign[rows], own)

    def _keys(
        self, p: PipelineFields, events: list[Any], bad: Bad, own: Bad
    ) -> tuple[Keys, NDArray[np.intp]]:
        columns = [self._column(path, events) for path in p.key]
        values = list(zip(*columns, strict=True)) if columns else [()] * len(events)
        place: dict[tuple[Any, ...], int] = {}
        # True == 1 in Python: the type is part of the key.
        mixed = any(isinstance(v, bool) for c in columns for v in c)
        tagged = [(*v, *map(type, v)) for v in values] if mixed else values
        key = np.array([place.setdefault(t, len(place)) for t in tagged], np.intp)
        width = len(p.key)
        listed = [encode_key(v[:width]) for v in place]
        wrong = {i: r for i, v in enumerate(place) if (r := _key_fault(v[:width], listed[i]))}
        if wrong:
            for row in np.flatnonzero(np.isin(key, list(wrong))).tolist():
                if row not in bad:
                    own.setdefault(row, wrong[int(key[row])])
        return Keys.of(listed), key

    def _values(self, p: PipelineFields, events: list[Any], bad: Bad, own: Bad) -> I64:
        out = np.zeros((len(events), len(p.columns)), np.int64)
        for place, column in enumerate(p.columns):
            floats = self._floats(column.field, events, bad, own)
            clipped = np.clip(floats, float(column.low), float(column.high))
            out[:, place] = np.rint(clipped / float(column.grid)).astype(np.int64)
        return out

    def _floats(self, path: str, events: list[Any], bad: Bad, own: Bad) -> NDArray[np.float64]:
        values = self._column(path, events)
        floats = np.array([math.nan if v is None else v for v in values], np.float64)
        for row in np.flatnonzero(~np.isfinite(floats)).tolist():
            if row not in bad:
                own.setdefault(row, "missing_value" if values[row] is None else "not_finite")
            floats[row] = 0.0
        return floats

    def _signs(self, p: PipelineFields, events: list[Any], bad: Bad, own: Bad) -> NDArray[np.int8]:
        out = np.ones(len(events), np.int8)
        if p.sign is None:
            return out
        for row, value in enumerate(self._column(p.sign, events)):
            sign = _sign(value)
            if sign is None and row not in bad:
                own.setdefault(row, "bad_sign")
            out[row] = sign or 1
        return out

    def _encoded(
        self,
        p: PipelineFields,
        m: Mechanism,
        events: list[Any],
        time: I64,
        faults: tuple[Bad, Bad],
        sign: NDArray[np.int8],
    ) -> View:
        bad, own = faults
        columns: dict[str, NDArray[Any]] = {}
        for name in m.inputs:
            path = (p.inputs or {}).get(name, name)
            is_time = name == "time" and path not in self._get
            columns[name] = time if is_time else self._floats(path, events, bad, own)
        rows = _good(len(events), bad, own)
        encoded = m.encode({name: column[rows] for name, column in columns.items()})
        keep = np.flatnonzero(encoded.keep)
        used, key = np.unique(encoded.key[keep], return_inverse=True)
        rows = rows[keep]
        value = encoded.value[keep]
        return View(rows, encoded.keys.take(used), key.astype(np.intp), value, sign[rows], own)


def encode_key(values: Sequence[Any]) -> bytes:
    """A composite key as canonical JSON; injective, and readable again in a release."""
    return msgspec.json.encode(values)


def decode_key(key: bytes) -> list[Any]:
    """The values behind `encode_key`."""
    return msgspec.json.decode(key)  # type: ignore[no-any-return]


_SIGNS: dict[Any, int] = {None: 1, 1: 1, -1: -1, "insert": 1, "delete": -1}


def _sign(value: Any) -> int | None:
    if isinstance(value, bool):  # "deleted": true
        return -1 if value else 1
    return None if isinstance(value, float) else _SIGNS.get(value)


def _key_fault(values: tuple[Any, ...], encoded: bytes) -> str | None:
    if None in values:
        return "missing_key"
    if "" in values:
        return "empty_key"
    return "huge_key" if len(encoded) > MAX_KEY else None


def _good(n: int, *faults: Bad) -> NDArray[np.intp]:
    good = np.ones(n, bool)
    for bad in faults:
        good[list(bad)] = False
    return np.flatnonzero(good)


def _fits(convert: Callable[[Any], int], value: Any, out: I64, row: int) -> bool:
    try:
        out[row] = convert(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return bool(0 <= out[row] < LATEST)


def _iso(zone: tzinfo) -> Callable[[Any], int]:
    parse = datetime.fromisoformat

    def convert(value: Any) -> int:
        moment = parse(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return round(moment.timestamp() * 1_000_000)

    return convert


def _scaled(factor: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        return value * factor if type(value) is int else round(value * factor)

    return convert


def _scale(values: list[Any], factor: int) -> I64 | None:
    """All times at once where every one is an integer in range; else None."""
    try:
        times = np.array(values)
    except (ValueError, OverflowError):
        return None
    if times.dtype != np.int64 or (times < 0).any() or (times >= LATEST // factor).any():
        return None
    return times * factor


_FACTORS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1, "record": 1_000}


def _paths(fields: InputFields, pipelines: Sequence[PipelineFields]) -> dict[str, set[str]]:
    """Every path with the kinds of values that it may hold."""
    paths: dict[str, set[str]] = {}
    if fields.time is not None and fields.time_format != "record":
        paths.setdefault(fields.time, set()).add("str" if fields.time_format == "iso" else "number")
    for path in fields.unit:
        paths.setdefault(path, set()).update(("str", "int"))
    for pipeline in pipelines:
        for path in pipeline.key:
            paths.setdefault(path, set()).update(("str", "int", "bool"))
        for path in [c.field for c in pipeline.columns] + list((pipeline.inputs or {}).values()):
            paths.setdefault(path, set()).add("number")
        if pipeline.sign is not None:
            paths.setdefault(pipeline.sign, set()).update(("str", "int", "bool"))
    return paths


_KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "number": int | float}


def _tree(paths: Mapping[str, set[str]]) -> dict[str, Any]:
    """Nested field names with the type of each leaf; fields not named are skipped unparsed."""
    tree: dict[str, Any] = {}
    for path, kinds in paths.items():
        node = tree
        *parents, leaf = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"field {path!r}: {parent!r} is used as a value elsewhere")
        if isinstance(node.get(leaf), dict):
            raise ConfigError(f"field {path!r} is used as a parent of other fields elsewhere")
        kind: Any = None
        for name in sorted(kinds):
            kind = _KINDS[name] if kind is None else kind | _KINDS[name]
        node[leaf] = kind | None
    return tree


def _define(tree: Mapping[str, Any]) -> Any:
    fields = []
    names = {}
    for place, (name, kind) in enumerate(tree.items()):
        # Field names of JSON need not be identifiers.
        names[f"f{place}"] = name
        nested = _define(kind) | None if isinstance(kind, dict) else kind
        fields.append((f"f{place}", nested, None))
    return msgspec.defstruct("Event", fields, rename=names, gc=False)


def _getter(path: str, tree: Mapping[str, Any]) -> Callable[[Any], Any]:
    places = []
    node: Any = tree
    for step in path.split("."):
        places.append(f"f{list(node).index(step)}")
        node = node[step]
    return attrgetter(".".join(places))


def _safely(get: Callable[[Any], Any], event: Any) -> Any:
    try:
        return get(event)
    except AttributeError:
        return None


def utc(microseconds: int) -> str:
    """ISO text of a time, for records that people read."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    rest = microseconds % 1_000_000
    return f"{text}.{rest:06d}Z" if rest else f"{text}Z"
