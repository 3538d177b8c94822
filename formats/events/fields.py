"""Fields that an input and its pipelines read of each record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from .expressions.conditions import Condition
from .expressions.derived import Derived


@dataclass(frozen=True)
class NumericField:
    """A numeric field with its clipping interval and public grid.

    Attributes:
        field: its path; None counts records, each as 1.
        low, high, grid: values are clipped, and rounded to multiples of ``grid``.
        where: a record that does not fulfil it counts as 0, and needs no number.
        called: name of the column; None: that of the field.
    """

    field: str | None
    low: Fraction
    high: Fraction
    grid: Fraction
    where: Condition | None = None
    called: str | None = None

    @property
    def name(self) -> str:
        """Name of the column among those of a pipeline."""
        return self.called or self.field or ""

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the largest value of a record, in grid steps."""
        low, high = round(self.low / self.grid), round(self.high / self.grid)
        return (low, high) if self.where is None else (min(low, 0), max(high, 0))


@dataclass(frozen=True)
class InputFields:
    """The fields and formats of an input's records.

    Attributes:
        time: path of the event time, or None for the record's own timestamp.
        time_format: "iso", "epoch_s", "epoch_ms", "epoch_us" or "record".
        zone: time zone of ISO times without an offset.
        unit: paths that together name the privacy unit.
        max_record_bytes: larger records are not read.
        format: "json", or one whose values carry the id of a schema: "avro", "protobuf",
            "json_schema".
    """

    time: str | None
    time_format: str
    zone: str
    unit: tuple[str, ...]
    max_record_bytes: int = 1_000_000
    format: str = "json"

    @property
    def framed(self) -> bool:
        """Whether values carry the id of their schema."""
        return self.format != "json"


@dataclass(frozen=True)
class PipelineFields:
    """The fields that a pipeline reads of each record.

    Attributes:
        key: columns of the key: paths, and names of ``derived``.
        columns: value columns.
        sign: path of a field that marks deletions: it is true, -1 or "delete".
        inputs: path of each numeric input of the mechanism.
        allowed: the public key list; other keys are dropped.
        where: records that do not fulfil it are not the pipeline's.
        derived: columns of the key that are computed, by name.
    """

    key: tuple[str, ...]
    columns: tuple[NumericField, ...] = ()
    sign: str | None = None
    inputs: Mapping[str, str] | None = None
    allowed: frozenset[bytes] | None = None
    where: Condition | None = None
    derived: Mapping[str, Derived] = field(default_factory=dict)
