"""Exact answers of a file, for what a pipeline releases: the truth that a simulation compares with.

Nothing here is private. Every answer is without the contribution bound, so that the comparison
shows what the bound cut off; values are clipped to their public range, as the release states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Pipeline
from ..formats.events.decode import View
from ..mechanisms.columns import I64
from ..mechanisms.slots.slots import split
from ..topics.config.aggregates import COUNT, AnyAggregate, Estimate

Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """Exact answers of one window.

    Attributes:
        records: number of its records.
        held: key as it is released -> number of records (of units, where units count).
        values: name of a value -> key -> exact answer; NaN where there is none.
    """

    records: int
    held: Mapping[bytes, int]
    values: Mapping[str, Mapping[bytes, float]]


def counts_units(p: Pipeline) -> bool:
    """Whether a count of the pipeline is one of distinct units: each counts once in a key."""
    most = p.mechanism.bounds(p.unit_name).get("most_records_per_key")
    return p.mechanism.key_form != "code" and most == 1


def of_keys(p: Pipeline, view: View, mine: Bool, unit: I64) -> Truth:
    """Answer for a pipeline whose keys are of the records.

    Args:
        p: the pipeline.
        view: its decoded records.
        mine: (n,) those of the window.
        unit: (n,) number of each record's unit.
    """
    key, sign = view.key[mine], view.sign[mine].astype(np.int64)
    size = len(view.keys)
    if counts_units(p):
        pairs = np.unique(np.stack([key.astype(np.int64), unit[mine]]), axis=1)
        number = np.bincount(pairs[0], minlength=size)
    else:
        number = _added(key, sign, size)
    live = np.flatnonzero(np.bincount(key, minlength=size))
    names = view.keys.take(live).tolist()
    sums = {
        f.field: _added(key, sign * view.value[mine, place], size)
        for place, f in enumerate(p.fields.columns)
    }
    grids = {f.field: f.grid for f in p.fields.columns}
    records = _added(key, sign, size)
    values = {}
    for one in p.aggregates:
        counted = number if one.parts == (COUNT,) else records
        values[one.label] = {
            name: _answer(
                one, int(counted[at]), {f: int(s[at]) * grids[f] for f, s in sums.items()}
            )
            for name, at in zip(names, live.tolist(), strict=True)
        }
    held = dict(zip(names, number[live].tolist(), strict=True))
    return Truth(int(mine.sum()), held, values)


def _answer(one: AnyAggregate, number: int, sums: Mapping[str, Fraction]) -> float:
    """The aggregate of exact parts, by its own rule."""
    fields = [f.field for f in one.columns]
    parts = [Estimate(Fraction(number), 0.0)] if COUNT in one.parts else []
    parts += [Estimate(sums[field], 0.0) for field in fields]
    if len(parts) == 2 and number == 0:
        return float("nan")  # a mean of nothing
    if len(parts) == 2:
        return float(parts[1].value / parts[0].value)
    return float(parts[0].value)


def _added(key: NDArray[np.intp], value: I64, size: int) -> I64:
    """(size,) exact sums of integers by key."""
    out = np.zeros(size, np.int64)
    np.add.at(out, key, value)
    return out


def of_cells(view: View, mine: Bool, cells: Sequence[bytes], names: Sequence[str]) -> Truth:
    """Answer for released cells of any size: how many records lie in each.

    Args:
        view: decoded records, whose keys are finest cells.
        mine: (n,) those of the window.
        cells: keys of the released cells.
        names: of the values; each of them is a count.
    """
    codes = view.keys.codes()[view.key[mine]]
    order = np.argsort(codes)
    codes = codes[order]
    running = np.concatenate([[0], np.cumsum(view.sign[mine][order].astype(np.int64))])
    finest = int(codes[-1]).bit_length() if len(codes) else 1
    held = {}
    for cell in cells:
        code = int.from_bytes(cell, "big")
        more = max(finest - code.bit_length(), 0)
        low, high = (np.uint64(n << more) for n in (code, code + 1))
        begin, end = np.searchsorted(codes, [low, high])
        held[cell] = int(running[end] - running[begin])
    answers = {cell: float(number) for cell, number in held.items()}
    return Truth(int(mine.sum()), held, dict.fromkeys(names, answers))


def of_slots(p: Pipeline, view: View, mine: Bool, released: Sequence[bytes]) -> Truth:
    """Answer for released slots: sum of each, and running total.

    The first row of a window that publishes its warm-up's sum stands for the whole warm-up.

    Args:
        p: the pipeline.
        view: decoded records, whose keys are slots with buckets.
        mine: (n,) those of the window.
        released: keys of the released slots.
    """
    slot = split(view.keys)[0][view.key[mine]]
    value = view.value[mine, 0]
    grid = float(p.fields.columns[0].grid)
    size = int(max(slot.max(initial=0), *(_slot(key) for key in released), 0)) + 1
    every = _added(slot.astype(np.intp), value, size) * grid
    held = np.bincount(slot, minlength=size)
    slots = sorted((_slot(key), key) for key in released)
    first = slots[0][0] if slots else 0
    whole = _stands_for_warmup(p, first)
    total = np.cumsum(every if whole else np.where(np.arange(size) < first, 0, every))
    sums = {key: float(total[at] if whole and at == first else every[at]) for at, key in slots}
    prefix = {key: float(total[at]) for at, key in slots}
    return Truth(
        int(mine.sum()),
        {key: int(held[at]) for at, key in slots},
        {"sum": sums, "prefix": prefix},
    )


def _slot(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _stands_for_warmup(p: Pipeline, first: int) -> bool:
    """Whether the first released slot is the last one of a warm-up that `pak` sums up."""
    given: dict[str, Any] = p.config["mechanism"]["parameters"]
    return p.kind == "pak" and first == given["warmup"] * given["slots_per_trigger"] - 1


def kept_share(view: View, unit: I64, epoch: I64, most: int) -> float:
    """Share of records within a bound of so many records of a unit in an epoch.

    Args:
        view: decoded records.
        unit: (n,) number of each record's unit.
        epoch: (n,) of each record.
        most: records of a unit that count in an epoch.
    """
    if not len(view.key):
        return 1.0
    _, number = np.unique(np.stack([unit, epoch]), axis=1, return_counts=True)
    return float(np.minimum(number, most).sum() / len(view.key))
