"""The planner of a mechanism: proposals for its settings, and forecasts of its releases.

Both come from public parameters, a stated shape, or a public or synthetic sample, never from the
protected stream: settings tuned on it leak it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from .contract import Mechanism, Setting
from .workload import Sample

Goal = Literal["last", "mean"]
Option = Literal["sample", "shape", "records", "tail-scale"]
HOPELESS = 0.5  # error, as a share of the exact figures, from which other settings are needed


class Question(NamedTuple):
    """A question about a pipeline's settings."""

    name: str  # of the pipeline
    parameters: Any
    setting: Setting
    mechanism: Mechanism
    sample: Sample | None  # a public or synthetic sample, or a stated shape
    source: str  # origin of the sample
    goal: Goal  # whether only the last trigger of a window counts, or all equally
    records: int | None  # of a window, a rough public guess
    scale: float | None  # distance over which large values get e times rarer, a rough public guess


class Head(NamedTuple):
    """The head of a column of numbers."""

    text: str
    wraps: bool = False


class PlanTable(NamedTuple):
    """A proposal for display; without heads, rows are pairs of a name and a text."""

    intro: str
    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]


class Effort(NamedTuple):
    """Division of a search's work on a family of mechanisms.

    Attributes:
        run: fixed cost of running a window, in records.
        step: fixed cost of a trigger, in records; 0 where a run does not go through triggers.
        first: most noise keys for each candidate.
        finalists: candidates of each round; each round may run as much as the previous one.
        most: most noise keys for each of the last round, and windows times noise keys for any.
        squared: whether the score is the root of a mean of squares instead of a mean.
    """

    run: int
    step: int
    first: int
    finalists: tuple[int, ...]
    most: int
    squared: bool = False


USUAL = Effort(20_000, 2_000, 3, (8, 4, 2), 64)
# For runs that take a tenth of the time: more keys, since one squared error says little.
LIGHT = Effort(2_000, 1_000, 6, (12, 6, 3), 256, squared=True)


class Forecast(NamedTuple):
    """The forecast figures of one candidate.

    Attributes:
        parameters: settings of the mechanism.
        score: the error that decides, as a share of the exact figures: 0 is exact, 1 is no better
            than releasing nothing.
        by: how the figures were found.
        seen, off, lost: texts for people: what is released, its error, and what is lost.
        cut: share of the records that the contribution bound cuts off; None where it is unknown.
        hidden: share of the keys that stay hidden; None where no key can be hidden.
        figures: the numbers behind the texts.
        measure: meaning of the score, where it differs from the planner's `score`.
        each: the error under each noise key, whose mean is the score, or its square, the root of
            whose mean is the score; empty where it is unknown.
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
    measure: str = ""
    each: tuple[float, ...] = ()

    @property
    def hopeless(self) -> bool:
        """Whether the release would be nearly uninformative."""
        return not self.score < HOPELESS


@runtime_checkable
class Planner(Protocol):
    """The planner of a family: `propose` answers from guesses, `forecast` from a sample.

    A proposal is a body, ready for JSON, with ``kind``, ``changed``, ``toml`` and ``notes``.
    """

    @property
    def options(self) -> frozenset[Option]:
        """Options of `hush plan` that `propose` uses; with "sample" it needs one or a shape."""

    def ticks(self, question: Question) -> int:
        """Most calls of ``tick`` by `propose`; 0 if it is quick."""

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """Better settings; raises `ParameterError` if the given ones allow none."""

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """A proposal as a table for people; ``name`` is the pipeline's."""

    @property
    def score(self) -> str:
        """Meaning of a forecast's score, for people."""

    @property
    def effort(self) -> Effort:
        """Division of a search's work."""

    def candidates(self, question: Question) -> Sequence[Any]:
        """Parameters to try, best guess first; raises `ParameterError` if there are none."""

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """A few candidates for a question similar to the one for which ``tuned`` is best."""

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate, by formulas where they are exact, else by running it.

        Args:
            question: pipeline, goal and sample.
            parameters: the candidate.
            plays: numbers of the noise keys (`noise.trial`) with which the mechanism is run; empty:
                use formulas, if there are any.

        Raises:
            ParameterError: the parameters contradict each other or the setting.
        """


def toml(kind: str, settings: dict[str, Any]) -> str:
    """The line of a configuration with these settings.

    >>> toml("pak", {"warmup": 2, "counter": "tree"})
    'mechanism = { kind = "pak", warmup = 2, counter = "tree" }'
    >>> toml("quantile", {"at": (0.5, 0.9)})
    'mechanism = { kind = "quantile", at = [0.5, 0.9] }'
    """
    parts = [f"{name} = {_toml(value)}" for name, value in {"kind": kind, **settings}.items()]
    return f"mechanism = {{ {', '.join(parts)} }}"


def _toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(int(value)) if float(value).is_integer() else repr(value)


def unlike_default(parameters: Any) -> dict[str, Any]:
    """Settings whose value differs from the default."""
    plain = type(parameters)()
    return {
        one.name: getattr(parameters, one.name)
        for one in fields(parameters)
        if getattr(parameters, one.name) != getattr(plain, one.name)
    }
