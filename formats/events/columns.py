"""Decoding many records at once, with the answers of `Decoder` and no object per record.

A compiled scanner finds the needed fields of every record that is plain enough. All other records
go through `Decoder` itself, one list of them, and the two results are merged in log order.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64, compact
from ...mechanisms.contract import UNIT, Mechanism
from ...mechanisms.keys import Keys, concat
from ..schemas.schema import Known
from .binary.scanner import BinaryScanner
from .compiled import possible
from .expressions.derived import Derived
from .expressions.filtered import ScannedFields
from .expressions.widened import Widened, computed
from .fields import InputFields, PipelineFields
from .keys import MAX_KEY
from .raw import RawRecord, timestamps_of
from .scanned import Flags, JsonScanner, Scanned, Scanner
from .times import FACTORS, LATEST
from .types import FALSE, INTEGER, REAL, ROLES, TEXT, TRUE
from .views import MAX_UNIT, Decoded, View

LEAST = 64  # records; for fewer, arrays cost more than objects
_KIND = {"str": (TEXT,), "int": (INTEGER,), "bool": (TRUE, FALSE), "number": (INTEGER, REAL)}
Rows = NDArray[np.intp]
Each = Callable[[Sequence[RawRecord], Known], Decoded]


class UnitTexts(Sequence[Any]):
    """The unit of each record, as text in one buffer; other values beside it.

    Attributes:
        data: the buffer.
        low, high: (n,) where each text stands.
        integer: (n,) whether it is the text of an integer.
        rest: values of the rows that the buffer does not hold; None stands for no unit.
    """

    def __init__(
        self, data: NDArray[np.uint8], low: I64, high: I64, integer: Flags, rest: dict[int, Any]
    ) -> None:
        self.data, self.low, self.high, self.integer, self.rest = data, low, high, integer, rest

    def __len__(self) -> int:
        return len(self.low)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> list[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self[n] for n in range(*row.indices(len(self)))]
        if row in self.rest:
            return self.rest[row]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        text = self.data[self.low[row] : self.high[row]].tobytes().decode()
        return int(text) if self.integer[row] else text

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))


class ColumnDecoder:
    """Decodes lists of events by columns.

    Args:
        fields: of the input.
        pipelines, mechanisms: of each pipeline.
        kinds: every path that is read, with the kinds of values that it may hold.
        each: decodes, one by one, every record that the scanner leaves out.
    """

    def __init__(
        self,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
        kinds: Mapping[str, set[str]],
        each: Each,
    ) -> None:
        self._fields = fields
        self._pipelines, self._mechanisms = pipelines, mechanisms
        self._each = each
        paths = sorted(kinds)
        self._derived = sorted({d for p in pipelines for d in p.derived.values()}, key=repr)
        every = [*paths, *self._derived]
        self._place: dict[str | Derived, int] = {one: n for n, one in enumerate(every)}
        binary = fields.format in ("avro", "protobuf")
        self._scanner: Scanner = (
            BinaryScanner(fields, kinds) if binary else JsonScanner(fields, paths)
        )
        self._seed = secrets.randbits(62) | 1

    @classmethod
    def of(
        cls,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
        kinds: Mapping[str, set[str]],
        each: Each,
    ) -> ColumnDecoder | None:
        """Make one, where loops can be compiled and it knows all that is asked; else None."""
        known = (
            possible()
            and len(fields.unit) == 1
            and fields.time_format in FACTORS
            # Parts of a value are found in Avro alone, where they stand in order.
            and (fields.format == "avro" or not any("." in path for path in kinds))
            and all(p.sign is None for p in pipelines)
            and not any(UNIT in m.inputs for m in mechanisms)
        )
        return cls(fields, pipelines, mechanisms, kinds, each) if known else None

    def decode(
        self, records: Sequence[RawRecord], known_ids: Known = MappingProxyType({})
    ) -> Decoded:
        """Decode a list of records, as `Decoder.decode` does.

        Args:
            records: of one partition.
            known_ids: what ids of schemas stand for, where values begin with one.
        """
        found = self._scanner.scan(records, known_ids)
        known = found.known
        time = self._times(found, records, known)
        if self._derived:
            found = self._widened(found, time, known)
        unit, integer = self._units(found, known)
        every = zip(self._pipelines, self._mechanisms, strict=True)
        parts = [self._part(p, m, found, time, known) for p, m in every]
        rows = np.flatnonzero(~known)
        low, high = unit
        units = UnitTexts(found.data, low, high, integer, {})
        views = [part.view(known) for part in parts]
        if len(rows) == 0:
            return Decoded(time, units, tuple(views), {})
        rest = self._each([records[row] for row in rows.tolist()], known_ids)
        time[rows] = rest.time
        units.rest.update(zip(rows.tolist(), rest.unit, strict=True))
        bad = {int(rows[row]): reason for row, reason in rest.bad.items()}
        merged = [_merged(one, other, rows) for one, other in zip(views, rest.views, strict=True)]
        return Decoded(time, units, tuple(merged), bad)

    def _widened(self, found: Scanned, time: I64, known: Flags) -> Scanned:
        """The findings with derived columns behind the fields."""
        read = ScannedFields(found, self._place, known)
        return Widened(found, [computed(one, time, read) for one in self._derived])

    def _is(self, found: Scanned, path: str | Derived, role: str) -> Flags:
        """Rows in which a field holds a value that its role allows."""
        kinds = [kind for name in ROLES[role] for kind in _KIND[name]]
        return np.isin(found.kind[:, self._place[path]], kinds)

    def _times(self, found: Scanned, records: Sequence[RawRecord], known: Flags) -> I64:
        factor = FACTORS[self._fields.time_format]
        if self._fields.time_format == "record":
            out = timestamps_of(records)
        else:
            place = self._place[self._fields.time or ""]
            known &= found.kind[:, place] == INTEGER
            out = found.integers(place, known)
        known &= (out >= 0) & (out < LATEST // factor)
        return np.where(known, out, 0) * factor

    def _units(self, found: Scanned, known: Flags) -> tuple[tuple[I64, I64], Flags]:
        path = self._fields.unit[0]
        place = self._place[path]
        low, high = found.low[:, place], found.high[:, place]
        known &= self._is(found, path, "unit") & (high - low <= MAX_UNIT)
        return (low, high), found.kind[:, place] == INTEGER

    def _part(
        self, p: PipelineFields, m: Mechanism, found: Scanned, time: I64, known: Flags
    ) -> _Part:
        """Read what one pipeline needs; rows that it cannot read are known no more."""
        paths = {column.field for column in p.columns}
        names = {name: path for name in m.inputs if (path := _path(p, name)) is not None}
        floats = {path: self._floats(path, found, known) for path in paths | set(names.values())}
        by_record = not m.inputs or m.keys.of_record
        keys = self._keys(p, found, known) if by_record else None
        wanted = None
        if p.where is not None:
            wanted = p.where.fulfilled(ScannedFields(found, self._place, known))
        return _Part(p, m, floats, names, time, keys, wanted, self._seed)

    def _floats(self, path: str, found: Scanned, known: Flags) -> NDArray[np.float64]:
        known &= self._is(found, path, "number")
        return found.numbers(self._place[path], known)

    def _keys(self, p: PipelineFields, found: Scanned, known: Flags) -> Keys:
        """The canonical key of each row; only those of rows that stay known mean anything."""
        from .key_scan import lengths, texts

        columns = [p.derived.get(path, path) for path in p.key]
        fields = np.array([self._place[path] for path in columns], np.int64)
        for path in columns:
            place = self._place[path]
            empty = (found.kind[:, place] == TEXT) & (found.high[:, place] == found.low[:, place])
            known &= self._is(found, path, "key") & ~empty
        offsets = np.zeros(len(known) + 1, np.int64)
        widths = np.empty(len(known), np.int64)
        lengths(found.kind, found.low, found.high, fields, known, widths)
        known &= widths <= MAX_KEY
        np.cumsum(np.where(known, widths, 0), out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        texts(found.data, found.kind, found.low, found.high, fields, known, offsets, data)
        return Keys(data, offsets)


class _Part(NamedTuple):
    """One pipeline's columns of all rows, of which those that are known mean something."""

    fields: PipelineFields
    mechanism: Mechanism
    floats: dict[str, NDArray[np.float64]]
    names: dict[str, str]  # input of the mechanism -> path
    time: I64
    keys: Keys | None
    wanted: Flags | None  # rows that fulfil the pipeline's condition; None: there is none
    seed: int

    def view(self, known: Flags) -> View:
        """The rows that are known, as the pipeline sees them."""
        known = known if self.wanted is None else known & self.wanted
        value = np.zeros((len(known), len(self.fields.columns)), np.int64)
        for place, column in enumerate(self.fields.columns):
            clipped = np.clip(self.floats[column.field], float(column.low), float(column.high))
            value[:, place] = np.rint(clipped / float(column.grid)).astype(np.int64)
        rows = np.flatnonzero(known)
        if self.keys is None:
            return self._encoded(rows)
        keys, key = self._numbered(self.keys, known, rows)
        if self.fields.allowed is not None:
            listed = np.fromiter((k in self.fields.allowed for k in keys), bool, len(keys))
            kept = listed[key]
            used, key = compact(key[kept], len(keys))
            rows, keys = rows[kept], keys.take(used)
        values = value[rows]
        if self.mechanism.inputs:
            encoded = self.mechanism.encode(self._inputs(rows))
            used, key = compact(key[encoded.keep], len(keys))
            rows, keys, values = rows[encoded.keep], keys.take(used), encoded.value[encoded.keep]
        return View(rows, keys, key, values, np.ones(len(rows), np.int8), {})

    def _numbered(self, all_: Keys, known: Flags, rows: Rows) -> tuple[Keys, Rows]:
        from .key_scan import numbers

        size = 1 << max(int(len(known) * 2.5).bit_length(), 4)
        first, number = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
        table = np.full(size, -1, np.int64)
        found = numbers(all_.data, all_.offsets, known, self.seed, table, first, number)
        return all_.take(first[:found]), number[rows]

    def _inputs(self, rows: Rows) -> dict[str, NDArray[Any]]:
        paths = {name: self.names.get(name) for name in self.mechanism.inputs}
        every = {n: self.time if p is None else self.floats[p] for n, p in paths.items()}
        return {name: column[rows] for name, column in every.items()}

    def _encoded(self, rows: Rows) -> View:
        encoded = self.mechanism.encode(self._inputs(rows))
        keep = np.flatnonzero(encoded.keep)
        used, key = np.unique(encoded.key[keep], return_inverse=True)
        kept = rows[keep]
        sign = np.ones(len(kept), np.int8)
        return View(
            kept, encoded.keys.take(used), key.astype(np.intp), encoded.value[keep], sign, {}
        )


def _path(p: PipelineFields, name: str) -> str | None:
    """Path of a mechanism's input in a record; None for the event's time."""
    given = p.inputs or {}
    return None if name == "time" and name not in given else given.get(name, name)


def _merged(one: View, other: View, rows: Rows) -> View:
    """Two views of disjoint rows as one, in log order.

    Args:
        one: of rows of the whole list.
        other: of rows of ``rows``.
        rows: where the other's rows stand in the whole list.
    """
    at = np.concatenate([one.rows, rows[other.rows]])
    order = np.argsort(at, kind="stable")
    keys, place = concat([one.keys, other.keys]).unique()
    key = place[np.concatenate([one.key, other.key + len(one.keys)])]
    used, key = compact(key[order], len(keys))
    return View(
        at[order],
        keys.take(used),
        key,
        np.concatenate([one.value, other.value])[order],
        np.concatenate([one.sign, other.sign])[order],
        {int(rows[row]): reason for row, reason in other.bad.items()},
    )
