"""Overrides of a file's tables by environment variables and flags, and the origin of each value."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, get_args

from ..geojson import dotted
from .model import Config
from .pipelines.budgets import PerUnit, SharedBudget
from .pipelines.views import Order, ViewSettings, ViewValue
from .toml.lines import Path
from .toml.read import Problem, Reader
from .toml.values import Loose

PREFIX = "HUSH_"

# Settings that must never be in the file, each with its alternative.
SECRETS: dict[Path, str] = {
    ("secret", "noise_key"): (
        "the noise key must not be in this file: set HUSH_NOISE_KEY, noise_key_file or "
        "key = { command = [...] }"
    ),
    ("kafka", "sasl_password"): (
        "passwords must not be in this file: set HUSH_KAFKA__SASL_PASSWORD or sasl_password_file"
    ),
    ("registry", "password"): (
        "passwords must not be in this file: set HUSH_REGISTRY__PASSWORD or password_file"
    ),
    ("kafka", "ssl_key_password"): (
        "passwords must not be in this file: set HUSH_KAFKA__SSL_KEY_PASSWORD or "
        "ssl_key_password_file"
    ),
}


@dataclass
class Origins:
    """Origins of values: a line of the file, a variable or a flag."""

    name: str
    lines: dict[Path, int]
    overrides: dict[Path, str] = field(default_factory=dict)

    def describe(self, problem: Problem) -> str:
        """Return one line for people: place, setting and mistake."""
        setting = dotted(problem.path)
        return f"{self.place(problem.path)}: {setting}: {problem.message}".replace(": : ", ": ")

    def place(self, path: Path) -> str:
        """Return the variable, flag or line that set ``path``, or else its nearest table."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.overrides:
                return self.overrides[path[:depth]]
            if path[:depth] in self.lines:
                return f"{self.name}:{self.lines[path[:depth]]}"
        return self.name


def merge(
    data: dict[str, Any], environ: Mapping[str, str], flags: Mapping[str, Any], origins: Origins
) -> list[Problem]:
    """Put variables, then flags, into ``data``; return a problem for each that does not fit.

    A variable counts if it begins with ``HUSH_`` and contains ``__``, which separates steps:
    ``HUSH_ENGINE__BEAT_INTERVAL``. Elements of lists of tables are identified by name or position:
    ``HUSH_PIPELINE__ZONES__BUDGET__EPSILON``.
    """
    problems: list[Problem] = []
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and "__" in variable:
            steps = variable.removeprefix(PREFIX).lower().split("__")
            problems += _put(data, steps, Loose(environ[variable]), variable, origins)
    for flag, value in flags.items():
        if value is not None:
            loose = Loose(value) if isinstance(value, str) else value
            problems += _put(data, flag.split("."), loose, "command line", origins)
    return problems


def _put(
    data: dict[str, Any], steps: list[str], value: Any, origin: str, origins: Origins
) -> Iterator[Problem]:
    path: Path = ()
    node: Any = data
    for step in steps[:-1]:
        name: str | int = step
        if isinstance(node, dict):
            node.setdefault(step, {})
        elif isinstance(node, list) and (found := _element(node, step)) is not None:
            name = found
        else:
            origins.overrides[(*path, step)] = origin
            yield Problem((*path, step), _nowhere(node, step))
            return
        node = node[name]
        path += (name,)
    if not isinstance(node, dict):
        origins.overrides[path] = origin
        yield Problem(path, "is not a table")
        return
    node[steps[-1]] = value
    origins.overrides[(*path, steps[-1])] = origin


def _element(elements: list[Any], step: str) -> int | None:
    for place, element in enumerate(elements):
        name = element.get("name") if isinstance(element, dict) else None
        if step == str(place) or (isinstance(name, str) and _plain(name) == _plain(step)):
            return place
    return None


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _nowhere(node: Any, step: str) -> str:
    if not isinstance(node, list):
        return "is not inside a table"
    names = [str(e["name"]) for e in node if isinstance(e, dict) and "name" in e]
    return Reader().unknown(step, names, "name")


@cache
def tables_of_names() -> Mapping[str, str]:
    """Map each setting that occurs in only one kind of table to that table.

    Shared and per-unit budgets have the settings of a pipeline's own budget; settings of views
    share names with those of pipelines.
    """
    seen: dict[str, list[str]] = {}
    alike = (SharedBudget, PerUnit, ViewSettings, ViewValue, Order)
    for table, kind in (one for one in tables() if one[1] not in alike):
        for name in (f.name for f in fields(kind)):
            seen.setdefault(name, []).append(table)
    return MappingProxyType({name: one[0] for name, one in seen.items() if len(one) == 1})


def tables() -> list[tuple[str, type[Any]]]:
    """Return every kind of table with its header in a file, outer tables first."""
    found: list[tuple[str, type[Any]]] = []
    _collect(Config, "", found)
    return found


def _collect(kind: type[Any], prefix: str, found: list[tuple[str, type[Any]]]) -> None:
    hints = typing.get_type_hints(kind)
    for setting in fields(kind):
        for inner in _dataclasses(hints[setting.name]):
            many = any(typing.get_origin(hint) is tuple for hint in _members(hints[setting.name]))
            name = f"{prefix}{setting.name}"
            tag = typing.get_type_hints(inner).get("kind")
            label = f"[[{name}]]" if many else f"[{name}]"
            suffix = f" kind = {get_args(tag)[0]!r}" if get_args(tag) else ""
            found.append((label + suffix, inner))
            _collect(inner, f"{name}.", found)


def _members(hint: Any) -> tuple[Any, ...]:
    """The hint itself and, for a union, its members."""
    return hint, *get_args(hint)


def _dataclasses(hint: Any) -> list[type[Any]]:
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [kind for part in get_args(hint) for kind in _dataclasses(part)]
