"""The planner of a mechanism: proposals for its settings, and forecasts of what it would release.

Both come from public parameters, a stated shape, or a sample that is public or synthetic; never
from the protected stream: settings that are tuned on it leak it.
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
HOPELESS = 0.5  # of the exact figures: who sees no more than that is better off with other settings


class Question(NamedTuple):
    """A question about a pipeline's settings."""

    name: str  # of the pipeline
    parameters: Any
    setting: Setting
    mechanism: Mechanism
    sample: Sample | None  # a public or synthetic sample, or a stated shape
    source: str  # where that came from
    goal: Goal  # whether the last trigger of a window counts, or all alike
    records: int | None  # of a window, roughly and publicly
    scale: float | None  # large values get e times rarer every so much, roughly and publicly


class Head(NamedTuple):
    """The head of a column of numbers."""

    text: str
    wraps: bool = False


class PlanTable(NamedTuple):
    """A displayed proposal; without heads, rows are pairs of a name and a text."""

    intro: str
    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]


class Effort(NamedTuple):
    """Division of a search's work on a family of mechanisms.

    Attributes:
        run: records, as long as a window's own work: a run costs that whatever is in it.
        step: the same of a trigger; 0 where a run does not go from one trigger to the next.
        first: most noise keys for each candidate.
        finalists: candidates of each round; each round may run as much as the one before.
        most: most noise keys for each of the last round, and windows times noise keys for any.
        squared: whether the score is the root of a mean of squares, and else a mean.
    """

    run: int
    step: int
    first: int
    finalists: tuple[int, ...]
    most: int
    squared: bool = False


USUAL = Effort(20_000, 2_000, 3, (8, 4, 2), 64)
# Of what runs in a tenth of the time: more keys, where one key's squared error tells little.
LIGHT = Effort(2_000, 1_000, 6, (12, 6, 3), 256, squared=True)


class Forecast(NamedTuple):
    """The forecast figures of one candidate.

    Attributes:
        parameters: settings of the mechanism.
        score: the error that decides, as a share of the exact figures: 0 is exact, 1 is no better
            than releasing nothing.
        by: how the figures were found.
        seen, off, lost: text for people: what will be seen, how far off, and what is lost.
        cut: share of the records that the contribution bound cuts off; None where it is unknown.
        hidden: share of the keys that stay hidden; None where there are none to hide.
        figures: the numbers behind the words.
        measure: what the score measures, where it is not what the planner says.
        each: the error under each noise key, or its square, of which the score is the mean, or the
            root of that; empty where it is unknown.
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
        """Whether the release would tell hardly anything."""
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
        """Maximum number of calls of ``tick`` by `propose`; 0 if it is quick."""

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """Better settings; raises `ParameterError` where the given ones allow none."""

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """A proposal as a table for people; ``name`` is the pipeline's."""

    @property
    def score(self) -> str:
        """Meaning of a forecast's score, for people."""

    @property
    def effort(self) -> Effort:
        """Division of a search's work."""

    def candidates(self, question: Question) -> Sequence[Any]:
        """Parameters worth trying, best guess first; raises `ParameterError` if there are none."""

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """A few candidates for a question that is like the one for which ``tuned`` is best."""

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate, by formulas where these are exact, else by running it.

        Args:
            question: pipeline, goal and sample.
            parameters: the candidate.
            plays: numbers of the noise keys (`noise.trial`) with which the mechanism is run;
                empty where formulas are to do, if there are any.

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
    """Settings whose value is not the default."""
    plain = type(parameters)()
    return {
        one.name: getattr(parameters, one.name)
        for one in fields(parameters)
        if getattr(parameters, one.name) != getattr(plain, one.name)
    }
