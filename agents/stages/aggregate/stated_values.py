"""Released values as JSON objects, each with its error and its interval.

Most rows of a release have the same variance, so what follows from it is computed once and kept as
integers over one denominator. A quotient of integers is the float nearest to the exact value, as
that of a fraction is; fractions would take ten times as long as the rest of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

from ....mechanisms.contract import Output
from ....mechanisms.parts.bounds.stated import plain
from ....topics.config.aggregates.contract import Estimate
from ...deployment.model import Pipeline
from ...deployment.published import shapes
from ...deployment.published.statement import significant

Ends = tuple[Fraction, Fraction]
NARROW = 16  # grid steps from a value to its interval's end; further out, a step hardly counts
MOST_SCALES = 4096  # kept; more only if variances differ from row to row


def deviations(confidence: float, distribution: str) -> float:
    """Standard deviations on each side of a value that hold the noise with this probability.

    Laplace noise b has the deviation b·√2 and lies beyond x with probability e^(-x/b). Of a sum of
    such draws, the tails lie between those of one draw and of the normal distribution.
    """
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    if distribution != "discrete_laplace":
        return normal
    return max(normal, -math.log(1 - confidence) / math.sqrt(2))


class Scale(NamedTuple):
    """Everything that a value's statement needs but the value; integers are over ``unit``.

    Attributes:
        stddev: rounded standard deviation.
        unit: common denominator.
        step: one step of the grid.
        reach: half the width of an interval.
        within: range of the value; None: any.
        least: least end of an interval; None: any.
        clipped: whether ends of intervals lie in the same range as values.
    """

    stddev: float
    unit: int
    step: int
    reach: int
    within: tuple[int, int] | None
    least: int | None
    clipped: bool

    def state(self, steps: int) -> dict[str, Any]:
        """State a value of so many grid steps."""
        at, unit = steps * self.step, self.unit
        if self.within is not None:
            at = min(max(at, self.within[0]), self.within[1])
        # The interval is rounded on its own: six digits of a large value would swallow all of it.
        low, high = at - self.reach, at + self.reach
        # Clipping to the possible range does not reduce coverage: the truth is never in what is cut
        # off.
        if self.least is not None:
            low, high = max(low, self.least), max(high, self.least)
        if self.within is not None and self.clipped:
            least, most = self.within
            low, high = min(max(low, least), most), min(max(high, least), most)
        value = at / unit if at % unit else at // unit
        return {"value": value, "stddev": self.stddev, "low": low / unit, "high": high / unit}


class StatedValues:
    """The values of a pipeline's rows.

    Args:
        quantile: standard deviations on each side of an interval, see `deviations`.
    """

    def __init__(self, pipeline: Pipeline, quantile: float) -> None:
        self._pipeline, self._quantile = pipeline, quantile
        self._outputs = pipeline.traits.outputs
        self._floored = shapes.floored(pipeline)
        self._inserting = pipeline.fields.sign is None
        self._scales: dict[tuple[int, float], Scale] = {}
        self._places = self._placed()

    def _placed(self) -> dict[str, int]:
        """The values that are one released column each, with their places in a row."""
        if not self._pipeline.in_parts:
            return {one.name: n for n, one in enumerate(self._outputs) if not one.ends}
        columns = {one.name: n for n, one in enumerate(self._outputs)}
        probe = Estimate(Fraction(1), 1.0)
        single = [a for a in self._pipeline.aggregates if len(a.parts) == 1]
        return {a.label: columns[a.parts[0]] for a in single if a.finish([probe]) is probe}

    def of(self, values: Sequence[int], variances: Sequence[float]) -> dict[str, Any]:
        """State the values of one row by name; None where its columns determine none.

        Args:
            values: released columns in grid steps, then ends of intervals if they are released.
            variances: of the columns, in squared grid steps.
        """
        made: dict[str, Any] = {}
        for name, place in self._places.items():
            scale = self._scales.get((place, variances[place]))
            if scale is None:
                scale = self._scale(name, place, variances[place])
            made[name] = scale.state(values[place])
        if self._pipeline.in_parts:
            if len(made) < len(self._pipeline.aggregates):
                self._finish(values, variances, made)
        else:
            self._with_ends(values, variances, made)
        if self._pipeline.non_negative:
            for one in filter(None, made.values()):
                one["display_value"] = max(one["value"], 0)
        return made

    def _scale(self, name: str, place: int, variance: float) -> Scale:
        output, stddev = self._outputs[place], self._stddev(place, variance)
        grid, most = output.grid, output.most
        reach = self._whole(self._reach(stddev), grid)
        unit = math.lcm(*(one.denominator for one in (grid, reach, most or Fraction(0))))
        within = None if most is None else (0, int(most * unit))
        least = 0 if name in self._floored else None
        made = Scale(
            stddev, unit, int(grid * unit), int(reach * unit), within, least, self._inserting
        )
        if len(self._scales) < MOST_SCALES:
            self._scales[place, variance] = made
        return made

    def _stddev(self, place: int, variance: float) -> float:
        return significant(math.sqrt(variance) * float(self._outputs[place].grid))

    def _reach(self, stddev: float) -> Fraction:
        return Fraction(repr(significant(self._quantile * significant(stddev))))

    @staticmethod
    def _whole(reach: Fraction, grid: Fraction) -> Fraction:
        """Widen a narrow interval, as noise was rounded to the grid on which the exact value lies.

        Rounded noise lies within n steps if the noise lies within n + 1/2; so does the noise of
        the level if n is the first whole number from half a step below the end on.
        """
        steps = reach / grid
        return max(reach, math.ceil(steps - Fraction(1, 2)) * grid) if steps < NARROW else reach

    # -- values that are computed from several columns, or have ends of their own -----------------

    def _finish(
        self, values: Sequence[int], variances: Sequence[float], made: dict[str, Any]
    ) -> None:
        every: dict[str, Estimate] = {}
        for place, (output, value) in enumerate(zip(self._outputs, values, strict=False)):
            within = None if output.most is None else (Fraction(0), output.most)
            stddev = self._stddev(place, variances[place])
            every[output.name] = Estimate(inside(value, output), stddev, within)
        for aggregate in self._pipeline.aggregates:
            if aggregate.label not in made:
                one = aggregate.finish([every[part] for part in aggregate.parts])
                made[aggregate.label] = one and self._estimated(one, aggregate.label)

    def _estimated(self, one: Estimate, name: str) -> dict[str, Any]:
        low, high = map(float, self._interval(one, name)) if one.square is None else (
            math.sqrt(max(end, Fraction(0))) for end in self._interval(one.square, name)
        )  # fmt: skip
        stddev = significant(one.stddev)
        return {"value": plain(one.value), "stddev": stddev, "low": low, "high": high}

    def _interval(self, one: Estimate, name: str) -> Ends:
        reach = self._reach(one.stddev)
        low, high = one.value - reach, one.value + reach
        if name in self._floored:
            low, high = max(low, Fraction(0)), max(high, Fraction(0))
        if one.within is not None and self._inserting:
            least, most = one.within
            low, high = min(max(low, least), most), min(max(high, least), most)
        return low, high

    def _with_ends(
        self, values: Sequence[int], variances: Sequence[float], made: dict[str, Any]
    ) -> None:
        own = iter(values[len(self._outputs) :])
        for place, output in enumerate(self._outputs):
            if output.ends:
                low, high = (float(next(own) * output.grid) for _ in range(2))
                stddev = self._stddev(place, variances[place])
                value = plain(inside(values[place], output))
                made[output.name] = {"value": value, "stddev": stddev, "low": low, "high": high}


def inside(steps: int, output: Output) -> Fraction:
    """The exact value of a column, within its range."""
    value = steps * output.grid
    return value if output.most is None else min(max(value, Fraction(0)), output.most)
