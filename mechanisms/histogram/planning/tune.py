"""Propose the public parameters of a histogram from a guess of the data's shape.

The guess is a public or synthetic sample, never the protected stream, whose shape is private. Every
candidate is calibrated to the same (ε, δ) and played over the sample with the mechanism itself; the
candidate with the least error is proposed.

The error of one output is the l1 distance of public from exact figures, as a share of the l1 norm
of the exact figures; a candidate's score is its mean over outputs, windows and noise keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ....errors import ParameterError
from ...columns import F64
from ...contract import Noise, Setting
from ...factorization import LONGEST
from ...factorization.prefix_noise import chosen
from ...planner import Goal
from ...workload import Workload
from ..calibration.bound import bound_of
from ..mechanism import Histogram
from ..rounds.mechanism import Rounds
from ..settings import HistogramParameters
from ..tumbling import build
from .play import Errors, Run, numbered, play

BUDGETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
WEIGHTS = (0.0, 0.5, 0.3)
FACTORIZATIONS = ("terminal", "final", "toeplitz", "blt", "normalized", "honaker")
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
AROUND = (0.7, 0.85, 1.2, 1.4)
PER_KEY = (2, 3, 5, 8, 16)  # 1 would count distinct units instead of records
FINALISTS = 5
MORE = 3  # factor on noise keys for finalists
_GAIN = 0.99  # a setting that gains less than one per cent keeps the user's value
_DENSE = 1024  # longer horizons: factors that are dense matrices take too long to try

Epochs = Sequence[Sequence[Workload]]
Noises = Callable[[int], Noise]


class Outcome(NamedTuple):
    """The result of one candidate, averaged over windows and noise keys."""

    score: float  # the goal, as a share of the exact figures
    last: F64  # (outputs,) l1 distance at the last trigger
    mean: F64  # (outputs,) mean l1 distance over the triggers
    released: float  # public keys at the end of a window


class Proposal(NamedTuple):
    """The best parameters, the given ones, and the outcome of every candidate."""

    parameters: HistogramParameters
    given: HistogramParameters
    settings: tuple[str, ...]  # which of them could be chosen
    outcomes: dict[HistogramParameters, Outcome]


def propose(
    parameters: HistogramParameters,
    setting: Setting,
    epochs: Epochs,
    noises: Noises,
    goal: Goal = "last",
    repeats: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> Proposal:
    """Choose bound, adaptive weight, factorisation and split; all else stays as given.

    The order of the search: budget and weight together on a coarse grid; the factorisation with the
    best few of them; budget and weight again, on a finer grid around the best; the share of δ that
    selects keys; the last trigger's share of that; the count's share beside value columns. Before
    each turn the best few are played with more noise keys. Finally, every setting that gains less
    than a hundredth of the score returns to its given value.

    The sample must have the size of a window: thresholds and noise do not shrink with it.

    Args:
        setting: the configured setting; a public key list stands for keys 0, 1, … of the sample.
        epochs: public or synthetic; windows of an epoch number their units alike.
        noises: noise of the i-th window played.
        goal: error at the "last" trigger of a window, or the "mean" over its triggers.
        repeats: plays of each candidate, each with its own noise.
        tick: called after each play; `plays` gives the largest number of calls.

    Raises:
        ParameterError: the parameters contradict each other or the setting.
    """
    start = resolved(parameters, setting)
    if setting.keys is not None:
        codes = np.arange(len(setting.keys))
        setting = replace(setting, keys=tuple(numbered(codes, setting.distinct)))
    search = _Search(setting, epochs, noises, goal, repeats, tick)
    search.play(start)
    bounds, factors, *shares = _grids(start, setting)
    best = search.crossed(search.best(search.best(start, bounds), factors), factors)
    best = search.race(start)
    for name in ("budget", "adaptive_weight"):
        best = search.best(best, _around(best, name, setting))
    for grid in shares:
        best = search.best(best, grid)
    best = search.plainest(start)
    return Proposal(best, start, tuple(_free(start, setting)), search.outcomes)


def plays(parameters: HistogramParameters, setting: Setting, repeats: int = 1) -> int:
    """Most plays of the whole sample by `propose`."""
    start = resolved(parameters, setting)
    bounds, factors, *shares = _grids(start, setting)
    once = 1 + len(bounds) + len(factors) + (FINALISTS - 1)
    again = 2 * len(AROUND) + sum(map(len, shares)) + len(_free(start, setting))
    return repeats * (once + again * MORE + 2 * (FINALISTS + 1) * (MORE - 1))


def resolved(parameters: HistogramParameters, setting: Setting) -> HistogramParameters:
    """The parameters with every default resolved to its value."""
    rounds = parameters.selection == "rounds"
    name = "honaker" if rounds else chosen("auto", setting.horizon)
    if parameters.factorization != "auto":
        name = parameters.factorization
    if rounds:
        budget, weight = 32.0 if parameters.budget is None else parameters.budget, 0.0
    else:
        bound = bound_of(parameters, setting)
        budget = float(Fraction(bound.left, bound.weights[0]))
        share = Fraction(bound.weights[-1], bound.weights[0])
        weight = float(share) ** 0.5 if share < 1 else 0.0
    return replace(parameters, factorization=name, budget=budget, adaptive_weight=round(weight, 6))


def _free(p: HistogramParameters, setting: Setting) -> dict[str, Sequence[Any]]:
    """The settings that may be chosen in this configuration, and the values to try."""
    unknown, rounds = setting.keys is None, p.selection == "rounds"
    free: dict[str, Sequence[Any]] = {"budget": BUDGETS}
    if p.bound == "quadratic" and unknown and not rounds and p.aggregate == "values":
        free["adaptive_weight"] = WEIGHTS
    if p.bound == "per-key" and not p.of_units:
        free["per_key"] = PER_KEY
    if setting.horizon > 1:
        free["factorization"] = [n for n in FACTORIZATIONS if _possible(n, setting.horizon)]
    if unknown:
        free["threshold_delta_share"] = SHARES
        if setting.horizon > 1:
            free["last_share"] = SHARES
    if setting.columns and setting.count and p.aggregate == "values" and not rounds:
        free["count_share"] = SHARES
    return free


def _possible(name: str, horizon: int) -> bool:
    if name == "normalized":
        return _DENSE < horizon <= LONGEST[name]  # up to `_DENSE` "terminal" has less noise
    return horizon <= (LONGEST[name] if name == "blt" else _DENSE)


def _grids(p: HistogramParameters, setting: Setting) -> list[list[dict[str, Any]]]:
    """Alternatives in the order in which they are tried."""
    free = _free(p, setting)
    factors = [{"factorization": name} for name in free.pop("factorization", ())]
    weights = free.pop("adaptive_weight", (None,))
    first = [
        {"budget": budget} if weight is None else {"budget": budget, "adaptive_weight": weight}
        for weight in weights
        for budget in free.pop("budget", BUDGETS)
        if not weight or budget * weight**2 >= 0.1  # else a public key is hardly ever paid for
    ]
    return [first, factors, *[[{name: x} for x in values] for name, values in free.items()]]


def _around(p: HistogramParameters, name: str, setting: Setting) -> list[dict[str, Any]]:
    value = getattr(p, name)
    if not value or name not in _free(p, setting):
        return []
    most = 1.0 if name == "adaptive_weight" else float("inf")
    return [{name: round(min(value * factor, most), 2)} for factor in AROUND]


@dataclass
class _Search:
    setting: Setting
    epochs: Epochs
    noises: Noises
    goal: Goal
    repeats: int
    tick: Callable[[], None]
    outcomes: dict[HistogramParameters, Outcome] = field(default_factory=dict)
    errors: dict[HistogramParameters, list[Errors]] = field(default_factory=dict)

    def best(
        self, now: HistogramParameters, alternatives: Sequence[dict[str, Any]]
    ) -> HistogramParameters:
        """The alternative to ``now`` with the least score, or ``now``; with the same noise keys."""
        times = len(self.errors[now]) // (self.repeats * sum(map(len, self.epochs)))
        made = [self._made(now, changes) for changes in alternatives]
        return min([now, *(p for p in made if self.play(p, times))], key=self._score)

    def crossed(
        self, best: HistogramParameters, alternatives: Sequence[dict[str, Any]]
    ) -> HistogramParameters:
        """The best factorisation, tried with other good bounds, or ``best``."""
        second = [one for one in alternatives if one["factorization"] == "final"]
        others = [self.best(p, second) for p in self._ranked()[1:FINALISTS]]
        return min([best, *others], key=self._score)

    def race(self, given: HistogramParameters) -> HistogramParameters:
        """The best of the finalists and ``given``, with more noise keys."""
        finalists = [given, *self._ranked()[:FINALISTS]]
        for p in finalists:
            self.play(p, MORE)
        return min(finalists, key=self._score)

    def plainest(self, given: HistogramParameters) -> HistogramParameters:
        """The best candidate, but with the given value of every setting that hardly matters."""
        now = self.race(given)
        enough = self.outcomes[now].score / _GAIN
        if self.outcomes[given].score <= enough:
            return given
        for name in _free(given, self.setting):
            one = replace(now, **{name: getattr(given, name)})
            if self.play(one, MORE) and self.outcomes[one].score <= enough:
                now = one
        return now

    def _score(self, p: HistogramParameters) -> tuple[float, float]:
        return self.outcomes[p].score, p.budget or 0.0

    def _ranked(self) -> list[HistogramParameters]:
        return sorted(self.outcomes, key=self._score)

    @staticmethod
    def _made(now: HistogramParameters, changes: dict[str, Any]) -> HistogramParameters:
        one = replace(now, **changes)
        budget = max(1.0, one.budget or 1.0)
        whole = now.bound != "quadratic" or now.selection == "rounds"
        return replace(one, budget=float(round(budget)) if whole else budget)

    def play(self, p: HistogramParameters, times: int = 1) -> bool:
        """Note the outcome of ``p``; False if it contradicts the given settings."""
        errors, wanted = self.errors.get(p, []), times * self.repeats * sum(map(len, self.epochs))
        if len(errors) >= wanted:
            return True
        try:
            mechanism = build(p, self.setting)
        except ParameterError:
            if not self.outcomes:
                raise
            return False
        while len(errors) < wanted:
            self._pass(mechanism, errors)
            self.tick()
        self.errors[p], self.outcomes[p] = errors, self._outcome(errors)
        return True

    def _pass(self, mechanism: Histogram | Rounds, errors: list[Errors]) -> None:
        """Play all windows once more."""
        for windows in self.epochs:
            units = None
            for work in windows:
                noise = self.noises(len(errors))
                run = Run(mechanism, work, noise, mechanism.delay, units=units)
                errors.append(play(run))
                units = run.units

    def _outcome(self, errors: Sequence[Errors]) -> Outcome:
        parts = [getattr(one, self.goal) / np.maximum(one.size, 1) for one in errors]
        return Outcome(
            float(np.mean(parts)),
            np.mean([one.last for one in errors], axis=0),
            np.mean([one.mean for one in errors], axis=0),
            float(np.mean([one.released for one in errors])),
        )
