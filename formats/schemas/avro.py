"""Avro payloads to columns: a schema is compiled once into steps over many records.

Fields are matched by name, and only those that a pipeline reads are kept. Values are those that
JSON would give: texts and symbols are text, timestamps and dates are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..bytes_in import BrokenBytes, Bytes
from .avro_types import AvroType
from .batch import FieldColumn, Payloads, Rows, leaves_of
from .schema import UnusableSchema

Sink = Mapping[str, FieldColumn]
Run = Callable[[Payloads, Rows, Sink], Rows]  # returns the rows that are still good
Skip = Callable[[Bytes, int], object]  # bytes, depth

MOST_DEPTH = 64  # of nested values to skip, and of nested types to read
MOST_LOOKS = 200_000  # visits to types of one schema; the largest valid schema needs fewer


def compile_avro(schema: AvroType, wanted: Mapping[str, Any]) -> Run:
    """Compile the steps that read some fields of a writer's schema and skip all others.

    ``wanted`` has nested names, None for a leaf. Raises `UnusableSchema` if types are nested too
    deeply, or name each other too often.
    """
    return _Compiler().top(schema, wanted)


class _Compiler:
    """Steps of one schema.

    Types that name each other may form a chain as long as the schema, or recur on every branch of a
    union. So recursion along names is limited in depth, and every visit is counted.
    """

    def __init__(self) -> None:
        self._empty: dict[AvroType, bool] = {}
        self._skips: dict[AvroType, Skip] = {}
        self._passes: dict[AvroType, Run] = {}
        self._todo: list[tuple[AvroType, list[Skip]]] = []
        self._looks = 0

    def top(self, schema: AvroType, wanted: Mapping[str, Any]) -> Run:
        self._hollow(schema)
        run = self.read(schema, wanted, "", 0)
        while self._todo:
            kind, made = self._todo.pop()
            made.append(self._skip(kind))

        def whole(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
            rows = run(batch, rows, sink)
            return batch.keep(rows, batch.at[rows] == batch.end[rows])

        return whole

    def read(self, kind: AvroType, wanted: Mapping[str, Any] | None, path: str, depth: int) -> Run:
        """Steps for a type at a path; ``wanted`` is None at a leaf, else the names within."""
        self._look()
        if wanted is not None and not wanted:
            return self.skipping(kind, depth)
        if depth > MOST_DEPTH:
            raise UnusableSchema("types of the fields that are read are nested too deeply")
        if kind.kind == "union":
            return _union([self.read(one, wanted, path, depth + 1) for one in kind.parts])
        if kind.kind == "null":
            return _nothing
        if wanted is None and kind.kind in _LEAVES:
            return _LEAVES[kind.kind](kind, path)
        if wanted is not None and kind.kind == "record":
            return self._record(kind, wanted, path, depth)
        return _wrong(self.skipping(kind, depth), list(leaves_of(wanted, path)))

    def _look(self) -> None:
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise UnusableSchema("types are named again and again")

    def _record(self, kind: AvroType, wanted: Mapping[str, Any], path: str, depth: int) -> Run:
        runs = []
        for name, part in zip(kind.names, kind.parts, strict=True):
            inner = f"{path}.{name}" if path else name
            want = wanted.get(name, {})
            runs.append(self.read(part, want, inner, depth + 1))
        return _each([run for run in runs if run is not _nothing])

    # -- values that are passed over ----------------------------------------------------------

    def skipping(self, kind: AvroType, depth: int) -> Run:
        """Steps that skip a type, for all records at once if its shape is fixed."""
        if kind not in self._passes:
            self._look()
            self._passes[kind] = _one_by_one(self.skip(kind))  # for recursive use
            if depth <= MOST_DEPTH:
                self._passes[kind] = self._skipping(kind, depth + 1)
        return self._passes[kind]

    def _skipping(self, kind: AvroType, depth: int) -> Run:
        if self._empty[kind]:
            return _nothing
        if kind.kind in _LEAVES:
            return _LEAVES[kind.kind](kind, "")
        if kind.kind in ("bytes", "fixed"):
            return _bytes(kind)
        if kind.kind == "union":
            return _union([self.skipping(one, depth) for one in kind.parts])
        if kind.kind == "record":
            runs = [self.skipping(one, depth) for one in kind.parts]
            return _each([run for run in runs if run is not _nothing])
        return _one_by_one(self.skip(kind))

    def _hollow(self, schema: AvroType) -> None:
        """Find the types whose values take no bytes, so that any number of them would fit.

        A record is one if all of its fields are. A recursive record is not, since its recursion
        ends in a union, which takes a byte.
        """
        around: dict[AvroType, list[AvroType]] = {schema: []}
        todo = [schema]
        for kind in todo:
            for part in kind.parts:
                if part not in around:
                    around[part] = []
                    todo.append(part)
                around[part].append(kind)
        self._empty = dict.fromkeys(around, False)
        left = {kind: len(kind.parts) for kind in todo}
        hollow = [kind for kind in todo if _nothing_in(kind)]
        for kind in hollow:
            self._empty[kind] = True
            for outer in around[kind]:
                left[outer] -= 1
                if not left[outer] and outer.kind == "record":
                    hollow.append(outer)

    def skip(self, kind: AvroType) -> Skip:
        """Skip one value of one record."""
        if kind in self._skips:
            return self._skips[kind]
        made: list[Skip] = []  # the steps; filled later, since a type may contain itself

        def later(data: Bytes, depth: int) -> None:
            if depth > MOST_DEPTH:
                raise BrokenBytes
            made[0](data, depth + 1)

        self._skips[kind] = later
        self._todo.append((kind, made))
        return later

    def _skip(self, kind: AvroType) -> Skip:
        if self._empty[kind]:
            return lambda data, depth: None
        if kind.kind in ("int", "long", "enum"):
            return lambda data, depth: data.varint()
        if kind.kind in ("bytes", "string"):
            return _skip_bytes
        parts = [self.skip(one) for one in kind.parts]
        if kind.kind == "union":
            return _skip_union(parts)
        if kind.kind == "record":
            return _skip_record(parts)
        if kind.kind in ("array", "map"):
            return _skip_blocks(parts[0], kind.kind == "map", self._empty[kind.parts[0]])
        size = {"boolean": 1, "float": 4, "double": 8}.get(kind.kind, kind.size)
        return lambda data, depth: data.take(size)


def _nothing_in(kind: AvroType) -> bool:
    """Whether values of a type take no bytes."""
    alone = kind.kind == "null" or (kind.kind == "fixed" and kind.size == 0)
    return alone or (kind.kind == "record" and not kind.parts)


# -- steps over many records ----------------------------------------------------------------------


def _nothing(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
    return rows


def _each(runs: list[Run]) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        for one in runs:
            if not rows.size:
                break
            rows = one(batch, rows, sink)
        return rows

    return run if runs else _nothing


def _union(branches: list[Run]) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        rows, chosen = batch.zigzag(rows)
        if len(rows) and (chosen == chosen[0]).all() and 0 <= chosen[0] < len(branches):
            return branches[int(chosen[0])](batch, rows, sink)
        good = (chosen >= 0) & (chosen < len(branches))
        kept = batch.keep(rows, good)
        chosen = chosen[good]
        for branch in np.unique(chosen).tolist():
            branches[branch](batch, kept[chosen == branch], sink)
        return kept[~batch.bad[kept]]

    return run


def _wrong(run: Run, paths: list[str]) -> Run:
    def refused(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        for path in paths:
            sink[path].refuse(rows, "wrong_type")
        return run(batch, rows, sink)

    return refused


def _one_by_one(skip: Skip) -> Run:
    """Skip values whose number differs from record to record."""

    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        places, ends = batch.at[rows].tolist(), batch.end[rows].tolist()
        for row, at, end in zip(rows.tolist(), places, ends, strict=True):
            data = Bytes(batch.blob, at, end)
            try:
                skip(data, 0)
            except BrokenBytes:
                batch.bad[row] = True
            batch.at[row] = data.at
        return rows[~batch.bad[rows]]

    return run


def _bytes(kind: AvroType) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        if kind.kind == "fixed":
            return batch.take(rows, kind.size)[0]
        rows, sizes = batch.zigzag(rows)
        return batch.take(rows, sizes)[0]

    return run


def _integer(kind: AvroType, path: str) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        rows, values = batch.zigzag(rows)
        if path:
            sink[path].put(rows, values.tolist())
        return rows

    return run


def _text(kind: AvroType, path: str) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        rows, sizes = batch.zigzag(rows)
        rows, starts = batch.take(rows, sizes)
        if path:
            batch.texts(rows, starts, batch.at[rows], sink[path])
        return rows

    return run


def _real(kind: AvroType, path: str) -> Run:
    layout = "<f4" if kind.kind == "float" else "<f8"

    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        if not path:
            return batch.take(rows, 4 if layout == "<f4" else 8)[0]
        rows, values = batch.fixed(rows, layout)
        sink[path].put(rows, values.tolist())
        return rows

    return run


def _truth(kind: AvroType, path: str) -> Run:
    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        rows, values = batch.fixed(rows, "u1")
        good = values <= 1
        rows = batch.keep(rows, good)
        if path:
            sink[path].put(rows, values[good].astype(bool).tolist())
        return rows

    return run


def _symbol(kind: AvroType, path: str) -> Run:
    symbols = kind.symbols

    def run(batch: Payloads, rows: Rows, sink: Sink) -> Rows:
        rows, values = batch.zigzag(rows)
        good = (values >= 0) & (values < len(symbols))
        rows = batch.keep(rows, good)
        if path:
            sink[path].put(rows, [symbols[value] for value in values[good].tolist()])
        return rows

    return run


_LEAVES: dict[str, Callable[[AvroType, str], Run]] = {
    "int": _integer,
    "long": _integer,
    "string": _text,
    "float": _real,
    "double": _real,
    "boolean": _truth,
    "enum": _symbol,
}


# -- one value of one record ----------------------------------------------------------------------


def _skip_bytes(data: Bytes, depth: int = 0) -> None:
    data.take(data.zigzag())


def _skip_union(parts: list[Skip]) -> Skip:
    def skip(data: Bytes, depth: int) -> None:
        chosen = data.zigzag()
        if not 0 <= chosen < len(parts):
            raise BrokenBytes
        parts[chosen](data, depth)

    return skip


def _skip_record(parts: list[Skip]) -> Skip:
    def skip(data: Bytes, depth: int) -> None:
        for part in parts:
            part(data, depth)

    return skip


def _skip_blocks(part: Skip, keyed: bool, empty: bool) -> Skip:
    def skip(data: Bytes, depth: int) -> None:
        while count := data.zigzag():
            if count < 0:  # the block's size in bytes follows
                _skip_bytes(data)
            elif keyed or not empty:  # values without bytes need no reading
                for _ in range(count):
                    if keyed:
                        _skip_bytes(data)
                    part(data, depth)

    return skip
