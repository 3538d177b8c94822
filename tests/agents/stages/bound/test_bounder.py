"""The bound over a table: rows in memory are neither ahead of committed rows nor behind them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hushstream.agents.stages.bound.bounder import Bounder
from hushstream.agents.stages.step import Step
from hushstream.agents.state.folders import discard
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.store import Changes
from hushstream.mechanisms.keys import Keys
from hushstream.topics.frames import CellsFrame, EventSlice, decode
from hushstream.topics.records import Marker

from ....support import NAMES, deployment

PAGES = Keys.of([b'["p%d"]' % n for n in range(6)])


def slices(random: Random, units: int) -> list[EventSlice]:
    found = []
    for _ in range(random.randrange(1, 4)):
        rng, n = np.random.default_rng(random.randrange(1 << 30)), random.randrange(1, 120)
        unit = np.zeros((n, 16), np.uint8)
        unit[:, 0] = unit[:, 9] = rng.integers(0, units, n)
        value, sign = np.empty((n, 0), np.int64), np.ones(n, np.int8)
        found.append(EventSlice(0, 1, unit, PAGES, rng.integers(0, 6, n), value, sign))
    return found


def accepted(step: Step) -> Counter[bytes]:
    sums: Counter[bytes] = Counter()
    for out in step.out:
        frame = decode(out.value or b"")
        assert isinstance(frame, CellsFrame)
        sums.update(dict(zip(frame.part.key, frame.part.sums[:, 0].tolist(), strict=True)))
    return sums


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(12))
def test_steps_that_failed_and_tables_that_were_lost_change_no_bound(tmp_path: Path, seed: int):
    random = Random(seed)
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0").pipelines[0]
    bounder = Bounder(made, NAMES, 0, None)
    hold, units = random.choice((0, 3, 12, 40, 10_000)), random.choice((5, 60))
    work = [slices(random, units) for _ in range(25)]
    whole = RocksStore(tmp_path / "whole", None, 1 << 20)
    table = RocksStore(tmp_path / "t", None, 1 << 20, hold)
    log: list[Changes] = []  # the changelog
    for one in work:
        expected = Step(Marker("g", 0))
        bounder.absorb(whole, one, expected)
        whole.write(expected.rows, expected.units.columns())
        while True:
            step = Step(Marker("g", 0))
            bounder.absorb(table, one, step)
            assert accepted(step) == accepted(expected)
            assert step.units.columns().changes() == expected.units.columns().changes()
            if random.random() < 0.7:
                break  # otherwise its transaction failed and must leave no trace
        log.append({**step.units.columns().changes(), **step.rows})
        table.write(step.rows, step.units.columns())
        fate = random.random()
        if fate < 0.1:
            table.flush()
        elif fate < 0.2:  # closed and reopened
            table.close()
            table = RocksStore(tmp_path / "t", None, 1 << 20, hold)
        elif fate < 0.3:  # lost, and restored from the changelog
            table.abandon()
            discard(tmp_path / "t")
            table = RocksStore(tmp_path / "t", None, 1 << 20, hold)
            for changes in log:
                table.write(changes)
    assert dict(table.scan(b"u", b"v")) == dict(whole.scan(b"u", b"v"))
    table.close()
    whole.close()


CAPPED = {
    "delta = 1e-4 }": 'delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4, period = "4d" } }'
}


def day(random: Random, window: int, units: int) -> list[EventSlice]:
    return [one._replace(window=window) for one in slices(random, units)]


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", range(12))
def test_no_purse_is_forgotten_where_steps_failed_and_tables_were_lost(tmp_path: Path, seed: int):
    """Windows come and go out of order; the result is that of a table without any fault."""
    random = Random(seed)
    made = deployment(
        partitioner="murmur2", mechanism=", adaptive_weight = 0", swap=CAPPED
    ).pipelines[0]
    assert made.lifetime is not None and made.lifetime.cap.most == 8
    hold, units = random.choice((0, 3, 12, 40, 10_000)), random.choice((5, 60))
    whole = RocksStore(tmp_path / "whole", None, 1 << 20)
    table = RocksStore(tmp_path / "t", None, 1 << 20, hold)
    log: list[Changes] = []
    bounder, total = Bounder(made, NAMES, 0, None), 0
    for place in range(30):
        window = max(0, place // 3 - random.choice((0, 0, 1)))
        floor = max(0, place // 3 - 1)
        one = day(random, window, units)
        expected = Step(Marker("g", 0))
        bounder.absorb(whole, one, expected, None)  # it forgets nothing, with equal results
        whole.write(expected.rows, expected.units.columns())
        while True:
            step = Step(Marker("g", 0))
            bounder.absorb(table, one, step, floor)
            assert accepted(step) == accepted(expected)
            bounder.forget(table, floor, step, 1000)
            if random.random() < 0.7:
                break
        total += sum(accepted(step).values())
        log.append({**step.units.columns().changes(), **step.rows})
        table.write(step.rows, step.units.columns())
        fate = random.random()
        if fate < 0.1:
            table.flush()
        elif fate < 0.3:
            table.close() if fate < 0.2 else table.abandon()
            if fate >= 0.2:
                discard(tmp_path / "t")
            table = RocksStore(tmp_path / "t", None, 1 << 20, hold)
            if fate >= 0.2:
                for changes in log:
                    table.write(changes)
    assert 0 < total <= 8 * 3 * units  # in three periods, with records that cost one or more
    left = [key for key, _ in table.scan(b"u", b"v")]
    assert left and {int.from_bytes(key[3:11], "big") - (1 << 63) for key in left} <= {2}
    assert len(list(whole.scan(b"u", b"v"))) > len(left)  # nothing was deleted from `whole`
    table.close()
    whole.close()


@pytest.mark.parametrize("period", ['period = "4d"', ""])
def test_rows_go_with_their_period_and_not_before(tmp_path: Path, period: str):
    swap = {
        "delta = 1e-4 }": "delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4"
        + (f", {period}" if period else "")
        + " } }"
    }
    made = deployment(partitioner="murmur2", mechanism=", adaptive_weight = 0", swap=swap)
    bounder = Bounder(made.pipelines[0], NAMES, 0, None)
    table, random = RocksStore(tmp_path, None, 1 << 20), Random(1)
    for window in range(4):
        step = Step(Marker("g", 0))
        bounder.absorb(table, day(random, window, 9), step)
        table.write(step.rows, step.units.columns())
    rows = len(list(table.scan(b"u", b"v")))
    for floor, kept in ((3, rows), (4, 0 if period else rows), (400, 0 if period else rows)):
        step = Step(Marker("g", 0))
        assert bounder.forget(table, floor, step, 1000) == (kept == 0 and floor == 4)
        table.write(step.rows)
        assert len(list(table.scan(b"u", b"v"))) == kept
    table.close()
