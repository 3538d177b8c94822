"""Values in JSON: typed structs of the needed fields.

A value that the struct of all readers refuses is decoded again for each reader with only its own
fields: what one pipeline counts must not depend on what another reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..schemas.schema import Known
from .fields import InputFields, PipelineFields
from .framed import Framing
from .nesting import deep, shallow
from .reasons import Bad, Reason, Unread, path_of
from .types import ROLES, define, getter, paths_of, safely, tree_of, types_of


class Layout:
    """A typed struct of some fields: decodes a record, and reads a path of it."""

    def __init__(self, fields: InputFields, pipelines: Sequence[PipelineFields]) -> None:
        self.kinds = paths_of(fields, pipelines)
        tree = tree_of(self.kinds)
        self.decode = msgspec.json.Decoder(define(tree)).decode
        self.get = {path: getter(path, tree) for path in self.kinds}


class Sight(NamedTuple):
    """One reader's view of the records: the shared events, and its own for refused records."""

    events: list[Any]  # (N,) of the shared layout; None where it refused a record
    shared: Layout
    layout: Layout  # of the reader alone
    spare: Mapping[int, Any]  # row -> event of that layout, where the shared one refused it

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.events)

    def column(self, path: str, role: str) -> tuple[list[Any], Bad]:
        """Values of a path; a type allowed only by another role of the field is a fault."""
        get = self.shared.get[path]
        try:
            values = list(map(get, self.events))
        except AttributeError:  # a refused record, or a parent that is null
            values = [safely(get, e) for e in self.events]
        for row, event in self.spare.items():
            values[row] = safely(self.layout.get[path], event)
        faults: Bad = {}
        if self.shared.kinds[path] != ROLES[role]:
            wanted = types_of(role)
            for row, value in enumerate(values):
                if value is not None and type(value) not in wanted:
                    values[row] = None
                    faults[row] = Reason.at("wrong_type", path)
        return values, faults


class ObjectReader:
    """Decoder of JSON values for an input's pipelines; ``framing`` is None without schema ids."""

    def __init__(
        self, fields: InputFields, pipelines: Sequence[PipelineFields], framing: Framing | None
    ) -> None:
        self._framing = framing
        self._largest = fields.max_record_bytes
        self._shared = Layout(fields, pipelines)
        self._alone = [Layout(fields, ()), *(Layout(fields, [one]) for one in pipelines)]

    def read(
        self, values: Sequence[bytes | None], offsets: Sequence[int], known: Known
    ) -> list[tuple[Sight, Bad]]:
        """Read values: first as the input itself sees them, then as each pipeline does.

        Their content never raises an error. ``known`` has schemas by id, for values with one.
        """
        if self._framing is not None:
            pairs = zip(values, offsets, strict=True)
            values = [self._framing.payload(value, at, known) for value, at in pairs]
        events, refused = self._parse(values)
        return [self._sight(layout, events, values, refused) for layout in self._alone]

    def _parse(self, values: Sequence[Any]) -> tuple[list[Any], Bad]:
        try:
            if max(map(len, values), default=0) <= self._largest:
                events = list(map(self._shared.decode, values))
                if shallow(values):
                    return events, {}
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
            pass  # at least one record is bad: decode one by one to find it
        bad: Bad = {}
        rows = enumerate(values)
        return [self._parse_one(self._shared, row, value, bad) for row, value in rows], bad

    def _parse_one(self, layout: Layout, row: int, value: bytes | None, bad: Bad) -> Any:
        if value is None:
            bad[row] = "null"
        elif isinstance(value, Unread):
            bad[row] = value.reason
        elif len(value) > self._largest:
            bad[row] = "oversized"
        elif deep(value):
            bad[row] = "malformed"
        else:
            try:
                return layout.decode(value)
            except msgspec.ValidationError as error:
                bad[row] = Reason.at("wrong_type", path_of(error, layout.kinds))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                bad[row] = "malformed"
        return None

    def _sight(
        self, layout: Layout, events: list[Any], values: Sequence[Any], refused: Bad
    ) -> tuple[Sight, Bad]:
        """Decode refused records for one reader; records refused again are bad for it."""
        bad: Bad = {}
        spare = {row: self._parse_one(layout, row, values[row], bad) for row in refused}
        for row in bad:
            del spare[row]
        return Sight(events, self._shared, layout, spare), bad
