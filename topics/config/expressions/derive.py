"""Derived columns of a key as settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from ....formats.events.expressions.derived import PARTS, Band, Derived, TimePart, decimals_of
from ..values import FieldPath, above, within


@dataclass(frozen=True)
class Derive:
    """A column of the key that is computed from the record.

    Give `time`, or `field` with `bucket` or `round`.

    Attributes:
        time: part of the event time: `year`, `quarter`, `month`, `day`, `weekday` (from Monday,
            1), `dayofweek` (from Sunday, 1), `dow` (from Sunday, 0), `hour`, `minute`, or `date`,
            a text.
        zone: time zone of that part.
        field: path of a number.
        bucket: width of bands: the key is the multiple of it at the lower end.
        round: decimals to which the number is rounded; -1 rounds to tens.
    """

    time: str | None = None
    zone: str | None = None
    field: FieldPath | None = None
    bucket: Annotated[Fraction, above(0), within(0, 10**15)] | None = None
    round: int | None = None

    def objections(self) -> Iterator[tuple[str, str]]:
        """Settings that are wrong or contradict each other."""
        if self.time is not None:
            yield from self._timed()
            return
        if self.zone is not None:
            yield "zone", "has an effect only with time"
        if self.field is None:
            yield "", "needs time, or field with bucket or round"
        elif (self.bucket is None) == (self.round is None):
            yield "", f"of field {self.field!r} needs either bucket or round"
        elif self.round is not None and not -9 <= self.round <= 9:
            yield "round", f"{self.round} must lie between -9 and 9"
        elif self.bucket is not None:
            try:
                decimals_of(self.bucket)
            except ValueError as error:
                yield "bucket", str(error)

    def _timed(self) -> Iterator[tuple[str, str]]:
        """Objections to a part of the time."""
        for name in ("field", "bucket", "round"):
            if getattr(self, name) is not None:
                yield name, "has no effect with time, which is the event time"
        if self.time not in PARTS:
            yield "time", f'"{self.time}" must be one of {", ".join(PARTS)}'
        try:
            ZoneInfo(self.zone or "UTC")
        except (ValueError, OSError, KeyError):
            yield "zone", f'"{self.zone}" is not a time zone'

    def meant(self) -> Derived:
        if self.time is not None:
            return TimePart(self.time, self.zone or "UTC")
        if self.bucket is not None:
            return Band(self.field or "", self.bucket)
        return Band(self.field or "", Fraction(10) ** -(self.round or 0), nearest=True)

    def pinned(self) -> dict[str, Any]:
        """The column as the charged configuration states it, in its normal form."""
        derived = self.meant()
        told = {one.name: getattr(derived, one.name) for one in fields(derived)}
        return {"kind": type(derived).__name__.lower(), **told}
