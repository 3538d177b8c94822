"""Tables of a shard in memory: they load what was stored, in canonical order, for any keys."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.columns import Rows, Units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.tables import RowTable, StatusTable, UnitTable

WIDE = [b"", b"a", b"bcdefghi", b"bcdefghj", b"c" * 20]
CODES = [number.to_bytes(8, "big") for number in (0, 3, 255, 256, 1 << 63)]


def made() -> Histogram:
    setting = Setting(Fraction(4), Fraction(1, 10**5), 7)
    mechanism = build(HistogramParameters(delay=0), setting)
    assert isinstance(mechanism, Histogram)
    return mechanism


def test_units_survive_any_order_of_loads_and_compactions() -> None:
    mechanism = made()
    numbered, any_ids = UnitTable(mechanism.traits, 50), UnitTable(mechanism.traits)
    plain: dict[int, tuple[Any, ...]] = {}
    rng = np.random.default_rng(5)
    for step in range(300):
        ids = np.sort(rng.choice(50, rng.integers(0, 20), replace=False)).astype(np.int64)
        widths = rng.integers(0, 12, len(ids))
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])
        pairs = int(start[-1])
        units = Units(
            rng.integers(0, 99, len(ids)), start, rng.integers(0, 99, pairs).astype(np.uint32),
            rng.integers(0, 9, (pairs, mechanism.traits.lanes)).astype(np.uint16),
        )  # fmt: skip
        numbered.store(ids, units)
        any_ids.store(10**9 - ids[::-1], flipped(units))
        for i, one in enumerate(ids.tolist()):
            rows = slice(start[i], start[i + 1])
            plain[one] = units.left[i], units.pair[rows].tolist(), units.used[rows].tolist()
        if step % 20 == 0:
            every = np.array(sorted(plain), np.int64)
            assert told(numbered.load(every)) == [plain[one] for one in every.tolist()]
            assert told(any_ids.load(10**9 - every[::-1]))[::-1] == told(numbered.load(every))
    assert len(numbered._pair) < 20_000  # it was compacted often


def flipped(units: Units) -> Units:
    """The same units in reverse."""
    ends = list(zip(units.start[:-1], units.start[1:], strict=True))[::-1]
    rows = np.concatenate([np.arange(a, b) for a, b in ends] or [np.zeros(0)]).astype(np.intp)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum([b - a for a, b in ends])])
    return Units(units.left[::-1], start.astype(np.int64), units.pair[rows], units.used[rows])


def told(units: Units) -> list[tuple[Any, ...]]:
    """Each unit's state separately."""
    return [
        (left, units.pair[a:b].tolist(), units.used[a:b].tolist())
        for left, a, b in zip(units.left, units.start[:-1], units.start[1:], strict=True)
    ]


def test_a_unit_that_was_never_seen_is_fresh() -> None:
    mechanism = made()
    table = UnitTable(mechanism.traits)
    fresh = table.load(np.array([7, 10**12]))
    np.testing.assert_array_equal(fresh.left, mechanism.traits.units(2).left)
    assert fresh.start.tolist() == [0, 0, 0]


@pytest.mark.parametrize("keys", [WIDE, CODES, [b"", *CODES], [*CODES, b"\xff"]])
def test_rows_come_back_with_their_keys_and_when_they_are_due(keys: list[bytes]) -> None:
    mechanism = made()
    table, plain = RowTable(mechanism.traits), {}
    rng = np.random.default_rng(1)
    empty = mechanism.traits.part()
    for t in range(1, 60):
        some = sorted(one for one in keys if rng.random() < 0.4)
        part = empty._replace(key=Keys.of(some))
        rows = table.load(part, t, scan=t % 7 == 0)
        due = {one for one, (_, when) in plain.items() if when in (t, -1) or t % 7 == 0}
        assert rows.key.tolist() == sorted(due | set(some))
        fresh = mechanism.traits.rows(rows.key)
        for i, one in enumerate(rows.key):
            state, when = plain.get(one, (fresh.state[i], fresh.due[i]))
            assert rows.state[i] == state and rows.due[i] == when
        rows.state["sums"][:] += t
        rows = Rows(
            rows.key, rows.state, rng.choice([0, -1, t + 1], len(rows.key)).astype(np.int32)
        )
        table.store(rows)
        states = zip(rows.state.copy(), rows.due.tolist(), strict=True)
        plain |= dict(zip(rows.key.tolist(), states, strict=True))
    assert table.rows.key.tolist() == sorted(plain) == sorted(keys)


@pytest.mark.parametrize("keys", [WIDE, CODES])
@pytest.mark.parametrize("delay", [0, 2])
def test_statuses_count_after_their_delay(keys: list[bytes], delay: int) -> None:
    table, ever = StatusTable(delay), [dict.fromkeys(keys, 0)]
    rng = np.random.default_rng(2)
    for t in range(1, 20):
        some = [one for one in keys if rng.random() < 0.3]
        rng.shuffle(some)
        table.add(Keys.of(some), np.full(len(some), t, np.int32))
        ever.append(ever[-1] | dict.fromkeys(some, t))
        then = ever[max(t - delay, 0)]
        assert table.of(Keys.of(keys)).tolist() == [then[one] for one in keys]
