"""The bound over a table: what memory holds is neither ahead of what was committed nor behind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hushstream.agents.stages.bound.bounder import Bounder
from hushstream.agents.stages.step import Step
from hushstream.agents.state.rocks import RocksStore, discard
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
                break  # else its transaction failed: nothing of it may be seen
        log.append({**step.units.columns().changes(), **step.rows})
        table.write(step.rows, step.units.columns())
        fate = random.random()
        if fate < 0.1:
            table.flush()
        elif fate < 0.2:  # closed, and opened again
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
