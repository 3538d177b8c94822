"""Generations: pipelines that follow each other at boundaries of epochs, on one release topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..model import Deployment


def lineage(name: str, follows: Mapping[str, str]) -> tuple[str, ...]:
    """List what a pipeline follows, the first generation first; () if it follows nothing.

    >>> lineage("c", {"b": "a", "c": "b"})
    ('a', 'b')
    """
    found: list[str] = []
    while (name := follows.get(name, "")) and name not in found:
        found.insert(0, name)
    return tuple(found)


def followed(pipelines: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Tell what each declared pipeline follows, by the bodies of the ledger's declarations."""
    found = {name: body["config"].get("follows") for name, body in pipelines.items()
             if "config" in body}  # fmt: skip
    return {name: other for name, other in found.items() if other}


def with_lineage(deployment: Deployment, pipelines: Mapping[str, Mapping[str, Any]]) -> Deployment:
    """Give each pipeline the list of those that it follows, by the declarations in the ledger.

    A configuration need not name generations that have ended.
    """
    known = followed(pipelines)
    return deployment.each(lambda p: replace(p, lineage=lineage(p.name, known)) if p.follows else p)


def generations(pipelines: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """List declared pipelines that follow each other, oldest first; not those that stand alone."""
    known = followed(pipelines)
    last = [name for name in known if name not in known.values()]
    return [(*lineage(name, known), name) for name in last]
