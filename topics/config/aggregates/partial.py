"""Aggregates that may cover only some records: counts, and what they share with sums."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal

import msgspec

from ....formats.events.fields import NumericField
from ....mechanisms.entry import Objection
from ..expressions.conditions import Condition, every, pinned
from ..toml.read import objections_of
from ..toml.values import ValueName
from .contract import COUNT, Estimate, sum_of


class Partial:
    """An aggregate that may cover only some records."""

    where: tuple[Condition, ...]

    def objections(self) -> Iterator[Objection]:
        """Mistakes in the conditions."""
        return objections_of("where", self.where)

    def pinned(self) -> dict[str, Any]:
        """The aggregate as the charged configuration states it."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        asked = pinned(self.where)
        del told["where"]  # absent, as before this setting existed
        return told if asked is None else told | {"where": asked, "column": self._called}

    @property
    def _called(self) -> str | None:
        """Name of the column, shared by aggregates of the same records; None: the field's own."""
        if not self.where:
            return None
        told = msgspec.json.encode(pinned(self.where), enc_hook=str, order="deterministic")
        of = getattr(self, "field", "")
        return f"{of} where {hashlib.sha256(told).hexdigest()[:16]}".lstrip()


@dataclass(frozen=True)
class Count(Partial):
    """The number of records.

    Attributes:
        kind: `count`.
        name: name of the value in releases.
        where: only records that fulfil all these conditions are counted.
    """

    kind: Literal["count"] = "count"
    name: ValueName | None = None
    where: tuple[Condition, ...] = ()

    @property
    def label(self) -> str:
        return self.name or "count"

    @property
    def columns(self) -> tuple[NumericField, ...]:
        if not self.where:
            return ()
        one = Fraction(1)
        return (NumericField(None, Fraction(0), one, one, every(self.where), self._called),)

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT if self._called is None else sum_of(self._called),)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]
