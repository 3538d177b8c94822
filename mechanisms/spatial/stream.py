"""Base of mechanisms over points: records are cells of a public domain, all at one shard."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..columns import I64, Batch, Encoded, Units
from ..contract import Mechanism, Output, Traits
from ..key_form import Kind, OwnKeys, Place
from ..keys import Keys
from ..parts.bounds.record_total import Accept, PrivateTotal
from ..parts.bounds.stated import stated_records
from ..truth import Truth, WindowRecords
from .domain import Bool, Domain


@dataclass(frozen=True)
class CellKeys(OwnKeys):
    """Keys are cells of a domain; a release has the leaves of one tree."""

    replaces: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, Kind]] = MappingProxyType({"cell": "text"})

    domain: Domain

    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """The node's code in hexadecimal, and its box in the units of the coordinates."""
        low, high = (corners.tolist() for corners in self.domain.boxes(keys.codes()))
        names = self.domain.names
        return [
            Place({"cell": key.hex()}, dict(zip(names, zip(start, end, strict=True), strict=True)))
            for key, start, end in zip(keys.tolist(), low, high, strict=True)
        ]

    def geometry(self) -> dict[str, Any]:
        """The domain: axes, depth, split, polygon, cells and region."""
        return self.domain.to_json()


@dataclass(frozen=True)
class SpatialStream(Mechanism):
    """Common base of the mechanisms over points."""

    domain: Domain  # public geometry; its finest cells are the deepest level of any tree
    total: PrivateTotal | None = field(default=None, kw_only=True)  # scales released counts

    @property
    @abstractmethod
    def accepted(self) -> int:
        """Most records of one unit in an epoch."""

    @property
    def insertions(self) -> int:
        """Most of these that are sent rather than made by the mechanism itself."""
        return self.accepted

    def _traits(
        self,
        horizon: int,
        outputs: tuple[Output, ...],
        row_dtype: np.dtype[Any],
        load: Literal["due", "all"] = "due",
        counting: bool = True,
    ) -> Traits:
        """Traits of a mechanism over points, whose inputs are the coordinates."""
        total = self.total
        return Traits(
            horizon=horizon, outputs=outputs, row_dtype=row_dtype, load=load, counting=counting,
            bound=self.insertions if total is None else total.fresh,
            keys=CellKeys(self.domain), inputs=self.domain.names,
            totals=0 if total is None else 1, routing="single",
        )  # fmt: skip

    def bounds(self, unit: str) -> dict[str, Any]:
        said = stated_records(self.accepted, unit)
        return said if self.total is None else self.total.stated(said)

    def _accept(self, accept: Accept, units: Units, batch: Batch) -> tuple[Units, Bool, I64]:
        """Let ``accept`` bound a slice; also return the records that the total counts, if any."""
        if self.total is not None:
            return self.total.absorb(accept, units, batch)
        return *accept(units, batch), np.empty(0, np.int64)

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Records as keys of their finest cells; records outside the domain are not kept."""
        return self.domain.encode(columns)

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Count the records in each released cell of any size."""
        codes = seen.keys.codes()[seen.key]
        order = np.argsort(codes)
        codes = codes[order]
        running = np.concatenate([[0], np.cumsum(seen.sign[order].astype(np.int64))])
        finest = int(codes[-1]).bit_length() if len(codes) else 1
        held = {}
        for cell in released:
            code = int.from_bytes(cell, "big")
            more = max(finest - code.bit_length(), 0)
            low, high = (np.uint64(n << more) for n in (code, code + 1))
            begin, end = np.searchsorted(codes, [low, high])
            held[cell] = int(running[end] - running[begin])
        answers = {cell: float(number) for cell, number in held.items()}
        return Truth(len(codes), held, {one.name: answers for one in self.traits.outputs})
