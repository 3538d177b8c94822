"""The number of distinct values of a field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ....formats.events.fields import NumericField
from ....mechanisms.entry import Objection
from ..toml.values import FieldPath, ValueName
from .contract import COUNT, Estimate, label_of


@dataclass(frozen=True)
class Distinct:
    """The number of distinct values of a field, within each window.

    It stands alone in its pipeline. A unit's contribution bound counts the values that it shows in
    a key; what it shows again costs nothing.

    Attributes:
        kind: `distinct`.
        field: path of a text, an integer, true or false, or name of a derived column.
        name: name of the value in releases; default `distinct_` and the field.
    """

    kind: Literal["distinct"]
    field: FieldPath
    name: ValueName | None = None

    @property
    def label(self) -> str:
        return self.name or label_of(self.kind, self.field)

    @property
    def columns(self) -> tuple[NumericField, ...]:
        return ()

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT,)

    def objections(self) -> Iterator[Objection]:
        return iter(())

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]
