"""The frame of a mechanism over points: records are cells of a public domain, all at one shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ..columns import Encoded
from ..contract import NOTHING_MORE, Stated
from .domain import Domain


@dataclass(frozen=True)
class SpatialStream:
    """Common base of the mechanisms over points.

    Attributes:
        domain: public geometry; its finest cells are the deepest level of any tree.
    """

    routing: ClassVar[Literal["key", "single"]] = "single"
    feedback: ClassVar[bool] = False
    columns: ClassVar[int] = 0
    totals: ClassVar[int] = 0
    lanes: ClassVar[int] = 1
    definition: ClassVar[Literal["approximate"]] = "approximate"
    neighbouring: ClassVar[Literal["add_remove"]] = "add_remove"
    key_form: ClassVar[Literal["code"]] = "code"
    survey: ClassVar[None] = None

    domain: Domain

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return self.domain.names

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Records as keys of their finest cells; those outside the domain are not kept."""
        return self.domain.encode(columns)

    def stated(self, unit: str) -> Stated:
        """Nothing beside the cost."""
        return NOTHING_MORE

    def key_threshold(self, t: int) -> Fraction | None:
        """None: cells of the domain are public."""
        return None

    def plan(self) -> dict[str, Any]:
        """Nothing beside cost and noise."""
        return {}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """Nothing beside cost and noise."""
        return []
