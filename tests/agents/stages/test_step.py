"""Partitions of keys and units: they depend on nothing else, spread well, and never change."""

from __future__ import annotations

import numpy as np
from hushstream.agents.stages.step import route, route_units
from hushstream.mechanisms.keys import Keys
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.binary(max_size=9), max_size=40), st.integers(1, 7))
def test_every_key_has_one_home_whatever_stands_beside_it(keys, partitions):
    homes = route(Keys.of(keys), partitions)
    assert [int(route(Keys.of([k]), partitions)[0]) for k in keys] == homes.tolist()
    assert all(0 <= home < partitions for home in homes)


def test_homes_are_spread_and_stable():
    keys = Keys.of(b'["key-%d"]' % i for i in range(4000))
    counts = np.bincount(route(keys, 4), minlength=4)
    assert counts.min() > 800
    # Genesis fixes the partitions: a change of this hash would split every key's sum.
    assert route(keys, 1 << 16)[:4].tolist() == [16578, 52045, 43392, 3723]
    digests = np.arange(4000 * 16, dtype=np.int64).astype(np.uint8).reshape(-1, 16)
    assert set(route_units(digests, 3).tolist()) <= {0, 1, 2}
    head = [int.from_bytes(d[:4].tobytes(), "big") % 3 for d in digests]
    assert route_units(digests, 3).tolist() == head
