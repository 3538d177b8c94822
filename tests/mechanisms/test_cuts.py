"""Where slices end: units and merged parts of every mechanism are the same, even if hashes collide.

Covers: mechanisms/contract.py, mechanisms/parts/bounds/lifetime.py
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import build, find
from hushstream.mechanisms.columns import Batch, Part, Units, merge
from hushstream.mechanisms.contract import Mechanism, Setting
from hushstream.mechanisms.histogram import distinct
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.pairs import split
from hushstream.mechanisms.parts.bounds import bounding, points
from hushstream.mechanisms.parts.bounds.lifetime import Cap

from .test_contract import CASES

BITS, UNITS, RECORDS, TRIALS = 2, 3, 16, 8
PAIRS = Keys.of([b'["%c",%d]' % (key, value) for key in b"ABC" for value in range(3)])
BOUNDS = {
    "one-lane": {"budget": 4, "adaptive_weight": 0},
    "two-lanes": {"budget": 5, "adaptive_weight": 0.5},
    "records": {"bound": "records", "budget": 4},
    "per-key": {"bound": "per-key", "budget": 5, "per_key": 2},
}


def histogram(given: dict[str, object], **around: object) -> Mechanism:
    setting = Setting(Fraction(4), Fraction(1, 10**4), **({"horizon": 4} | around))  # type: ignore[arg-type]
    return build("histogram", find("histogram").parameters(**given), setting)


def of_pairs(random: np.random.Generator) -> Trace:
    """Records of a few keys and values."""
    n = 2 * RECORDS
    return Trace(
        np.ones(n, np.intp), random.integers(0, UNITS, n), PAIRS, random.integers(0, len(PAIRS), n),
        np.zeros((n, 0), np.int64), np.ones(n, np.int8),
    )  # fmt: skip


MADE: dict[str, tuple[Mechanism, Callable[[np.random.Generator], Trace]]] = {
    **{one.name: (one.mechanism, one.trace) for one in CASES},
    **{f"distinct-{n}": (histogram(one, distinct=True), of_pairs) for n, one in BOUNDS.items()},
    "hopping": (histogram({"budget": 5}, horizon=1, windows=4, hops=4), of_pairs),
}


def taken(
    mechanism: Mechanism, trace: Trace, status: np.ndarray, size: int, cap: Cap | None
) -> list[object]:
    """Final state of units and the merged part, from slices of ``size`` records."""
    units, parts = mechanism.traits.units(UNITS), [mechanism.traits.part()]
    purse = np.full(UNITS, cap.most if cap else 0, np.int64)
    for begin in range(0, RECORDS, size):
        some = trace.where(np.arange(begin, min(begin + size, RECORDS)))
        used, key = np.unique(some.key, return_inverse=True)
        batch = Batch(some.keys.take(used), key, some.unit, some.value, some.sign, status[used])
        if cap is None:
            units, part = mechanism.absorb(units, batch)
        else:
            purse, units, part = cap.absorb(mechanism, purse, units, batch)
        parts.append(part)
    return [purse.tolist(), *stored(units), *summed(merge(parts))]


def stored(units: Units) -> list[object]:
    return [column.tolist() for column in units]


def summed(part: Part) -> list[object]:
    """Totals, and sums by key and lane; a sum of nothing is no sum."""
    rows = zip(part.key.tolist(), part.lane.tolist(), part.sums.tolist(), strict=True)
    return [part.totals.tolist(), sorted(row for row in rows if any(row[2]))]


def statuses(mechanism: Mechanism, keys: Keys, random: np.random.Generator) -> np.ndarray:
    """A status for each key; pairs of one key have the same."""
    row = split(keys).key if mechanism.traits.pairs else np.arange(len(keys))
    told = random.integers(0, 3, len(keys)).astype(np.int32)
    return told[row] * np.int32(mechanism.traits.feedback)


@pytest.fixture
def colliding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of pairs that are cut to two bits."""
    whole = bounding.pair_hash

    def cut(keys: Keys, window: int) -> np.ndarray:
        return whole(keys, window) % np.uint32(1 << BITS)

    for module in (bounding, points, distinct):
        monkeypatch.setattr(module, "pair_hash", cut)


@pytest.mark.parametrize("name", MADE)
def test_a_cut_anywhere_changes_nothing(name: str, colliding: None) -> None:
    mechanism, trace_of = MADE[name]
    for number in range(TRIALS):
        random = np.random.default_rng(number)
        trace = trace_of(random)
        trace = trace.where(np.sort(random.choice(len(trace.unit), RECORDS, replace=False)))
        trace = trace._replace(unit=trace.unit % UNITS)
        status = statuses(mechanism, trace.keys, random)
        caps: list[Cap | None] = [None]
        if (spending := mechanism.spending) is not None:
            least = spending.opening + spending.least
            most = int(random.integers(least, least + mechanism.traits.bound + 1))
            caps.append(Cap(most, spending.opening))
        for cap in caps:
            whole = taken(mechanism, trace, status, RECORDS, cap)
            for size in (1, 5):
                assert taken(mechanism, trace, status, size, cap) == whole
