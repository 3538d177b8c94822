"""The frame of a mechanism over a stream of values: a warm-up, then slots that close for ever."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64, Batch, Closed, Encoded, Part, Releases, Rows, Units, no_releases
from ..contract import NOTHING_MORE, Noise, Output, Place, Stated
from ..keys import Keys
from ..parts.stated_bound import stated_records
from .relearning import Learnt, Relearning
from .slots import ROW, Entries, Slots, slot_keys
from .steps import InSteps


@dataclass(frozen=True)
class SlotStream(ABC):
    """Common base of the mechanisms over streams of values.

    Attributes:
        slots: time, values, thresholds, contribution bound.
    """

    routing: ClassVar[Literal["key", "single"]] = "single"
    load: ClassVar[Literal["due", "all"]] = "due"
    feedback: ClassVar[bool] = False
    row_dtype: ClassVar[np.dtype[Any]] = ROW
    columns: ClassVar[int] = 1
    totals: ClassVar[int] = 0
    lanes: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ("time", "value")
    definition: ClassVar[Literal["approximate"]] = "approximate"
    neighbouring: ClassVar[Literal["add_remove"]] = "add_remove"
    key_form: ClassVar[Literal["code"]] = "code"
    key_fields: ClassVar[tuple[str, ...]] = ("slot",)
    replaces: ClassVar[bool] = False  # a slot is released once, when it closes
    survey: ClassVar[None] = None

    slots: Slots

    @property
    @abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """Released columns."""

    @property
    def horizon(self) -> int:
        """Triggers per window."""
        return self.slots.horizon

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """See `Slots.encode`."""
        return self.slots.encode(columns)

    def init_units(self, u: int) -> Units:
        """See `Slots.init_units`."""
        return self.slots.init_units(u)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """See `Slots.absorb`."""
        return self.slots.absorb(units, batch)

    def init_rows(self, key: Keys) -> Rows:
        """See `Slots.init_rows`."""
        return self.slots.init_rows(key)

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """The slots that trigger t closes; at the end of the warm-up, what was learnt from it.

        Raises:
            ContractError: the state of the stream is missing after the warm-up.
        """
        rows, entries, state = self.slots.close(closed)
        if closed.t < self.slots.warmup:
            return rows, no_releases(len(self.outputs))
        if closed.t == self.slots.warmup:
            return self._open(rows, entries, noise)
        if not len(state):
            raise ContractError("the state of the stream is missing")
        return self._go_on(closed, rows, entries, state, noise)

    @abstractmethod
    def _open(self, rows: Rows, entries: Entries, noise: Noise) -> tuple[Rows, Releases]:
        """The end of the warm-up, whose slots are ``entries``."""

    @abstractmethod
    def _go_on(
        self, closed: Closed, rows: Rows, entries: Entries, state: I64, noise: Noise
    ) -> tuple[Rows, Releases]:
        """A trigger after the warm-up; ``state`` is what the one before left."""

    def _timed(self, noise: Noise, width: int = 1) -> InSteps:
        """Noise of blocks of ``width`` slots after the warm-up."""
        return InSteps(noise, self.slots.warmup, self.slots.per_trigger, width)

    def _watched(
        self, share: Fraction | None, entries: Entries, theta: int, t: int, noise: Noise
    ) -> dict[str, I64]:
        """Noisy number of a trigger's records above θ: one record moves it by at most 1.

        ``share`` is ε of one record for it. The slots are closed at t, when it is drawn.
        """
        if share is None:
            return {}
        label, now = Keys.of_codes(np.array([t], np.uint64)), np.full(1, t, np.int64)
        drawn = noise.laplace("clipped", label, np.zeros(1, np.int64), 1 / share, now)
        return {"clipped": self.slots.above(entries, theta) + drawn[0]}

    def _learnt(self, relearning: Relearning | None, stored: I64, t: int) -> Learnt | None:
        """Thresholds of the stretches up to that of trigger t, and counts of the open one."""
        if relearning is None:
            return None
        return relearning.unpack(stored, t, len(self.slots.thresholds))

    def _learnt_at(
        self,
        relearning: Relearning | None,
        learnt: Learnt | None,
        entries: Entries,
        t: int,
        noise: Noise,
    ) -> tuple[Learnt | None, dict[str, I64]]:
        """State of them that trigger t leaves, and the threshold that it releases, if any."""
        if relearning is None or learnt is None:
            return None, {}
        closed, known = self.slots.histogram(entries), len(learnt.thresholds)
        learnt = relearning.after(learnt, closed, self.slots.thresholds, noise, t)
        new = np.array(learnt.thresholds[known:], np.int64)
        return learnt, {"threshold": new} if len(new) else {}

    def _kept(self, relearning: Relearning | None, theta: int, learnt: Learnt | None) -> I64:
        """Integers to be stored for them; none where the first threshold stays."""
        if relearning is None:
            return np.zeros(0, np.int64)
        if learnt is None:
            return relearning.begin(theta, len(self.slots.thresholds))
        return relearning.pack(learnt)

    def _released(
        self, t: int, first: int, value: I64, variance: F64, public: dict[str, I64]
    ) -> Releases:
        """Rows of consecutive slots from ``first`` on."""
        end = first + len(value)
        status = np.full(len(value), t, np.int32)
        return Releases(slot_keys(first, end), value, variance, status, public)

    # Statements

    def stated(self, unit: str) -> Stated:
        """State nothing beside the cost."""
        return NOTHING_MORE

    def bounds(self, unit: str) -> dict[str, Any]:
        """Records of one unit that count in an epoch."""
        return stated_records(self.slots.bound, unit)

    def key_threshold(self, t: int) -> Fraction | None:
        """None: slots are public."""
        return None

    def places(self, keys: Keys) -> list[Place]:
        """The slot's number in its window, from 0 on."""
        return [Place({"slot": slot}, {}) for slot in keys.codes().tolist()]

    def geometry(self) -> dict[str, Any]:
        """None: slots divide time, which the window tells."""
        return {}

    def plan(self) -> dict[str, Any]:
        """Show nothing beside cost and noise."""
        return {}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """Show nothing beside cost and noise."""
        return []
