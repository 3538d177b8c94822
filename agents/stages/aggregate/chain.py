"""Chains of windows: the number of consecutive windows that have carried their rows on.

A window begins with the rows of the window before, if that one was released, and with none after a
refused epoch. So the length of the chain follows from ledger and schedule alone, and every shard
counts the same.
"""

from __future__ import annotations

from ....errors import EngineError
from ....mechanisms.columns import Hop
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.layout import chain_of
from ...state.store import Changes, Overlay, StateReader


def lengthen(reader: StateReader, window: int, rows: Changes) -> None:
    """Store the length of a window's chain in the step that closes its trigger."""
    (before,) = reader.get_many([chain_of(window - 1)])
    length = 1 if before is None else 1 + int.from_bytes(before, "big")
    rows[chain_of(window)] = length.to_bytes(8, "big")


def hop_of(reader: StateReader, pipeline: Pipeline, trigger: Trigger, rows: Changes) -> Hop:
    """Look up the place of a closed window in its chain.

    Raises:
        EngineError: the length of its chain is missing.
    """
    (found,) = Overlay(reader, rows).get_many([chain_of(trigger.window)])
    if found is None:
        raise EngineError(
            f"pipeline {pipeline.name!r}: the state does not say which windows were released "
            f"before window {trigger.window}: delete the data folder and restart"
        )
    return Hop(pipeline.windows.ordinal(trigger.window) + 1, int.from_bytes(found, "big"))
