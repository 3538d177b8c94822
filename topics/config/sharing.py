"""Budgets shared by several pipelines: their settings, and contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .pipelines.budgets import SharedBudget
from .pipelines.pipeline import PipelineSettings
from .toml.lines import Path

if TYPE_CHECKING:
    from .model import Config

ALIKE = ("input", "unit_name", "neighbouring", "epoch_length", "schedule")


def fill_in(data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Give each member its shared budget as if it had it alone; yield contradictions.

    The actual shares are smaller; they are determined where mechanisms are built.

    Args:
        data: tables of the file; members get a ``budget``.
    """
    owners = {}
    for shared in _tables(data, "budget"):
        members = shared.get("members")
        for name in members if isinstance(members, dict) else ():
            owners[name] = shared
    for place, pipeline in enumerate(_tables(data, "pipeline")):
        shared = owners.get(str(pipeline.get("name")), {})
        if "epsilon" not in shared:
            continue
        if "budget" in pipeline:
            yield (
                ("pipeline", place, "budget"),
                f'is one too many: [[budget]] "{shared.get("name")}" has this pipeline among its '
                "members",
            )
        pipeline["budget"] = {n: shared[n] for n in ("epsilon", "delta") if n in shared}


def _tables(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    listed = data.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def owner(config: Config, pipeline: str) -> SharedBudget | None:
    """Find the budget that a pipeline shares; None: it has its own."""
    return next((shared for shared in config.budget if pipeline in shared.members), None)


def contradictions(config: Config) -> Iterator[tuple[Path, str]]:
    """Yield contradictions in shared budgets, with their places."""
    known = {p.name: p for p in config.pipeline}
    names = Counter(shared.name for shared in config.budget)
    times = Counter(name for shared in config.budget for name in shared.members)
    for place, shared in enumerate(config.budget):
        path = ("budget", place)
        if names[shared.name] > 1:
            yield (*path, "name"), f'"{shared.name}" occurs twice'
        if len(shared.members) < 2:
            yield (*path, "members"), "are fewer than two: set the pipeline's own budget"
        for name in shared.members:
            if times[name] > 1:
                yield (*path, "members"), f'"{name}" shares another budget, too'
            if name not in known:
                yield (*path, "members"), f'there is no pipeline "{name}"'
        members = [known[name] for name in shared.members if name in known]
        for message in _different(members):
            yield (*path, "members"), message


def _different(members: list[PipelineSettings]) -> Iterator[str]:
    for one in members[1:]:
        first = members[0]
        for name in ALIKE:
            if getattr(one, name) != getattr(first, name):
                yield f'"{first.name}" and "{one.name}" differ in {name}: they share no charge'
        if one.window.zone != first.window.zone:
            yield f'"{first.name}" and "{one.name}" differ in window.zone, and so in their epochs'
        if one.window.origin != first.window.origin:
            yield f'"{first.name}" and "{one.name}" differ in window.origin, and so in their epochs'
    for one in members:
        if one.follows is not None:
            yield f'"{one.name}" follows another pipeline: its epochs would be its own'
        if one.until != members[0].until:
            yield f'"{members[0].name}" and "{one.name}" differ in until: they end together'
