"""Stored rows of quantiles: their bytes, and the CPU to write and to read them."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any

import numpy as np
from hushstream.agents.stages.aggregate.key_rows import KeyRows
from hushstream.agents.stages.step import Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.mechanisms.columns import Rows
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.quantile.mechanism import Quantiles
from hushstream.topics.records import Marker

ROUNDS = 25


class Fixed(Quantiles):
    """Quantiles with rows in the fixed layout."""

    sparse = False


def released(made: Quantiles, counts: np.ndarray) -> Rows:
    """Rows of released keys with (keys, bands) records."""
    rows = made.traits.rows(Keys.of_codes(np.arange(len(counts), dtype=np.uint64)))
    rows.state["bands"], rows.state["first"], rows.due[:] = counts, 1, -1
    return rows


def size(made: Quantiles, counts: np.ndarray) -> float:
    """Mean bytes of a row, without its key, of released keys with (keys, bands) records."""
    step = Step(Marker("g", 0))
    KeyRows(made.traits).store(0, released(made, counts), step)
    return sum(len(row or b"") for row in step.rows.values()) / len(counts)


def cpu(made: Quantiles, counts: np.ndarray) -> dict[str, float]:
    """Microseconds of CPU to write and read a row, and the ratio to rows in the fixed layout."""
    fixed = Fixed(**{one.name: getattr(made, one.name) for one in fields(made)})
    spent: dict[str, list[float]] = {"packed": [], "fixed": []}
    for _ in range(ROUNDS):  # alternating, so that a busy machine slows both
        for name, kind in (("packed", made), ("fixed", fixed)):
            spent[name].append(_once(kind, released(made, counts)))
    packed, laid = (float(np.median(one)) / len(counts) for one in spent.values())
    return {"row_microseconds": round(1e6 * packed, 2), "row_cpu_over_fixed": packed / laid}


def _once(made: Any, rows: Rows) -> float:
    table, step, store = KeyRows(made.traits), Step(Marker("g", 0)), MemoryStore()
    begun = time.process_time()
    table.store(0, rows, step)
    between = time.process_time()
    store.write(step.rows)
    again = time.process_time()
    found = table.load(store, 0, rows.key)
    spent = time.process_time() - again + between - begun
    if found.state.tobytes() != rows.state.tobytes():
        raise SystemExit("rows do not come back as they were written")
    return spent
