"""The first limit that a load reaches, in words that name a setting."""

from __future__ import annotations

import pytest
from hushstream.planning.costs import COSTS
from hushstream.planning.limits import BROKER_BYTES, limits
from hushstream.planning.size import Load, size

PLAIN = Load(1e6, 1e5, 1e5)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"partitions": 1}, "one shard's core"),
        ({"keys": 1e9, "cells": 1}, "triggers"),
        ({"raw_bytes": 1e5}, "the brokers' disks"),
        ({"users": 1e8, "unit_cache": 1e7}, "memory for rows of units"),
        ({"rate": 1e7, "keys": 1e9, "users": 1e9, "step": 4_000, "processes": 2_000,
          "partitions": 6_000, "cells": 2_000, "raw_bytes": 0, "replicas": 1}, "frames"),
    ],
)  # fmt: skip
def test_the_part_that_is_loaded_most_comes_first(change, first):
    load = PLAIN._replace(**change)
    found = limits(load, size(load, COSTS), brokers=100 if first == "frames" else 3)
    assert found[0].words.startswith(first) and found[0].room == min(one.room for one in found)
    assert found == sorted(found)


def test_room_is_the_factor_by_which_the_load_may_grow():
    found = size(PLAIN, COSTS)
    disks = next(one for one in limits(PLAIN, found, 3) if "disks" in one.words)
    assert disks.room == pytest.approx(3 * BROKER_BYTES / (found.written + 3 * found.raw))
    idle = PLAIN._replace(rate=0.0, keys=0.0)
    assert all(one.room == float("inf") for one in limits(idle, size(idle, COSTS), 3))
