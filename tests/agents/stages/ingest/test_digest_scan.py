"""Compiled digests and partitioners agree with the hashing libraries, at every length."""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests, encode_unit
from hushstream.formats.events.views import UnitTexts

from ....judge.places import home

TEXTS = [f"u{n}" for n in range(50)] + ["é" * n for n in range(140)] + ["x" * 4096, "-17", "0"]


def columns(units: list[object]) -> UnitTexts:
    """The units as texts: most in one buffer, some beside it."""
    texts = [str(unit).encode() for unit in units]
    ends = np.cumsum([0, *map(len, texts)])
    integer = np.array([isinstance(unit, int) for unit in units])
    data = np.frombuffer(b"".join(texts), np.uint8)
    return UnitTexts(data, ends[:-1], ends[1:], integer, {3: units[3], 5: None})


def by_libraries(
    units: list[object], key: bytes, partitioner: str, partitions: int, partition: int
) -> tuple[np.ndarray, np.ndarray]:
    """Digests and strays, computed one unit at a time."""
    made = [hashlib.blake2b(encode_unit(u), digest_size=16, key=key).digest() for u in units]
    homes = [partition] * len(units)
    if partitioner != "none":
        homes = [home((unit,), partitioner, partitions) for unit in units]
    return np.frombuffer(b"".join(made), np.uint8).reshape(-1, 16), np.array(homes) != partition


@pytest.mark.parametrize("partitioner", ["none", "murmur2", "crc32"])
def test_digests_and_homes_are_those_of_units_one_by_one(partitioner):
    random = Random(1)
    units: list[object] = [*TEXTS, *(random.randrange(-(10**18), 10**18) for _ in range(50)), 0, 7]
    random.shuffle(units)
    key = random.randbytes(32)
    digest, stray = UnitDigests(key, partitioner, 7, 3).look(columns(units))
    wanted, away = by_libraries(units, key, partitioner, 7, 3)
    rows = [row for row in range(len(units)) if row != 5]
    assert (digest[rows] == wanted[rows]).all()
    assert (stray[rows] == away[rows]).all()
    assert partitioner == "none" or 0.5 < stray[rows].mean() < 1


def test_units_that_come_again_have_the_same_digests_whatever_came_between():
    random, key = Random(2), bytes(range(32))
    looks = UnitDigests(key, "murmur2", 5, 1)
    for number in range(12):  # more units than it remembers at first, so some are evicted
        units: list[object] = [random.choice((f"u{n}", n, f"{n}" * 9)) for n in range(4_000)]
        units += [f"fresh {number} {n}" for n in range(1_500)]
        random.shuffle(units)
        digest, stray = looks.look(columns(units))
        wanted, away = by_libraries(units, key, "murmur2", 5, 1)
        rows = [row for row in range(len(units)) if row != 5]
        assert (digest[rows] == wanted[rows]).all()
        assert (stray[rows] == away[rows]).all()
        assert 0.5 < stray[rows].mean() < 1


def test_a_text_and_an_integer_alike_are_two_units_also_when_they_come_again():
    looks = UnitDigests(bytes(32), "none", 1, 0)
    units: list[object] = ["7", 7, "7", "x", 7, None]
    first, _ = looks.look(columns(units))
    again, _ = looks.look(columns(units))
    assert (first[:3] == again[:3]).all() and (first[0] == first[2]).all()
    assert (first[0] != first[1]).any() and (again[0] != again[1]).any()
