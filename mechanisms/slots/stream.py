"""Base of mechanisms over a stream of values: a warm-up, then slots that close permanently."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64, Batch, Closed, Encoded, Part, Releases, Rows, Units, no_releases
from ..contract import Mechanism, Noise, Output, Traits
from ..key_form import Kind, OwnKeys, Place
from ..keys import Keys
from ..parts.bounds.stated import stated_records
from ..ranges import Draws, laplace
from ..sums import total, totals
from ..truth import Truth, WindowRecords
from .relearning import Learnt, Relearning
from .slots import ROW, Entries, Slots, slot_keys, split
from .steps import InSteps


class SlotKeys(OwnKeys):
    """Keys are slots of a window; each is released once, when it closes."""

    kinds: ClassVar[Mapping[str, Kind]] = MappingProxyType({"slot": "whole"})

    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """The slot's number in its window, from 0."""
        return [Place({"slot": slot}, {}) for slot in keys.codes().tolist()]


@dataclass(frozen=True)
class SlotStream(Mechanism):
    """Common base of the mechanisms over streams of values."""

    slots: Slots  # time, values, thresholds, contribution bound

    @cached_property
    def traits(self) -> Traits:
        return Traits(
            horizon=self.slots.horizon, outputs=self._outputs, row_dtype=ROW,
            bound=self.slots.bound, keys=SlotKeys(), inputs=("time", "value"), columns=1,
            routing="single",
        )  # fmt: skip

    @property
    @abstractmethod
    def _outputs(self) -> tuple[Output, ...]:
        """Released columns: the sum of a slot, the running total up to its end, and others."""

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        return self.slots.encode(columns)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        return self.slots.absorb(units, batch)

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Release the slots that trigger t closes, or what the warm-up learnt at its end.

        Raises:
            ContractError: the state of the stream is missing after the warm-up.
        """
        rows, entries, state = self.slots.close(closed)
        if closed.t < self.slots.warmup:
            return rows, no_releases(len(self.traits.outputs))
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
        """A trigger after the warm-up; ``state`` is that of the previous trigger."""

    def prefixes(self, entries: Entries, ends: I64, noise: Noise) -> tuple[int, I64] | None:
        """The threshold, and (m,) released running totals at ``ends``.

        None where they need a run from trigger to trigger.

        Args:
            entries: closed slots of a whole window, for these ``ends`` (`whole.closed`).
            ends: (m,) increasing numbers of slots; the first is the warm-up's.
            noise: noise with one nonce for the whole window.
        """
        return None

    def _timed(self, noise: Noise, width: int = 1) -> InSteps:
        """Noise of blocks of ``width`` slots after the warm-up."""
        return InSteps(noise, self.slots.warmup, self.slots.per_trigger, width)

    def _warm_sum(self, entries: Entries, theta: int, epsilon: Fraction, noise: Noise) -> int:
        """Noisy sum of the warm-up's values, clipped at θ, in grid steps.

        One record moves the exact sum by at most θ, and so does another value of it: ε-DP with
        DLap(θ/ε). It is drawn once, at the warm-up's trigger, when its slots are closed.
        """
        exact = total(self.slots.clipped(entries, theta))
        if theta == 0:
            return exact
        index, label = np.zeros(1, np.int64), Keys.of([b"warmup"])
        now = np.full(1, self.slots.warmup, np.int64)
        return exact + int(noise.laplace("sum", label, index, theta / epsilon, now)[0, 0])

    def _watched(
        self, share: Fraction | None, entries: Entries, theta: int, t: int, noise: Noise
    ) -> dict[str, I64]:
        """Noisy number of a trigger's records above θ: one record moves it by at most 1.

        ``share`` is one record's ε for it. It is drawn at t, which closes the slots.
        """
        if share is None:
            return {}
        label, now = Keys.of_codes(np.array([t], np.uint64)), np.full(1, t, np.int64)
        drawn = noise.laplace("clipped", label, np.zeros(1, np.int64), 1 / share, now)
        return {"clipped": self.slots.above(entries, theta) + drawn[0]}

    def _learnt(self, relearning: Relearning | None, stored: I64, t: int) -> Learnt | None:
        """Thresholds of the stretches up to that of trigger t, and counts of the open stretch."""
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
        """State of the thresholds after trigger t, and the threshold that it releases, if any."""
        if relearning is None or learnt is None:
            return None, {}
        closed, known = self.slots.histogram(entries), len(learnt.thresholds)
        learnt = relearning.after(learnt, closed, self.slots.thresholds, noise, t)
        new = np.array(learnt.thresholds[known:], np.int64)
        return learnt, {"threshold": new} if len(new) else {}

    def _kept(self, relearning: Relearning | None, theta: int, learnt: Learnt | None) -> I64:
        """Integers to store for the thresholds; none where the first threshold stays."""
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

    def _further_draws(self, watch: Fraction | None, relearning: Relearning | None) -> list[Draws]:
        """Draws of the number above θ, and of relearnt thresholds."""
        scales = [1 / watch] if watch else []
        scales += [relearning.chooser.scale] if relearning else []
        return [laplace("value", scale) for scale in scales]

    def bounds(self, unit: str) -> dict[str, Any]:
        return stated_records(self.slots.bound, unit)

    def learnt(self, public: Mapping[str, Sequence[int]]) -> float | None:
        """The threshold of the warm-up."""
        found = public.get("threshold")
        return found[0] * float(self.slots.grid) if found else None

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Sum of each released slot, and the running total up to its end.

        If the first row of a window publishes its warm-up's sum, it covers the whole warm-up.
        """
        slot = split(seen.keys)[0][seen.key]
        slots = Keys.of(released).codes().astype(np.int64)
        size = int(max(slot.max(initial=0), slots.max(initial=0))) + 1
        every = totals(slot, seen.value[:, 0], size) * float(self.slots.grid)
        first = int(slots.min(initial=size)) % size
        whole = self._opens_with_warmup(first)
        total = np.cumsum(every if whole else np.where(np.arange(size) < first, 0, every))
        held = np.bincount(slot, minlength=size)
        found = list(zip(slots.tolist(), released, strict=True))
        sums = {key: float((total if whole and at == first else every)[at]) for at, key in found}
        prefix = {key: float(total[at]) for at, key in found}
        counts = {key: int(held[at]) for at, key in found}
        return Truth(len(slot), counts, {"sum": sums, "prefix": prefix})

    def _opens_with_warmup(self, first: int) -> bool:
        """Whether the first released slot has the sum of the whole warm-up."""
        return False
