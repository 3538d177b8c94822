"""Forecasts of what a pipeline would release, from a sample that is public or synthetic.

Each family of mechanisms has a forecaster: it names the settings that are worth trying on a sample,
best guess first, and foretells the figures of one of them, by formulas where these are exact and by
running the mechanism itself where not. `choose` tries as many as the work allows.

Nothing here may see the protected stream: settings that are tuned on it leak it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ..errors import ParameterError
from .advice import Question
from .workload import Sample

ROUNDS = (8, 4, 2)  # candidates of each round; each round may run as much as the one before
FIRST, MORE = 3, 64  # most noise keys for each candidate, and for each of the last round
ENOUGH = 64  # windows, run with so many noise keys that there are no more than that
RUN = 20_000  # records, as long as a window's own work: a run costs that whatever is in it
HOPELESS = 0.5  # of the exact figures: who sees no more than that is better off with other settings
_LEAST = 6  # candidates that are tried however large the sample is


class Forecast(NamedTuple):
    """The foretold figures of one candidate.

    Attributes:
        parameters: of the mechanism.
        score: the error that decides, as a share of the exact figures: 0 is exact, 1 is no better
            than releasing nothing.
        by: how the figures were found.
        seen, off, lost: for people: what will be seen, how far off, and what is lost.
        cut: share of the records that the contribution bound cuts off; None where it is unknown.
        hidden: share of the keys that stay hidden; None where there are none to hide.
        figures: the numbers behind the words.
    """

    parameters: Any
    score: float
    by: Literal["formula", "simulation"]
    seen: str
    off: str
    lost: str
    cut: float | None
    hidden: float | None
    figures: dict[str, float]

    @property
    def hopeless(self) -> bool:
        """Whether the release would tell hardly anything."""
        return not self.score < HOPELESS


@runtime_checkable
class Forecaster(Protocol):
    """The forecaster of a family; every question has a sample."""

    @property
    def score(self) -> str:
        """Meaning of the score, for people."""
        ...

    def candidates(self, question: Question) -> Sequence[Any]:
        """Parameters worth trying, best guess first; raises `ParameterError` if there are none."""
        ...

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """A few candidates for a question that is like the one for which ``tuned`` is best."""
        ...

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate.

        Args:
            question: what is asked, with a sample.
            parameters: the candidate.
            plays: numbers of the noise keys (`noise.trial`) with which the mechanism is run;
                empty where formulas are to do, if there are any.

        Raises:
            ParameterError: the parameters contradict each other or the setting.
        """
        ...


def choose(
    forecaster: Forecaster,
    question: Question,
    work: int,
    tick: Callable[[], None] = lambda: None,
) -> list[Forecast]:
    """Forecasts of the best candidates, the best first.

    Half of the work runs every candidate, as far as it goes. The other half goes to rounds of ever
    fewer candidates with ever more noise keys: a threshold that is drawn badly once in twenty times
    decides the mean squared error, so a few keys cannot tell the last candidates apart. Settings
    that turn out to make the same mechanism count as one of them. The first candidate, as it is
    given, must be possible.

    Args:
        forecaster: of the mechanism.
        question: what is asked, with a sample.
        work: records that may be run through the mechanism, all candidates together; each window
            of a run counts `RUN` records besides.
        tick: called after each run.

    Raises:
        ParameterError: the first candidate contradicts itself or the setting.
    """
    made, cost = forecaster.candidates(question), cost_of(question)
    enough = max(1, ENOUGH // max(sample_of(question).windows, 1))
    keys = max(1, min(FIRST, enough, work // (2 * cost * len(made))))
    tried = []
    for place, parameters in enumerate(made[: _most(work, cost)]):
        try:
            tried.append(forecaster.forecast(question, parameters, range(keys)))
        except ParameterError:
            if not place:  # what is given must be possible
                raise
        tick()
    tried.sort(key=lambda one: one.score)
    for count in ROUNDS:
        more = min(MORE, enough, work // (2 * len(ROUNDS) * cost * count))
        groups = _alike(tried)
        if more <= keys or len(groups) == 1:
            continue
        keys, again = more, []
        for group in groups[:count]:
            found = forecaster.forecast(question, group[0].parameters, range(keys))
            again += [found._replace(parameters=one.parameters) for one in group]
            tick()
        rest = [one for group in groups[count:] for one in group]
        tried = sorted(again, key=lambda one: one.score) + rest
    return tried


def _most(work: int, cost: int) -> int:
    """Most candidates that are tried."""
    return max(_LEAST, work // (2 * cost))


def _alike(tried: Sequence[Forecast]) -> list[list[Forecast]]:
    """Forecasts in groups of equal figures, in order: settings that make one mechanism.

    Under the same noise keys two mechanisms have the same figures if they release the same.
    """
    groups: list[list[Forecast]] = []
    for one in tried:
        same = (group for group in groups if one.figures and group[0].figures == one.figures)
        found = next(same, None)
        if found is None:
            groups.append([one])
        else:
            found.append(one)
    return groups


def runs(question: Question, work: int) -> int:
    """Most calls of ``tick`` by `choose`, whatever the candidates."""
    return _most(work, cost_of(question)) + sum(ROUNDS)


def cost_of(question: Question) -> int:
    """Cost of one run of a sample, in records."""
    return max(1, records_of(question) + RUN * sample_of(question).windows)


def records_of(question: Question) -> int:
    """Records of the sample."""
    return 0 if question.sample is None else question.sample.records


def sample_of(question: Question) -> Sample:
    """The sample of a question; an empty one if there is none."""
    return question.sample or Sample((), 0, 0, 0)


def bound_cut(question: Question, bound: int) -> float:
    """Share of a sample's records that "at most so many of a unit in an epoch" cuts off."""
    cut = records = 0
    for epoch in sample_of(question).epochs:
        unit = np.concatenate([work.unit for work in epoch])
        cut += int(np.maximum(np.bincount(unit) - bound, 0).sum())
        records += len(unit)
    return cut / max(records, 1)


def rounded(number: float) -> str:
    """A figure for people: four digits, and none after the point of a large one.

    >>> rounded(28_070.4), rounded(2.80714)
    ('28,070', '2.807')
    """
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def distinct(candidates: Sequence[Any]) -> list[Any]:
    """Candidates without repetitions, in order; settings need not be hashable."""
    found: list[Any] = []
    for one in candidates:
        if one not in found:
            found.append(one)
    return found
