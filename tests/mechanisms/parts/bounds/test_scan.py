"""The compiled bound: decisions and rows of units are those of its definition, at every step."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import Batch, Units, empty_units
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds import bounding
from hushstream.mechanisms.parts.bounds.bounding import Bound, Once

from ....oracles.bounds import taken

BOUNDS = [
    Bound("quadratic", 1, (1,)),
    Bound("quadratic", 9, (1,)),
    Bound("quadratic", 350, (100, 9)),
    Bound("quadratic", 350, (100, 9), caps=(1, 4)),
    Bound("records", 5, (1, 1)),
    Bound("records", 12, (1,), 2),
]


def slice_of(random: Random, units: int, keys: int, n: int) -> Batch:
    """Records of a few busy units and of many others, in one of two windows."""
    who = [min(int(random.paretovariate(0.7)), units) - 1 for _ in range(n)]
    return Batch(
        Keys.of([b"k" * (key % 7) + b"%d" % key for key in range(keys)]),
        np.array([random.randrange(keys) for _ in who], np.intp),
        np.array(who, np.intp),
        np.zeros((n, 0), np.int64),
        np.ones(n, np.int8),
        np.zeros(keys, np.int32),
        random.randrange(2),
    )


def same(one: object, other: object) -> None:
    np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_every_step_gives_the_answers_of_the_definition(bound: Bound) -> None:
    random, lanes = Random(1), len(bound.weights)
    state, refused = empty_units(60, lanes, bound.left), 0
    for number in range(25):
        batch = slice_of(random, 60, 1 + 4 * number, random.choice((0, 1, 7, 300)))
        lane = np.array([random.randrange(lanes) for _ in batch.keys], np.intp)
        wanted = taken(bound, state, batch, lane, bounding.hashes(batch))
        got = bound.apply(state, batch, lane)
        for one, other in zip(got.units, wanted.units, strict=True):
            same(one, other)
        same(got.accepted, wanted.accepted)
        refused += int((~got.accepted).sum())
        state = got.units
    assert refused > 100 and len(state.pair) > 10


def test_keys_that_share_a_hash_pay_for_one_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bounding, "hashes", lambda batch: (np.arange(len(batch.keys)) % 3).astype(np.uint64)
    )
    test_every_step_gives_the_answers_of_the_definition(BOUNDS[2])
    test_every_step_gives_the_answers_of_the_definition(BOUNDS[5])


def test_of_a_group_one_record_is_accepted_and_a_refused_one_does_not_stand_in_its_way() -> None:
    batch = slice_of(Random(4), 1, 3, 5)._replace(key=np.array([0, 0, 1, 1, 2], np.intp))
    once = Once(np.array([0, 1, 1, 1, 2], np.intp), np.array([False, False, True]))
    done = Bound("quadratic", 3, (1,)).apply(
        empty_units(1, 1, 3), batch, np.zeros(3, np.intp), np.arange(3, dtype=np.uint32), once
    )
    assert done.accepted.tolist() == [True, False, True, False, False]
    assert done.units.left.tolist() == [1] and once.had.tolist() == [False, False, True]


def test_no_key_has_the_reserved_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    highest = np.full(4, 0xFFFFFFFF, np.uint32)
    monkeypatch.setattr(bounding, "pair_hash", lambda keys, window: highest)
    assert (bounding.hashes(slice_of(Random(2), 5, 4, 1)) == 0xFFFFFFFE).all()


def test_pairs_in_no_order_are_refused() -> None:
    bound, batch = Bound("quadratic", 9, (1,)), slice_of(Random(3), 1, 4, 5)
    pair = np.array([9, 3], np.uint32)
    units = Units(np.array([7]), np.array([0, 2]), pair, np.ones((2, 1), np.uint16))
    with pytest.raises(ContractError, match="not in order"):
        bound.apply(units, batch, np.zeros(4, np.intp))


def test_a_pair_that_no_record_counts_in_is_dropped() -> None:
    bound, batch = Bound("quadratic", 9, (1,)), slice_of(Random(3), 1, 4, 0)
    used = np.array([[1], [0]], np.uint16)
    units = Units(np.array([8]), np.array([0, 2]), np.array([3, 9], np.uint32), used)
    done = bound.apply(units, batch, np.zeros(4, np.intp))
    assert done.units.pair.tolist() == [3]
    assert done.units.start.tolist() == [0, 1] and used.tolist() == [[1], [0]]
