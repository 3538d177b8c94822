"""Spread: the number of partitions for the state of each pipeline.

The number is chosen when a deployment begins, by the configuration or by the size of its inputs.
It decides which shard keeps the bound of a unit, so the genesis in the ledger fixes it, even if the
inputs change. All of this is public.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...topics.config.load import Config
from ...topics.config.toml.values import INPUT

MOST = 4
"""Most partitions chosen by the size of inputs, since each takes memory in some worker."""


class StatePartitions(NamedTuple):
    """Partitions of each topic of units, and of each topic of cells."""

    units: int
    cells: int


BEFORE = StatePartitions(4, 4)
"""Spread of a genesis that states none, written by an earlier version."""


def held(genesis: Mapping[str, Any]) -> StatePartitions:
    """Read the spread that a genesis holds."""
    said = genesis.get("spread")
    return BEFORE if said is None else StatePartitions(int(said["units"]), int(said["cells"]))


def spread_of(config: Config, otherwise: StatePartitions | None = None) -> StatePartitions:
    """Read the spread of a configuration.

    Args:
        otherwise: spread for what the configuration leaves open; None: the largest possible.
    """
    engine, units, cells = config.engine, *(otherwise or StatePartitions(MOST, MOST))
    stated = engine.units_partitions, engine.cells_partitions
    return StatePartitions(
        *(n if one == INPUT else int(one) for n, one in zip((units, cells), stated, strict=True))
    )


def with_spread(config: Config, spread: StatePartitions | None) -> Config:
    """Make the same configuration with all numbers stated, as by `spread_of`."""
    units, cells = spread_of(config, spread)
    return replace(
        config, engine=replace(config.engine, units_partitions=units, cells_partitions=cells)
    )


def by_inputs(partitions: Collection[int]) -> StatePartitions:
    """Choose a spread for a deployment that begins.

    Args:
        partitions: number of partitions of each input topic.

    >>> by_inputs([1, 2]), by_inputs([12])
    (StatePartitions(units=2, cells=2), StatePartitions(units=4, cells=4))
    """
    number = min(max(1, *partitions), MOST) if partitions else 1
    return StatePartitions(number, number)


def is_open(config: Config) -> bool:
    """Whether the size of the inputs decides the spread."""
    return INPUT in (config.engine.units_partitions, config.engine.cells_partitions)
