"""The histogram beyond its contract: feedback, the gate, public lists, deletions.

Covers: mechanisms/histogram/keyed_sums.py, mechanisms/parts/by_key.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import Batch, Closed, empty_part
from hushstream.mechanisms.histogram.keyed_sums import rows_of
from hushstream.mechanisms.in_memory import Memory, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import zero

from .bench import CODES, keyed, made, trace


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_lanes_follow_what_was_released_d_triggers_ago(delay: int) -> None:
    mechanism = made(8, delay=delay, adaptive_weight=0.5)
    crowd = [(t, 100 * t + i, 0) for t in range(1, 9) for i in range(90)]
    memory = Memory(mechanism, zero, delay=delay)
    released = list(run(memory, trace(crowd, CODES[:1])))
    first = next(t for t, one in enumerate(released, 1) if len(one.key))
    assert all(one.key.tolist() == CODES[:1].tolist() for one in released[first - 1 :])
    assert [int(one.value[0, 0]) for one in released[first - 1 :]] == [
        90 * t for t in range(first, 9)
    ]
    kept = memory.row_tables[0].rows
    cell = kept.state[kept.key.tolist().index(CODES[0])]
    assert cell["sums"][:, 0].tolist() == [90 * (first + delay), 90 * (8 - first - delay)]
    assert cell["first"] == first and released[-1].status.tolist() == [first]


class Loud:
    """Noise that carries every count over any threshold, so that only the gate hides keys."""

    guarantee = "none"

    def gauss(self, purpose: str, key: Keys, index: Any, variance: Any, first: Any) -> Any:
        return np.full((len(key), len(index)), 1 << 40)

    laplace = bits = gauss


@pytest.mark.parametrize("gate", [1, 2, 5])
def test_no_noise_opens_the_gate(gate: int) -> None:
    mechanism = made(3, budget=12, adaptive_weight=0, factorization="tree", min_users=gate)
    memory = Memory(mechanism, Loud())
    rows = [(1, unit, 0) for unit in range(gate)] + [(1, unit, 1) for unit in range(gate - 1)]
    memory.absorb(trace(rows, CODES[:2]))
    lowered = trace([(1, 50, 2), (1, 50, 2)], CODES[:3])  # a key whose only record is deleted
    memory.absorb(lowered._replace(sign=np.array([1, -1], np.int8)))
    assert memory.trigger().key.tolist() == CODES[:1].tolist()


def test_one_unit_is_one_unit_where_keys_need_several() -> None:
    mechanism = made(3, budget=40, adaptive_weight=0.5, min_users=3)
    batch = Batch(
        CODES[:1], np.zeros(9, np.intp), np.zeros(9, np.intp), np.zeros((9, 0), np.int64),
        np.ones(9, np.int8), np.zeros(1, np.int32),
    )  # fmt: skip
    units, part = mechanism.absorb(mechanism.traits.units(1), batch)
    assert part.sums.tolist() == [[1]]
    _, part = mechanism.absorb(units, batch)
    assert part.sums.tolist() == []


def test_a_key_appears_later_without_any_new_data() -> None:
    """Empty-key prediction: some keys cross the threshold at triggers without new records."""
    mechanism = made(6, budget=1)
    most = mechanism.threshold[0] // 256 - 3
    rows = [(1, 100 * k + i, k) for k in range(300) for i in range(min(most, 100))]
    released = list(run(Memory(mechanism, keyed()), trace(rows, CODES[:300])))
    counts = [len(one.key) for one in released]
    assert counts[0] > 0 and counts[-1] > counts[1] > counts[0]


def test_a_refused_record_leaves_no_key_behind() -> None:
    mechanism = made(6, budget=1)
    rows = [(1, 7, 0), (1, 7, 1), (1, 7, 1)]
    memory = Memory(mechanism, keyed())
    memory.absorb(trace(rows, CODES[:2]))
    memory.trigger()
    assert memory.row_tables[0].rows.key.tolist() == [CODES[0]]


def test_keys_outside_a_public_list_are_dropped_and_cost_nothing() -> None:
    mechanism = made(6, keys=(CODES[0],), budget=1)
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    memory.absorb(trace([(1, 7, 1), (1, 7, 0)], CODES[:2]))
    out = memory.trigger()
    assert out.key.tolist() == [CODES[0]] and out.value.tolist() == [[1]]


def test_a_deletion_costs_like_a_record_and_counts_minus_one() -> None:
    mechanism = made(6, keys=(CODES[0],), budget=4)
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    events = trace([(1, 1, 0), (1, 2, 0), (1, 2, 0)], CODES[:1])
    memory.absorb(events._replace(sign=np.array([1, 1, -1], np.int8)))
    assert memory.trigger().value.tolist() == [[1]]
    assert memory.unit_tables[0].units.left.tolist() == [3, 0]


def test_calls_out_of_order_are_refused() -> None:
    mechanism = made(4)
    closed = Closed(mechanism.traits.rows(CODES[:0]), empty_part(0), 5)
    with pytest.raises(ContractError):
        mechanism.release(closed, zero)
    with pytest.raises(ContractError):
        rows_of(CODES[:2], CODES[:3])
    with pytest.raises(ContractError):
        mechanism.encode({})
    assert rows_of(Keys.of([b"b", b"a"]), Keys.of([b"a"])).tolist() == [1]


def test_a_changed_noise_changes_the_release_and_nothing_else_does() -> None:
    mechanism = made(4, budget=1)
    louder = replace(
        mechanism,
        quantities=tuple(
            one._replace(lanes=tuple(replace(p, purpose="other") for p in one.lanes))
            for one in mechanism.quantities
        ),
    )
    rows = [(1, i, 0) for i in range(500)]
    first, again, other = (
        next(iter(run(Memory(m, keyed()), trace(rows, CODES[:1]))))
        for m in (mechanism, mechanism, louder)
    )
    assert first.value.tolist() == again.value.tolist() != other.value.tolist()
