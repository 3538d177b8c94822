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

_LONG = 256  # triggers from which on a counter takes a second to make, and a run longer
_AIMED = 2  # warm-ups of so long a window for which thresholds are aimed at the sample's


@dataclass(frozen=True)
class SlotPlanner:
    """Candidates and forecasts; see `planner.Planner`.

    Attributes:
        build: the mechanism; it has ``slots``.
        aimed: more settings, for what the sample asks for.
        rates: multiples of the sample's own rate to try. The rate decides how high a threshold is
            taken, by a law of tails; another one is a more or less careful threshold.
        excesses: multiples of the sample's own excess to try, likewise.
        further: settings beside those of `SlotParameters`, worth a try.
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
        """None: errors follow from formulas."""
        return 0

    def candidates(self, question: Question) -> Sequence[Any]:
        """Warm-ups, each with the rates, with the tail or without, and with all else."""
        given: Any = question.parameters  # of `SlotParameters`, with ``excess``
        records, excess = forecast.rates(question, slots_of(given, question.setting))
        known = replace(given, expected=records, excess=round(excess, 3))
        warmed = [
            replace(known, warmup=warmup)
            for warmup in forecast.warmups(given.warmup, question.setting.horizon)
        ]
        made: list[Any] = [given]
        few = question.setting.horizon > _LONG
        for turn, one in enumerate(warmed):  # where work is short, all kinds with the first ones
            for place, rate in enumerate(self.rates):
                some = replace(one, expected=max(1, round(records * rate)))
                made += [some, replace(some, excess=0.0)]
                if not place and one.warmup in (1, given.warmup):  # a few candidates may be all
                    made += [replace(one, **more) for more in self.further]
            if turn < _AIMED or not few:
                made += self._aimed(question, one)
            made += [replace(one, excess=round(float(excess * t), 3)) for t in self.excesses]
        return distinct(made)

    def _aimed(self, question: Question, known: Any) -> list[Any]:
        try:
            return list(self.aimed(question, known))
        except ParameterError:
            return []  # a combination that is impossible is no candidate

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The same for this rate and these slots, with a warm-up of the same share and of one."""
        given, horizon = question.parameters, question.setting.horizon
        records, _ = forecast.rates(question, slots_of(given, question.setting))
        same = replace(tuned, expected=records, slot=given.slot, origin=given.origin)
        return [replace(same, warmup=one) for one in dict.fromkeys((max(1, horizon // 8), 1))]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        made: Any = self.build(parameters, question.setting)
        return forecast.forecast(question, parameters, made, made.slots, plays)
