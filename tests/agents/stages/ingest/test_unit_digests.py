"""Units: injective encodings, keyed digests, the homes of Kafka's partitioners."""

from __future__ import annotations

import hashlib

import hushstream.agents.stages.ingest.unit_digests as module
import numpy as np
from hushstream.agents.stages.ingest.unit_digests import UnitDigests, encode_unit, hashed
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st

KEY = b"k" * 32
UNIT = (
    st.sampled_from(["", "a", "b", "1", "ü"])
    | st.integers(-2, 2)
    | st.tuples(st.sampled_from(["a", "1"]), st.integers(0, 1))
)


def digest(unit: object) -> bytes:
    return hashlib.blake2b(encode_unit(unit), digest_size=16, key=KEY).digest()


@given(st.lists(st.lists(UNIT | st.none(), max_size=12), max_size=6), st.integers(1, 9))
def test_each_unit_has_its_own_digest_and_home_whatever_was_forgotten(lists, most):
    table = UnitDigests(KEY, "murmur2", 3, 1, most)
    for units in lists:
        digests, stray = table.look(units)
        assert [row.tobytes() for row in digests] == [digest(unit) for unit in units]
        homes = hashed(Keys.of(str(unit).encode() for unit in units), "murmur2") % 3
        assert stray.tolist() == (homes != 1).tolist()


def test_the_table_begins_again_before_long_units_fill_the_memory(monkeypatch):
    monkeypatch.setattr(module, "KNOWN_BYTES", 10_000)
    table, held = UnitDigests(KEY, "none", 1, 0), 0
    for begun in range(0, 400, 4):
        units = [("s", f"{n}" + "u" * 500) for n in range(begun, begun + 4)]
        digests, _ = table.look(units)
        assert [row.tobytes() for row in digests] == [digest(unit) for unit in units]
        held = max(held, len(table))
    assert held <= 24


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
    assert len(texts) == 7  # a single value is a tuple of one


def test_murmur2_is_that_of_the_java_clients():
    # Reference values of Kafka's own unit test of Utils.murmur2, before the sign is dropped.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
             b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}  # fmt: skip
    hashes = hashed(Keys.of(known), "murmur2")
    assert hashes.tolist() == [value & 0x7FFFFFFF for value in known.values()]
