"""Choose among a planner's candidates by forecasts on a sample.

`choose` tries as many candidates as the work allows; the rest are helpers of planners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import erfc, exp, inf, isclose, pi, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import ParameterError
from .columns import F64
from .planner import Forecast, Planner, Question
from .workload import Sample

T = TypeVar("T")
STEPS = 8  # triggers of a window that the cost of its run already includes
SAME = 0.005  # largest relative difference between figures of equal mechanisms
HOLDS = 0.8  # coverage probability of the range of an error
_TELLING = 10  # fewest noise keys with which two candidates can be compared
_TELLING_SQUARES = 40  # the same for squared errors, where a rare one may decide
_LOT = 6  # fewest noise keys between two comparisons
_NEXT_TO_NOTHING = 0.003  # gain, as a share of the error, too small to run a finalist again
_LEAST = 6  # candidates that are tried however large the sample is
_FEWEST_RUNS, _MOST_RUNS = 9, 24  # with nine, the range ends at the least and the largest error
_UNUSED = 1 << 20  # the first noise key for the range, beyond all keys that `choose` uses


class Contest(NamedTuple):
    """The outcome of `choose`."""

    found: list[Forecast]  # forecasts of candidates, best first
    left_out: int  # number of candidates for which no work was left


def choose(
    planner: Planner,
    question: Question,
    work: int,
    tick: Callable[[], None] = lambda: None,
) -> Contest:
    """Forecasts of the best candidates.

    At most half of the work runs every candidate, as far as it suffices. The rest goes to rounds of
    ever fewer candidates with further noise keys: a bad threshold in one of twenty draws decides
    the mean squared error, so a few keys cannot separate the last candidates. Candidates are ranked
    by all of their keys; their figures come from the last round that they reached, under keys that
    did not select them for it. Settings that make the same mechanism, or nearly so, count as one:
    otherwise the last two could be one mechanism under two names. All candidates run under the same
    noise keys, so a pair shows early which is better: a finalist that promises almost no further
    gain is not run again, and the remaining work is saved. The first candidate is the given one and
    must be possible.

    Args:
        question: question with a sample.
        work: records that may be run through the mechanism, all candidates together; windows and
            triggers of a run count in addition, see `cost_of`.
        tick: called after each run, including runs over a part of the windows.

    Raises:
        ParameterError: the first candidate contradicts itself or the setting.
    """
    made, cost = planner.candidates(question), cost_of(planner, question)
    effort = planner.effort
    if _screening(question, cost, len(made), work):
        made, work = _screened(planner, question, made, work, tick)
    keys = max(1, min(effort.first, _enough(planner, question), work // (2 * cost * len(made))))
    tried, most = [], _most(work, cost)
    for place, parameters in enumerate(made[:most]):
        try:
            found = planner.forecast(question, parameters, range(keys))
            each = np.array(found.each) if len(found.each) == keys else None
            tried.append(_Tried(found, ((keys, found.score),), effort.squared, each))
        except ParameterError:
            if not place:  # the given candidate must be possible
                raise
        tick()
    tried.sort(key=lambda one: one.error)
    left = work - keys * cost * len(tried)
    raced = _raced(planner, question, tried, left, tick)
    return Contest([one.forecast for one in raced], max(0, len(made) - most))


def _raced(
    planner: Planner,
    question: Question,
    tried: list[_Tried],
    left: int,
    tick: Callable[[], None],
) -> list[_Tried]:
    """Candidates in order, after rounds of ever fewer of them within ``work``; see `choose`."""
    cost, effort = cost_of(planner, question), planner.effort
    enough, keys = _enough(planner, question), tried[0].keys
    behind: list[_Tried] = []
    finalists: list[list[_Tried]] = []
    for place, count in enumerate(effort.finalists):
        groups = _alike(tried)
        finalists, behind = groups[:count], _flat(groups[count:]) + behind
        each = left // ((len(effort.finalists) - place) * cost * len(finalists))
        plays = range(keys, min(keys + each, effort.most, enough))
        if plays and len(finalists) > 1:
            keys = plays.stop
            for _ in finalists:
                tick()
        for lot in _lots(plays, finalists):
            finalists, lost = _promising(finalists)
            behind = _flat(lost) + behind
            if len(finalists) == 1:
                break
            left -= len(lot) * cost * len(finalists)
            finalists = sorted(
                (_further(planner, question, group, lot) for group in finalists),
                key=lambda group: group[0].error,
            )
        tried = _flat(finalists)
    if tried[0].each is not None and len(tried[0].runs) > 1:  # the last lot alone is too small
        plays = range(keys, keys + min(enough, effort.most // 4, -(-keys // 2)))
        tried = _further(planner, question, finalists[0], plays) + _flat(finalists[1:])
    return tried + behind


def _enough(planner: Planner, question: Question) -> int:
    """Most noise keys for a candidate."""
    return max(1, planner.effort.most // max(sample_of(question).windows, 1))


def _screened(
    planner: Planner,
    question: Question,
    made: Sequence[Any],
    work: int,
    tick: Callable[[], None],
) -> tuple[list[Any], int]:
    """Candidates ordered by their errors in a part of the windows, and the remaining work.

    The first candidate stays first; impossible ones come last.
    """
    sample, cost = sample_of(question), cost_of(planner, question)
    part = _screening(question, cost, len(made), work)
    some = question._replace(sample=sample._replace(epochs=sample.epochs[:part]))
    given, *others = made
    errors: list[tuple[float, int, Any]] = []
    for place, one in enumerate(others):
        try:
            errors.append((planner.forecast(some, one, range(1)).score, place, one))
        except ParameterError:
            errors.append((inf, place, one))
        tick()
    spent = cost * part * len(others) // len(sample.epochs)
    return [given, *(one for _, _, one in sorted(errors, key=lambda one: one[:2]))], work - spent


def _screening(question: Question, cost: int, made: int, work: int) -> int:
    """Epochs of the sample with which ``made`` candidates are screened; 0: no screening."""
    epochs = len(sample_of(question).epochs)
    return min(epochs, work * epochs // (4 * cost * made)) if work < 2 * cost * made else 0


class _Tried(NamedTuple):
    """A candidate."""

    forecast: Forecast  # the newest one
    # for each lot, its number of noise keys and the score under them
    runs: tuple[tuple[int, float], ...]
    squared: bool  # whether scores are roots of mean squares
    each: F64 | None  # (keys,) error under each noise key, or its square; None where unknown

    @property
    def keys(self) -> int:
        """Number of noise keys."""
        return sum(count for count, _ in self.runs)

    @property
    def error(self) -> float:
        """Score under all noise keys."""
        power = 2 if self.squared else 1
        total = sum(count * score**power for count, score in self.runs)
        return float((total / self.keys) ** (1 / power))

    def further(self, found: Forecast, count: int) -> _Tried:
        """The same candidate, with its group's forecast under ``count`` more keys."""
        mine = found._replace(parameters=self.forecast.parameters)
        each = None if self.each is None else np.concatenate([self.each, found.each])
        return _Tried(mine, (*self.runs, (count, found.score)), self.squared, each)

    def promises(self, best: _Tried) -> float:
        """Expected gain, as a share of the error, from choosing this one where it is better.

        Under the same keys the mean difference of the two is nearly normal.
        """
        telling = _TELLING_SQUARES if self.squared else _TELLING
        if self.each is None or best.each is None or len(self.each) < telling:
            return inf
        gain = best.each - self.each
        mean, deviation = float(gain.mean()), float(gain.std(ddof=1)) / len(gain) ** 0.5
        whole = max(float(best.each.mean()), 1e-300) * (2 if self.squared else 1)
        if not deviation:
            return max(mean, 0.0) / whole
        at = mean / deviation
        chance = erfc(-at / sqrt(2)) / 2
        return float((mean * chance + deviation * exp(-at * at / 2) / sqrt(2 * pi)) / whole)


