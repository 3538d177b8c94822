"""The typed struct of an input: the types allowed at each path that a pipeline reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ...errors import ConfigError
from .expressions.conditions import leaves
from .expressions.derived import Attribute, AttributeCases, Band, Cases, TextPart
from .expressions.looked_up import Lookup
from .fields import InputFields, PipelineFields

MISSING, NULL, TEXT, INTEGER, REAL, TRUE, FALSE, OTHER = range(8)
"""Kinds of values that a compiled loop finds; `OTHER` is valid, but no loop reads it."""

ROLES = {
    "text": {"str"},
    "number": {"number"},
    "unit": {"str", "int"},
    "key": {"str", "int", "bool"},
    "sign": {"str", "int", "bool"},
    "truth": {"bool"},
    "scalar": {"str", "bool", "number"},
}
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "number": (int, float),
}  # fmt: skip


def types_of(role: str) -> frozenset[type]:
    """The Python types that a value in a role may have."""
    return frozenset(kind for name in ROLES[role] for kind in _TYPES[name])


def typed(values: Sequence[Any], role: str) -> list[Any]:
    """(n,) values whose types suit a role; None in place of all others."""
    allowed = types_of(role)
    return [value if type(value) in allowed else None for value in values]


def paths_of(fields: InputFields, pipelines: Sequence[PipelineFields]) -> dict[str, set[str]]:
    """Every path, and the kinds of values that it may hold."""
    paths: dict[str, set[str]] = {}
    asked = [*_of_input(fields), *(use for one in pipelines for use in _of_pipeline(one))]
    for path, role in asked:
        paths.setdefault(path, set()).update(ROLES[role])
    return paths


def _of_input(fields: InputFields) -> Iterator[tuple[str, str]]:
    """Each path that an input uses, and its role."""
    if fields.time is not None and fields.time_format != "record":
        yield fields.time, "text" if fields.time_format == "iso" else "number"
    yield from ((path, "unit") for path in fields.unit)


def _of_pipeline(p: PipelineFields) -> Iterator[tuple[str, str]]:
    """Each path that a pipeline uses, and its role."""
    yield from ((path, "key") for path in p.key if path not in p.derived)
    asked = [p.where, *(column.where for column in p.columns)]
    for column in p.columns:
        asked += () if column.chosen is None else column.chosen.conditions
        yield from ((path, "number") for path in column.paths)
    for derived in p.derived.values():
        if isinstance(derived, Band | TextPart | Lookup | Attribute):
            yield derived.field, derived.role
        elif isinstance(derived, AttributeCases):
            looked_at = (leaf for one in derived.conditions for leaf in leaves(one))
            yield from ((leaf.field, "scalar") for leaf in looked_at)
        elif isinstance(derived, Cases):
            asked += derived.conditions
    yield from ((leaf.field, leaf.role) for condition in asked for leaf in leaves(condition))
    yield from ((path, "number") for path in (p.inputs or {}).values())
    if p.sign is not None:
        yield p.sign, "sign"


_KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "number": int | float}


def tree_of(paths: Mapping[str, set[str]]) -> dict[str, Any]:
    """Nested field names with the type of each leaf; fields not named are skipped unparsed."""
    tree: dict[str, Any] = {}
    for path, kinds in paths.items():
        node = tree
        *parents, leaf = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"field {path!r}: {parent!r} is used as a value elsewhere")
        if isinstance(node.get(leaf), dict):
            raise ConfigError(f"field {path!r} is used as a parent of other fields elsewhere")
        kind: Any = None
        for name in sorted(kinds):
            kind = _KINDS[name] if kind is None else kind | _KINDS[name]
        node[leaf] = kind | None
    return tree


def names_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The same names, with None at each leaf."""
    return {n: names_of(inner) if isinstance(inner, dict) else None for n, inner in tree.items()}


def define(tree: Mapping[str, Any]) -> Any:
    """Define the struct of a tree; its fields have positional names."""
    fields = []
    names = {}
    for place, (name, kind) in enumerate(tree.items()):
        # JSON field names need not be identifiers, so the struct renames them.
        names[f"f{place}"] = name
        nested = define(kind) | None if isinstance(kind, dict) else kind
        fields.append((f"f{place}", nested, None))
    return msgspec.defstruct("Event", fields, rename=names, gc=False)


def getter(path: str, tree: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a getter of a path; it raises AttributeError if a parent is null."""
    places = []
    node: Any = tree
    for step in path.split("."):
        places.append(f"f{list(node).index(step)}")
        node = node[step]
    return attrgetter(".".join(places))


def safely(get: Callable[[Any], Any], event: Any) -> Any:
    """The value of a path; None if the event or a parent is missing."""
    try:
        return get(event)
    except AttributeError:
        return None
