"""The entry of a mechanism for the rest of the product: name, settings and builder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .advice import Advisor
from .contract import Setting


class Frame(NamedTuple):
    """The pipeline's values for things that a mechanism's parameters may also set."""

    delay: int  # triggers until a released key changes how its records are counted
    keys_only: bool  # the keys are released, and no value
    public_keys: bool  # there is a public list of keys
    every: int | None  # microseconds between triggers; None where a rule gives their times
    origin: int  # a moment at which a window begins, in microseconds
    timed: bool  # an input called ``time`` is read from the record instead of the event time


Objection = tuple[str, str]
"""A setting, and why it cannot be used."""


class Entry(NamedTuple):
    """The entry by which the rest of the product finds a mechanism; it has no defaults either.

    Attributes:
        name: ``mechanism.kind`` in a configuration.
        summary: one line for lists of mechanisms.
        parameters: frozen dataclass with defaults; its fields are the settings a user may give.
        mechanisms: every class that ``build`` may return; each has all members of `Mechanism`.
        grouped: whether pipelines group records by ``key``; otherwise they have inputs.
        build: the mechanism; raises `ParameterError` if parameters and setting clash.
        framed: completes the parameters from the pipeline (`as_given`: from nothing); raises
            `ParameterError`.
        objections: settings that were given and would not be used (`no_objection`).
        advisor: finds better settings for `hush plan`; None where there is none.
    """

    name: str
    summary: str
    parameters: type[Any]
    mechanisms: tuple[type[Any], ...]
    grouped: bool
    build: Callable[[Any, Setting], Any]
    framed: Callable[[Any, Frame], Any]
    objections: Callable[[Any, Frame], Iterable[Objection]]
    advisor: Advisor | None


def as_given(parameters: Any, frame: Frame) -> Any:
    """The parameters; the pipeline does not set any of them."""
    return parameters


def no_objection(parameters: Any, frame: Frame) -> Iterable[Objection]:
    """Every setting that was given is used."""
    return ()
