"""Noise of a stream that counts in slots or blocks instead of triggers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import I64
from ..contract import Noise
from ..keys import Keys


@dataclass(frozen=True)
class InSteps:
    """A noise source whose ``first`` is a number of ended steps instead of a trigger.

    >>> from ..noise import zero
    >>> InSteps(zero, before=2, per_trigger=4, width=3).triggers(np.array([1, 2, 8])).tolist()
    [3, 4, 8]
    """

    source: Noise  # the noise, whose ``first`` is a trigger
    before: int  # the last trigger before the first step can end
    per_trigger: int  # slots that a trigger closes
    width: int = 1  # slots of a step

    def after(self, steps: int) -> InSteps:
        """The same noise, with steps counted from after the first ``steps``.

        Raises:
            ContractError: no trigger ends at that number of steps.
        """
        triggers, rest = divmod(steps * self.width, self.per_trigger)
        if rest:
            raise ContractError("steps that no trigger ends")
        return replace(self, before=self.before + triggers)

    def triggers(self, first: I64) -> I64:
        """The trigger that closes the last slot of each number of steps."""
        return self.before - (-first * self.width // self.per_trigger)

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        return self.source.gauss(purpose, key, index, variance, self.triggers(first))

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        return self.source.laplace(purpose, key, index, scale, self.triggers(first))

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        return self.source.bits(purpose, key, index, self.triggers(first))
