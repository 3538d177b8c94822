"""Estimates inside a block from earlier released blocks: post-processing only.

A block of w slots gets its noisy total when it ends. Until then every slot gets the same
prediction; the last slot gets the rest, so that the outputs of a block sum to its total
(CCS 2021, Section 5.4). Predictors:

* ``recent``: the total of the last block.
* ``mean``: the mean of all blocks so far.
* ``median``, ``moving``: median or mean of the last ``history`` blocks.
* ``exponential``: mean of the last ``history`` blocks with weights falling by ``1 - alpha``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ....errors import ParameterError
from ...validate import at_least, one_of

KINDS = ("recent", "mean", "median", "moving", "exponential")
LONGEST = 64


@dataclass(frozen=True)
class Smoother:
    """A predictor of the next block's total.

    Raises:
        ParameterError: a parameter is out of range.

    >>> Smoother("moving", 2).predict([6, 2, 9], 0, 0)
    Fraction(4, 1)
    """

    kind: str = "recent"  # one of `KINDS`
    history: int = 8  # blocks that ``median``, ``moving`` and ``exponential`` use
    alpha: Fraction = Fraction(1, 2)  # weight of the newest block (``exponential``), in (0, 1]

    def __post_init__(self) -> None:
        one_of("smoother", self.kind, KINDS)
        at_least("history", self.history, 1)
        if self.history > LONGEST:
            raise ParameterError("history", self.history, f"must be at most {LONGEST}")
        if not 0 < self.alpha <= 1:
            raise ParameterError("alpha", self.alpha, "must lie in (0, 1]")

    @property
    def memory(self) -> int:
        """Number of past totals to keep."""
        return {"recent": 1, "mean": 0}.get(self.kind, self.history)

    def weights(self, known: int) -> list[Fraction]:
        """Weights of the ``min(known, memory)`` newest totals, newest first; they sum to 1.

        For ``median`` they are those of a typical case, the middle one or two by age, since which
        totals lie in the middle depends on what was released.
        """
        n = min(known, self.memory)
        if self.kind == "exponential":
            raw = [(1 - self.alpha) ** age for age in range(n)]
        elif self.kind == "median":
            raw = [Fraction(int(age in ((n - 1) // 2, n // 2))) for age in range(n)]
        else:
            raw = [Fraction(1)] * n
        return [weight / sum(raw) for weight in raw]

    def predict(self, past: Sequence[int], total: int, blocks: int) -> Fraction:
        """The next block's total.

        Args:
            past: released totals, newest first; at least one unless the kind is ``mean``.
            total, blocks: sum and number of all blocks released so far.
        """
        if self.kind == "mean":
            return Fraction(total, blocks)
        known = list(past[: self.memory])
        if self.kind == "median":
            ordered = sorted(known)
            return Fraction(ordered[(len(known) - 1) // 2] + ordered[len(known) // 2], 2)
        pairs = zip(self.weights(len(known)), known, strict=True)
        return sum((weight * value for weight, value in pairs), Fraction(0))
