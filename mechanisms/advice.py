"""Advice of a mechanism on its own settings, and the display of the answer.

Advice comes from public parameters, from a sample that is public or synthetic, or from a stated
shape; never from the protected stream. It is a plain body, ready for JSON, and a table for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from .contract import Mechanism, Setting
from .workload import Sample

Goal = Literal["last", "mean"]
Option = Literal["sample", "shape", "records", "tail-scale"]


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


class AdviceTable(NamedTuple):
    """The displayed advice; without heads, rows are pairs of a name and a text."""

    intro: str
    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]


@runtime_checkable
class Advisor(Protocol):
    """The advisor of a mechanism. A body has ``kind``, ``changed``, ``toml`` and ``notes``."""

    @property
    def options(self) -> frozenset[Option]:
        """Options of `hush plan` that it uses."""
        ...

    @property
    def needs_sample(self) -> bool:
        """Whether advice needs a sample or a shape."""
        ...

    def ticks(self, question: Question) -> int:
        """Maximum number of calls of ``tick`` by `advise`; 0 if it is quick."""
        ...

    def advise(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """The advice; raises `ParameterError` where the settings allow none."""
        ...

    def table(self, name: str, body: dict[str, Any]) -> AdviceTable:
        """The same advice as a table for people; ``name`` is the pipeline's."""
        ...


def toml(kind: str, settings: dict[str, Any]) -> str:
    """The line of a configuration with these settings.

    >>> toml("pak", {"warmup": 2, "counter": "tree"})
    'mechanism = { kind = "pak", warmup = 2, counter = "tree" }'
    """
    parts = [f"{name} = {_toml(value)}" for name, value in {"kind": kind, **settings}.items()]
    return f"mechanism = {{ {', '.join(parts)} }}"


def _toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return repr(int(value)) if float(value).is_integer() else repr(value)


def unlike_default(parameters: Any) -> dict[str, Any]:
    """Settings whose value is not the default."""
    plain = type(parameters)()
    return {
        one.name: getattr(parameters, one.name)
        for one in fields(parameters)
        if getattr(parameters, one.name) != getattr(plain, one.name)
    }
