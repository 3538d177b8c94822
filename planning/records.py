"""A whole public or synthetic file as numbered columns, read in chunks, for forecasts.

The file is never in memory as rows: each chunk is decoded as the pipeline would decode it, and
becomes columns, from which windows of any length are then cut.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Input, Pipeline
from ..errors import ConfigError
from ..formats.events.decode import Decoded, Decoder, RawRecord, View
from ..formats.events.fields import NumericField, PipelineFields
from ..formats.events.keys import decode_key, encode_key
from ..formats.events.types import paths_of
from ..formats.events.unusable import Unusable, in_words, unusable
from ..mechanisms.columns import I64, Encoded
from ..mechanisms.contract import Mechanism, Traits
from ..mechanisms.key_form import RECORD_KEYS, KeyForm
from ..mechanisms.keys import Keys
from ..offline.files import check_columns, stream_file

CHUNK = 20_000


class Records(NamedTuple):
    """Records of a file in the order of their times; n of them."""

    time: I64  # (n,) microseconds
    timed: bool  # whether records have their own times
    unit: NDArray[np.int32]  # (n,) numbered from 0
    units: int
    key: NDArray[np.int32]  # (n,) of ``keys``
    keys: tuple[bytes, ...]
    value: I64  # (n, c) on their grids
    sign: NDArray[np.int8]  # (n,)
    columns: Mapping[str, NDArray[Any]]  # (n,) each: what the mechanism itself reads
    read: int  # records of the file
    faults: Counter[Unusable]  # reasons why some records cannot be used
    item: NDArray[np.int32] | None = None  # (n,) number of the counted value

    @property
    def span(self) -> int:
        """Microseconds from the first to the last record."""
        return int(self.time[-1] - self.time[0]) + 1


@dataclass
class Capture:
    """Captures a mechanism's inputs as they are decoded; replaces the mechanism in a decoder."""

    inputs: tuple[str, ...]
    keys: KeyForm = RECORD_KEYS
    taken: list[dict[str, NDArray[Any]]] = field(default_factory=list)

    @property
    def traits(self) -> Traits:
        """The traits that a decoder needs."""
        return Traits(
            horizon=1, outputs=(), row_dtype=np.dtype([]), bound=0, keys=self.keys,
            inputs=self.inputs,
        )  # fmt: skip

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Take the columns; every record gets one key."""
        n = len(next(iter(columns.values())))
        self.taken.append(dict(columns))
        none = np.zeros((n, 0), np.int64)
        return Encoded(Keys.of([b""]), np.zeros(n, np.intp), none, np.ones(n, np.bool_))


def read_records(
    pipeline: Pipeline,
    source: Input,
    columns: tuple[NumericField, ...],
    path: Path,
    tick: Callable[[int], None] = lambda n: None,
) -> Records:
    """Read the records of a public or synthetic file that a pipeline would use.

    ``columns`` are the fields to sum; ``tick`` is called with the number of records after
    each chunk. Raises `ConfigError` if the file cannot be read, or holds nothing that the pipeline
    can use.
    """
    pipeline = pipeline.sampled
    fields, reader = _reader(pipeline, columns)
    decoder = Decoder(source.in_json().fields, [fields], [reader])  # type: ignore[list-item]
    listed = None if pipeline.public_keys is None else frozenset(pipeline.public_keys)
    capture = reader if isinstance(reader, Capture) else None
    made = _Columns(capture, pipeline.traits.pairs, listed)
    kinds = paths_of(source.fields, [fields])
    wanted = {one.split(".")[0] for one in kinds}
    for chunk in _chunks(stream_file(path, wanted)):
        raw = [
            RawRecord(made.read + i, 0, None, json.dumps(row, default=str).encode())
            for i, row in enumerate(chunk)
        ]
        made.take(decoder.decode(raw), chunk, kinds)
        tick(len(chunk))
    if not made.read:
        raise ConfigError(f"{path}: the file holds no record")
    if not made.used:
        alone = replace(source, pipelines=(replace(pipeline, fields=fields),))
        check_columns(alone, list(islice(stream_file(path), CHUNK)))
        most = in_words(made.faults, 4) or "no listed key"
        raise ConfigError(f"{path}: no record that pipeline {pipeline.name!r} can use: {most}")
    return made.records(source.fields.time_format != "record")


def _reader(
    p: Pipeline, columns: tuple[NumericField, ...]
) -> tuple[PipelineFields, Mechanism | Capture]:
    """The fields to read, and the replacement of the mechanism in a decoder."""
    if p.mechanism.survey is not None:  # a sample holds values, which devices would report
        return replace(p.fields, key=(), inputs=None, columns=columns), Capture(())
    if p.traits.inputs:
        return p.fields, Capture(p.traits.inputs, p.traits.keys)
    return p.fields, p.mechanism


def _chunks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while chunk := list(islice(rows, CHUNK)):
        yield chunk


@dataclass
class _Columns:
    """Columns of all chunks so far; units and keys are numbered in order of arrival."""

    capture: Capture | None
    pairs: bool = False  # whether the last column of keys is the counted value
    listed: frozenset[bytes] | None = None  # public keys
    read: int = 0
    used: int = 0
    faults: Counter[Unusable] = field(default_factory=Counter)
    units: dict[Any, int] = field(default_factory=dict)
    keys: dict[bytes, int] = field(default_factory=dict)
    items: dict[bytes, int] = field(default_factory=dict)
    parts: list[tuple[Any, ...]] = field(default_factory=list)

    def take(
        self, decoded: Decoded, rows: list[dict[str, Any]], kinds: Mapping[str, set[str]]
    ) -> None:
        """Add one chunk."""
        (view,) = decoded.views
        self.read += len(rows)
        self.faults += unusable(view.bad | decoded.bad, rows, kinds)
        number, units = self.units, decoded.unit
        unit = [number.setdefault(units[i], len(number)) for i in view.rows.tolist()]
        key, item = self._numbered(view)
        every = (
            decoded.time[view.rows],
            np.array(unit, np.int32),
            key,
            view.value,
            view.sign,
            item,
        )
        kept = np.flatnonzero(key >= 0)
        self.used += len(kept)
        self.parts.append(tuple(one[kept] for one in every))

    def _numbered(self, view: View) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Numbers of each record's key and of its counted value; 0 without a value."""
        items = self.items
        names, values = view.keys.tolist(), [b""] * len(view.keys)
        if self.pairs:
            lists = [decode_key(key) for key in names]
            names = [encode_key(one[:-1]) for one in lists]
            values = [encode_key(one[-1:]) for one in lists]
        place = np.array([self._number(key) for key in names], np.int32)
        value = np.array([items.setdefault(one, len(items)) for one in values], np.int32)
        return (place[view.key], value[view.key]) if names else (place, value)

    def _number(self, key: bytes) -> int:
        """The number of a key; -1 if it is not listed, which only a decoder of pairs permits."""
        unlisted = self.listed is not None and key not in self.listed
        return -1 if unlisted else self.keys.setdefault(key, len(self.keys))

    def records(self, timed: bool) -> Records:
        """All records in order of their times."""
        time, unit, key, value, sign, item = (
            np.concatenate([part[i] for part in self.parts]) for i in range(6)
        )
        order = np.argsort(time, kind="stable")
        taken = self.capture.taken if self.capture is not None and self.capture.inputs else []
        names = taken[0] if taken else ()
        columns = {name: np.concatenate([one[name] for one in taken])[order] for name in names}
        return Records(
            time[order], timed, unit[order], len(self.units), key[order], tuple(self.keys),
            value[order], sign[order], columns, self.read, self.faults,
            item[order] if self.pairs else None,
        )  # fmt: skip
