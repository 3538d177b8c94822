"""Compiled digests and partitioners: those of the hashing libraries, at every length."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.topics.events.columns import UnitTexts

pytest.importorskip("numba")
TEXTS = [f"u{n}" for n in range(50)] + ["é" * n for n in range(140)] + ["x" * 4096, "-17", "0"]


def columns(units: list[object]) -> UnitTexts:
    """The units as texts in a buffer, some of them beside it."""
    texts = [str(unit).encode() for unit in units]
    ends = np.cumsum([0, *map(len, texts)])
    integer = np.array([isinstance(unit, int) for unit in units])
    data = np.frombuffer(b"".join(texts), np.uint8)
    return UnitTexts(data, ends[:-1], ends[1:], integer, {3: units[3], 5: None})


@pytest.mark.parametrize("partitioner", ["none", "murmur2", "crc32"])
def test_digests_and_homes_are_those_of_units_one_by_one(partitioner):
    random = Random(1)
    units: list[object] = [*TEXTS, *(random.randrange(-(10**18), 10**18) for _ in range(50)), 0, 7]
    random.shuffle(units)
    key = random.randbytes(32)
    digest, stray = UnitDigests(key, partitioner, 7, 3).look(columns(units))
    wanted, home = UnitDigests(key, partitioner, 7, 3).look(units)
    rows = [row for row in range(len(units)) if row != 5]
    assert (digest[rows] == wanted[rows]).all()
    assert (stray[rows] == home[rows]).all()
    assert partitioner == "none" or 0.5 < stray[rows].mean() < 1
