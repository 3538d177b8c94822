"""Units: injective encodings, keyed digests, and the partitions of Kafka's partitioners."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hushstream.agents.stages.ingest.unit_digests import UnitDigests, encode_unit, hashed
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

from ....judge.places import murmur2

KEY = b"k" * 32
UNIT = st.sampled_from(["", "a", "b", "1", "ü"]) | st.integers(-2, 2)
PARTS = st.tuples(st.sampled_from(["a", "1"]), st.integers(0, 1))


def digest(unit: object) -> bytes:
    return hashlib.blake2b(encode_unit(unit), digest_size=16, key=KEY).digest()


@given(st.lists(st.lists(UNIT | PARTS | st.none(), max_size=12), max_size=6))
def test_each_unit_has_its_own_digest_whatever_came_before(lists):
    table = UnitDigests(KEY, "none", 3, 1)
    for units in lists:
        digests, stray = table.look(units)
        told = [row.tobytes() for row, unit in zip(digests, units, strict=True) if unit is not None]
        assert told == [digest(unit) for unit in units if unit is not None]
        assert not stray.any()


@given(st.lists(st.lists(UNIT, max_size=12), max_size=6))
def test_each_unit_has_its_own_home_whatever_came_before(lists):
    table = UnitDigests(KEY, "murmur2", 3, 1)
    for units in lists:
        digests, stray = table.look(units)
        assert [row.tobytes() for row in digests] == [digest(unit) for unit in units]
        homes = [murmur2(str(unit).encode()) & 0x7FFFFFFF for unit in units]
        assert stray.tolist() == [home % 3 != 1 for home in homes]


@pytest.mark.parametrize("size", [0, 5, 39, 40, 41, 125, 126, 127, 128, 1000])
def test_units_of_every_length_have_the_digest_of_the_library_again_and_again(size):
    units = ["x" * size, ("y" * size, 7), ("y" * size, "7"), 10 ** min(size, 300)]
    table = UnitDigests(KEY, "none", 1, 0)
    for _ in range(3):
        digests, _ = table.look(units)
        assert [row.tobytes() for row in digests] == [digest(unit) for unit in units]


def test_without_a_declared_partitioner_a_unit_may_be_anywhere():
    _, stray = UnitDigests(KEY, "none", 3, 1).look(["a", "b", "c", 4])
    assert stray.dtype == bool and not stray.any()


def test_a_stray_is_a_stray_again_the_next_time():
    home = int(hashed(Keys.of([b"a"]), "crc32")[0] % 2)
    table = UnitDigests(KEY, "crc32", 2, 1 - home)
    assert all(bool(table.look(["a"])[1][0]) for _ in range(3))
    assert np.array_equal(UnitDigests(KEY, "crc32", 2, home).look(["a"])[1], [False])


def test_units_are_encoded_injectively():
    texts = {encode_unit(u) for u in ("1", 1, ("1",), ("1", "1"), ("11",), (1, "1"), ("1", 1), "s")}
    assert len(texts) == 7  # a single value equals a tuple of one


def test_murmur2_is_that_of_the_java_clients():
    # Reference values from Kafka's unit test of Utils.murmur2, before the sign is dropped.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}  # fmt: skip
    hashes = hashed(Keys.of(known), "murmur2")
    assert hashes.tolist() == [value & 0x7FFFFFFF for value in known.values()]