def _flat(groups: Iterable[list[_Tried]]) -> list[_Tried]:
    return [one for group in groups for one in group]


def _further(
    planner: Planner, question: Question, group: list[_Tried], plays: range
) -> list[_Tried]:
    found = planner.forecast(question, group[0].forecast.parameters, plays)
    return [one.further(found, len(plays)) for one in group]


def _lots(plays: range, finalists: Sequence[list[_Tried]]) -> list[range]:
    """A round's noise keys in lots; the round may end after each lot."""
    if len(finalists) == 1:
        return []
    step = max(_LOT, -(-len(plays) // 4))
    if any(group[0].each is None for group in finalists):
        step = max(1, len(plays))
    return [plays[begin : begin + step] for begin in range(0, len(plays), step)]


def _promising(groups: list[list[_Tried]]) -> tuple[list[list[_Tried]], list[list[_Tried]]]:
    """The best group and those that may still be significantly better; then the rest."""
    best, *others = groups
    promising = [one[0].promises(best[0]) > _NEXT_TO_NOTHING for one in others]
    kept = [one for one, more in zip(others, promising, strict=True) if more]
    lost = [one for one, more in zip(others, promising, strict=True) if not more]
    return [best, *kept], lost


def _most(work: int, cost: int) -> int:
    """Most candidates to try."""
    return max(_LEAST, work // (2 * cost))


def _alike(tried: Sequence[_Tried]) -> list[list[_Tried]]:
    """Candidates in groups of equal figures, in order: settings that make the same mechanism.

    Under the same noise keys two mechanisms have equal figures if their releases are equal, and
    nearly equal figures if a setting has almost no effect.
    """
    groups: list[list[_Tried]] = []
    for one in tried:
        mine = one.forecast.figures
        same = (group for group in groups if _close(mine, group[0].forecast.figures))
        found = next(same, None)
        if found is None:
            groups.append([one])
        else:
            found.append(one)
    return groups


def _close(mine: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether all figures agree up to a few thousandths; False without figures."""
    if not mine or mine.keys() != other.keys():
        return False
    return all(isclose(mine[name], other[name], rel_tol=SAME) for name in mine)


def likely(planner: Planner, question: Question, parameters: Any, work: int) -> tuple[float, float]:
    """The range in which the error of one epoch lies with probability `HOLDS`.

    Epochs of the sample are run one by one, with noise keys that `choose` did not use. If a further
    epoch is like those of the sample, its error is exchangeable with their n errors, so it lies
    below the k-th smallest with probability k/(n+1), whatever their law. The range therefore does
    not hold for a stream that changes, and with a sample of one epoch it covers only the noise.

    Args:
        question: question with a sample.
        parameters: settings of the mechanism.
        work: records that may be run, as for `choose`, in at least `_FEWEST_RUNS` runs.

    Raises:
        ParameterError: the settings contradict each other or the setting.
    """
    sample = sample_of(question)
    each = max(1, cost_of(planner, question) // max(len(sample.epochs), 1))
    scores = []
    for number in range(min(_MOST_RUNS, max(_FEWEST_RUNS, work // each))):
        epoch = sample.epochs[number % len(sample.epochs)]
        one = question._replace(sample=sample._replace(epochs=(epoch,)))
        plays = range(_UNUSED + number, _UNUSED + number + 1)
        scores.append(planner.forecast(one, parameters, plays).score)
    return prediction(scores)


def prediction(known: Sequence[float]) -> tuple[float, float]:
    """The range between order statistics that contains a further value with chance `HOLDS`.

    >>> prediction([5, 1, 9, 3, 7, 2, 8, 4, 6])
    (1.0, 9.0)
    """
    places = np.arange(1, len(known) + 1)
    beyond = (1 - HOLDS) / 2 * (len(known) + 1)
    low, high = np.interp([beyond, len(known) + 1 - beyond], places, np.sort(known))
    return float(low), float(high)


def runs(planner: Planner, question: Question, work: int) -> int:
    """Most calls of ``tick`` by `choose`; raises `ParameterError` as `choose` does."""
    cost, made = cost_of(planner, question), len(planner.candidates(question))
    screened = made - 1 if _screening(question, cost, made, work) else 0
    return min(_most(work, cost), made) + screened + sum(planner.effort.finalists)


def cost_of(planner: Planner, question: Question) -> int:
    """Cost of one run of a sample, in records."""
    each = window_cost(planner, question)
    return max(1, records_of(question) + each * sample_of(question).windows)


def window_cost(planner: Planner, question: Question) -> int:
    """Cost of running a window, in records, in addition to the window's records."""
    more = max(0, question.setting.horizon - STEPS)
    return planner.effort.run + planner.effort.step * more


def records_of(question: Question) -> int:
    """Records of the sample."""
    return 0 if question.sample is None else question.sample.records


def sample_of(question: Question) -> Sample:
    """The sample of a question; an empty one if there is none."""
    return question.sample or Sample((), 0, 0, 0)


def in_turn(by_window: Iterable[Iterable[T]]) -> list[T]:
    """Results of each window under each noise key, ordered by keys and then by windows.

    >>> in_turn([["a1", "a2"], ["b1", "b2"]])
    ['a1', 'b1', 'a2', 'b2']
    """
    return [look for turn in zip(*by_window, strict=True) for look in turn]


def by_key(errors: Sequence[float] | F64, keys: int) -> tuple[float, ...]:
    """(keys,) means of errors that are ordered by noise key, equally many of each.

    >>> by_key([1, 3, 5, 7], 2)
    (2.0, 6.0)
    """
    return tuple(np.reshape(errors, (keys, -1)).mean(axis=1).tolist())


def bound_cut(question: Question, bound: int) -> float:
    """Share of a sample's records that a bound of ``bound`` per unit and epoch cuts off."""
    cut = records = 0
    for epoch in sample_of(question).epochs:
        unit = np.concatenate([work.unit for work in epoch])
        cut += int(np.maximum(np.bincount(unit) - bound, 0).sum())
        records += len(unit)
    return cut / max(records, 1)


def rounded(number: float) -> str:
    """A figure for people: four significant digits, and no decimals if it is large.

    >>> rounded(28_070.4), rounded(2.80714)
    ('28,070', '2.807')
    """
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def counted(number: float) -> str:
    """A number of records, or a mean of numbers, for people: two digits if it is small.

    >>> counted(4293.2), counted(7.62), counted(0.5), counted(5.0)
    ('4,293', '7.6', '0.5', '5')
    """
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:.2g}"


def percent(share: float) -> str:
    """A share for people; the digits of an error far above 100 % mean nothing.

    >>> percent(0.0312), percent(1.326), percent(2.7e12)
    ('3.1%', '133%', 'over 1,000%')
    """
    if share > 10:
        return "over 1,000%"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def distinct(candidates: Sequence[Any]) -> list[Any]:
    """Candidates without repetitions, in order; settings need not be hashable."""
    found: list[Any] = []
    for one in candidates:
        if one not in found:
            found.append(one)
    return found
