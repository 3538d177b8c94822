"""The catalogue of mechanisms, for configuration, commands, contract tests and benchmarks.

Eight come with the product. Other installed packages add theirs through the entry point group
``hushstream.mechanisms``; each entry point names an `Entry`. Every mechanism is checked against the
contract before it can be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from ..errors import ContractError, ParameterError
from . import activity, histogram, pak, phdstream, privhp, quantile, ranges, topl, tops
from .contract import Mechanism, Setting
from .entry import Entry
from .planner import Planner

GROUP = "hushstream.mechanisms"
BUILT_IN = tuple(
    one.ENTRY for one in (activity, histogram, pak, phdstream, privhp, quantile, topl, tops)
)

DEFAULT = histogram.ENTRY.name
"""The mechanism of a pipeline that does not name one."""

DISTINCT = {"kind": DEFAULT, **histogram.DISTINCT}
"""Settings of a mechanism that counts distinct units."""


ACTIVITY = {"kind": activity.ENTRY.name}
"""Settings of the mechanism whose releases are used to learn contribution bounds."""

QUANTILES = {"kind": quantile.ENTRY.name}
"""Settings of the mechanism that releases quantiles: ``low``, ``high`` and ``at`` complete them."""


@cache
def entries() -> Mapping[str, Entry]:
    """Every mechanism by name, built in or installed, checked.

    Raises:
        ContractError: one of them is incomplete, cannot be loaded, or has the name of another.
    """
    found: dict[str, Entry] = {}
    for entry in (*BUILT_IN, *_installed()):
        check(entry)
        if entry.name in found:
            raise ContractError(f"mechanism {entry.name!r} is there twice: uninstall one of them")
        found[entry.name] = entry
    return MappingProxyType(found)


def find(name: str) -> Entry:
    """The entry called ``name``; raises `ParameterError`, which lists all names."""
    if name not in entries():
        known = ", ".join(sorted(entries()))
        raise ParameterError("mechanism.kind", name, f"must be one of {known}")
    return entries()[name]


def planner_of(name: str) -> Planner:
    """The planner of the mechanism called ``name``; raises `ParameterError` if it has none."""
    planner = find(name).planner
    if planner is None:
        raise ParameterError("mechanism.kind", name, "has no planner: nothing can be forecast")
    return planner


def build(name: str, parameters: Any, setting: Setting) -> Mechanism:
    """The mechanism of a configuration.

    Raises:
        ParameterError: the mechanism is unknown, refuses its parameters, or its noise could leave
            the releasable range (`ranges.check`).
        ContractError: the entry builds an object of a class that was not checked.
    """
    entry = find(name)
    made = entry.build(parameters, setting)
    if not isinstance(made, entry.mechanisms):
        kind = type(made).__name__
        raise ContractError(f"mechanism {name!r} builds {kind}, which its entry does not name")
    mechanism: Mechanism = made
    ranges.check(mechanism, setting)
    return mechanism


def check(entry: Any) -> None:
    """Refuse an entry, or a class of mechanisms, that lacks a member of the contract.

    Raises:
        ContractError: names the mechanism and the missing member.
    """
    if not isinstance(entry, Entry):
        raise ContractError(f"{entry!r} is not a mechanism: an entry point must name an Entry")
    if not (isinstance(entry.parameters, type) and is_dataclass(entry.parameters)):
        raise ContractError(f"mechanism {entry.name!r}: parameters must be a dataclass")
    for role in ("build", "framed", "objections", "triggers", "adopted"):
        if not callable(getattr(entry, role)):
            raise ContractError(f"mechanism {entry.name!r}: {role} must be a function")
    if entry.planner is not None and not isinstance(entry.planner, Planner):
        raise ContractError(f"mechanism {entry.name!r}: planner lacks members of Planner")
    if not entry.mechanisms:
        raise ContractError(f"mechanism {entry.name!r}: mechanisms must name a class")
    for kind in entry.mechanisms:
        if not issubclass(kind, Mechanism):
            raise ContractError(
                f"mechanism {entry.name!r}: {kind.__name__} must be a subclass of Mechanism"
            )
        if missing := sorted(kind.__abstractmethods__):
            raise ContractError(
                f"mechanism {entry.name!r}: {kind.__name__} lacks {', '.join(missing)}"
            )


def _installed() -> list[Any]:
    """Entries of installed packages, sorted by name: search path order must not matter."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            found.append(point.load())
        except Exception as error:
            raise ContractError(
                f"mechanism {point.name!r} cannot be loaded from {point.value}: {error}"
            ) from error
    return found
