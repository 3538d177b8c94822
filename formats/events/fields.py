"""Fields that an input and its pipelines read of each record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from .expressions.conditions import Condition
from .expressions.derived import ChosenNumber, Derived


@dataclass(frozen=True)
class NumericField:
    """A numeric field with its clipping interval and public grid."""

    field: str | None  # its path; None counts records, each as 1
    # low, high, grid: values are clipped, and rounded to multiples of ``grid``
    low: Fraction
    high: Fraction
    grid: Fraction
    # a record that does not fulfil it counts as 0 and needs no number
    where: Condition | None = None
    called: str | None = None  # name of the column; None: that of the field
    chosen: ChosenNumber | None = None  # the number, where ``field`` is the name of a derived one

    @property
    def name(self) -> str:
        """Name of the column among those of a pipeline."""
        return self.called or self.field or ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Record fields from which the number may come."""
        if self.chosen is not None:
            return self.chosen.paths
        return () if self.field is None else (self.field,)

    @property
    def reach(self) -> tuple[int, int]:
        """The smallest and the largest value of a record, in grid steps."""
        low, high = self.interval
        return (low, high) if self.where is None else (min(low, 0), max(high, 0))

    @property
    def interval(self) -> tuple[int, int]:
        """Both ends of the clipping interval, in grid steps."""
        return round(self.low / self.grid), round(self.high / self.grid)


@dataclass(frozen=True)
class InputFields:
    """The fields and formats of an input's records."""

    time: str | None  # path of the event time, or None for the record's own timestamp
    time_format: str  # "iso", "epoch_s", "epoch_ms", "epoch_us" or "record"
    zone: str  # time zone of ISO times without an offset
    unit: tuple[str, ...]  # paths that together name the privacy unit
    max_record_bytes: int = 1_000_000  # larger records are not read
    # "json", or one whose values carry the id of a schema: "avro", "protobuf", "json_schema"
    format: str = "json"

    @property
    def framed(self) -> bool:
        """Whether values carry the id of their schema."""
        return self.format != "json"


@dataclass(frozen=True)
class PipelineFields:
    """The fields that a pipeline reads of each record."""

    key: tuple[str, ...]  # columns of the key: paths, and names of ``derived``
    columns: tuple[NumericField, ...] = ()  # value columns
    sign: str | None = None  # path of a field that marks deletions: it is true, -1 or "delete"
    inputs: Mapping[str, str] | None = None  # path of each numeric input of the mechanism
    allowed: frozenset[bytes] | None = None  # the public key list; other keys are dropped
    where: Condition | None = None  # records that do not fulfil it are not the pipeline's
    # columns of the key that are computed, by name
    derived: Mapping[str, Derived] = field(default_factory=dict)
    # whether the mechanism's numbers come from sessions, not from records
    later: bool = False
