"""The planner of streams of values: running totals (PAK) and sums of ranges (ToPS)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from ...errors import ParameterError
from ..contract import Setting
from ..forecast import distinct
from ..planner import LIGHT, Forecast, Option, Question
from . import forecast
from .settings import slots_of

_LONG = 256  # triggers from which a counter takes over a second to make, and a run longer
_AIMED = 2  # number of warm-ups of such a long window with thresholds aimed at the sample


@dataclass(frozen=True)
class SlotPlanner:
    """Candidates and forecasts; see `planner.Planner`.

    Attributes:
        build: the mechanism; it has ``slots``.
        aimed: more settings, with thresholds for the sample.
        rates: multiples of the sample's own rate to try. By a law of tails, the rate determines the
            height of the threshold; another rate gives a more or less cautious threshold.
        excesses: multiples of the sample's own excess to try, likewise.
        further: settings to try in addition to those of `SlotParameters`.
    """

    build: Callable[[Any, Setting], Any]
    aimed: Callable[[Question, Any], Iterable[Any]] = lambda question, known: ()
    rates: ClassVar[tuple[Fraction, ...]] = (Fraction(1),)
    excesses: ClassVar[tuple[Fraction, ...]] = ()
    further: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    options: ClassVar[frozenset[Option]] = frozenset({"records", "tail-scale"})
    score = forecast.SCORE
    effort = LIGHT

    def ticks(self, question: Question) -> int:
        """Zero: errors follow from formulas."""
        return 0

    def candidates(self, question: Question) -> Sequence[Any]:
        """Warm-ups, each with all rates, with the tail or without, and with further settings."""
        given: Any = question.parameters  # of `SlotParameters`, with ``excess``
        records, excess = forecast.rates(question, slots_of(given, question.setting))
        known = replace(given, expected=records, excess=round(excess, 3))
        warmed = [
            replace(known, warmup=warmup)
            for warmup in forecast.warmups(given.warmup, question.setting.horizon)
        ]
        made: list[Any] = [given]
        few = question.setting.horizon > _LONG
        for turn, one in enumerate(warmed):  # if work is short, the first ones are of all kinds
            for place, rate in enumerate(self.rates):
                some = replace(one, expected=max(1, round(records * rate)))
                made += [some, replace(some, excess=0.0)]
                if not place and one.warmup in (1, given.warmup):  # short work may end here
                    made += [replace(one, **more) for more in self.further]
            if turn < _AIMED or not few:
                made += self._aimed(question, one)
            made += [replace(one, excess=round(float(excess * t), 3)) for t in self.excesses]
        return distinct(made)

    def _aimed(self, question: Question, known: Any) -> list[Any]:
        try:
            return list(self.aimed(question, known))
        except ParameterError:
            return []  # an impossible combination is not a candidate

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The tuned settings for this rate and these slots, with a long or the least warm-up."""
        given, horizon = question.parameters, question.setting.horizon
        records, _ = forecast.rates(question, slots_of(given, question.setting))
        same = replace(tuned, expected=records, slot=given.slot, origin=given.origin)
        return [replace(same, warmup=one) for one in dict.fromkeys((max(1, horizon // 8), 1))]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        made: Any = self.build(parameters, question.setting)
        return forecast.forecast(question, parameters, made, made.slots, plays)
