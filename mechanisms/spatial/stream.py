"""The frame of a mechanism over points: records are cells of a public domain, all at one shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ..contract import Encoded
from .domain import Domain


@dataclass(frozen=True)
class SpatialStream:
    """What the mechanisms over points have in common.

    Attributes:
        domain: public geometry; its finest cells are the deepest level of any tree.
    """

    routing: ClassVar[Literal["key", "single"]] = "single"
    feedback: ClassVar[bool] = False
    columns: ClassVar[int] = 0
    totals: ClassVar[int] = 0
    lanes: ClassVar[int] = 1

    domain: Domain

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return self.domain.names

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Records as keys of their finest cells; those outside the domain are not kept."""
        return self.domain.encode(columns)
