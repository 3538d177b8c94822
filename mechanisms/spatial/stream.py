"""The frame of a mechanism over points: records are cells of a public domain, all at one shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ..columns import Encoded
from ..contract import NOTHING_MORE, Place, Stated
from ..keys import Keys
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
    lanes: ClassVar[int] = 1
    definition: ClassVar[Literal["approximate"]] = "approximate"
    neighbouring: ClassVar[Literal["add_remove"]] = "add_remove"
    key_form: ClassVar[Literal["code"]] = "code"
    key_fields: ClassVar[tuple[str, ...]] = ("cell",)
    replaces: ClassVar[bool] = True  # the leaves of one release are one tree
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
        """State nothing beside the cost."""
        return NOTHING_MORE

    def key_threshold(self, t: int) -> Fraction | None:
        """None: cells of the domain are public."""
        return None

    def places(self, keys: Keys) -> list[Place]:
        """The node's code, hexadecimal, and its box in the units of the coordinates."""
        low, high = (corners.tolist() for corners in self.domain.boxes(keys.codes()))
        names = self.domain.names
        return [
            Place({"cell": key.hex()}, dict(zip(names, zip(start, end, strict=True), strict=True)))
            for key, start, end in zip(keys.tolist(), low, high, strict=True)
        ]

    def geometry(self) -> dict[str, Any]:
        """The domain: axes, depth, split, polygon, cells and region."""
        return self.domain.to_json()

    def plan(self) -> dict[str, Any]:
        """Show nothing beside cost and noise."""
        return {}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """Show nothing beside cost and noise."""
        return []
