"""The entry of a mechanism for the rest of the product: name, settings and builder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .contract import Setting
from .planner import Planner


class Frame(NamedTuple):
    """The pipeline's values for settings that a mechanism's parameters may also set."""

    delay: int  # triggers until a released key changes how its records are counted
    keys_only: bool  # keys are released without values
    public_keys: bool  # there is a public list of keys
    every: int | None  # microseconds between triggers; None where a rule gives their times
    origin: int  # start of some window, in microseconds
    timed: bool  # an input called ``time`` is read from the record instead of the event time


MANY = 100_000
"""The most triggers of a window that any mechanism supports."""

Objection = tuple[str, str]
"""A setting, and the reason that it cannot be used."""


def as_given(parameters: Any, frame: Frame) -> Any:
    """The parameters unchanged: the pipeline sets none of them."""
    return parameters


def many(parameters: Any) -> int:
    """Allow the most triggers that any mechanism supports."""
    return MANY


def no_objection(parameters: Any, frame: Frame) -> Iterable[Objection]:
    """No objection: every given setting is used."""
    return ()


@dataclass(frozen=True)
class Picture:
    """Figure of releases on the live page and in `hush plot`.

    Attributes:
        shows: "keys" lists rows with a value each, "cells" draws a map of boxes, "slots" values
            over time, "stream" one distribution of values.
        slot: function from the declared settings and the time between triggers to the length of a
            slot in microseconds; None where rows are not by event time.
        reach: function from the declared settings to both ends of the public range of the values;
            None where the settings state none.
        bins: function from public columns and the public range of the values to the lower end,
            upper end and share of each bucket of a released distribution.
    """

    shows: Literal["keys", "cells", "slots", "stream"] = "keys"
    slot: Callable[[Mapping[str, Any], int], int | None] = lambda settings, every: None
    reach: Callable[[Mapping[str, Any]], tuple[float, float] | None] = lambda settings: None
    bins: Callable[[Mapping[str, Any], tuple[float, float]], list[list[float]]] = (
        lambda public, reach: []
    )


class ActivityTold(NamedTuple):
    """A release of the activity of units."""

    units: Mapping[tuple[int, int], float]  # by the upper ends of both ranges of a bucket
    stddev: float  # of the noise of each


class LearntBudget(NamedTuple):
    """A budget of a contribution bound, and the expected error of each candidate."""

    budget: float
    expected: dict[float, float]  # of all counts at the last trigger, as a share of all records


class Learner(NamedTuple):
    """The choice of a contribution bound from releases of an epoch: post-processing.

    Attributes:
        choose: the budget of least expected error, from the activity of an epoch's units, the
            counts of keys that the epoch released last, its parameters, and the setting of later
            epochs; None where the releases are uninformative.
        refuse: raises `ParameterError` where the bound of some parameters cannot be learnt.
        default: the budget until one is learnt, from parameters and setting.
    """

    choose: Callable[[ActivityTold, Sequence[float], Any, Setting], LearntBudget | None]
    refuse: Callable[[Any], None]
    default: Callable[[Any, Setting], float]


class Entry(NamedTuple):
    """All that the rest of the product knows of a mechanism.

    Attributes:
        name: ``mechanism.kind`` in a configuration.
        summary: one line for lists of mechanisms.
        parameters: frozen dataclass with defaults; its fields are the settings a user may give.
        mechanisms: every class that ``build`` may return.
        grouped: whether pipelines group records by ``key``; otherwise keys come from inputs alone.
        in_parts: whether the pipeline's aggregates are computed from the outputs; otherwise outputs
            are published under their own names.
        build: the mechanism; raises `ParameterError` if parameters and setting clash.
        framed: completes the parameters from the pipeline; raises `ParameterError`.
        objections: given settings that would have no effect.
        triggers: most triggers of a window, from the parameters.
        planner: proposes settings for `hush plan`, and forecasts; None where there is none.
        distinct: whether it can count distinct values (`Setting.distinct`).
        hops: whether its windows may overlap (`Setting.hops`).
        endless: whether a window may have no stated end (`Setting.endless`).
        sibling: name of another mechanism that answers the same question, for comparison.
        adopted: settings for this mechanism, from those of its sibling.
        picture: how its releases are displayed.
        learner: chooses the budget of its bound from releases; None where there is none.
        published: function from the declared settings to what is published, in words; None where
            that is the pipeline's aggregates.
    """

    name: str
    summary: str
    parameters: type[Any]
    mechanisms: tuple[type[Any], ...]
    grouped: bool
    build: Callable[[Any, Setting], Any]
    in_parts: bool = False
    framed: Callable[[Any, Frame], Any] = as_given
    objections: Callable[[Any, Frame], Iterable[Objection]] = no_objection
    triggers: Callable[[Any], int] = many
    planner: Planner | None = None
    distinct: bool = False
    hops: bool = False
    endless: bool = False
    sibling: str | None = None
    adopted: Callable[[dict[str, Any]], dict[str, Any]] = dict
    picture: Picture = Picture()
    learner: Learner | None = None
    published: Callable[[Mapping[str, Any]], str | None] = lambda settings: None
