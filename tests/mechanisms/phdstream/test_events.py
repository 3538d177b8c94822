"""Events of a trigger: sums by node, and events that wait."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.mechanisms.columns import Closed, Part, Rows
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.phdstream.events import Events, Plan, plan, split_rows
from hushstream.mechanisms.phdstream.tree import NODE
from hushstream.mechanisms.spatial.domain import Domain

from ...oracles.keys import is_canonical

DOMAIN = Domain.unit(2, 5)


def part(*events: tuple[int, int, int]) -> Part:
    """Events as (cell, lane, count)."""
    table = np.array(events, np.int64).reshape(-1, 3)
    keys = Keys.of_codes(table[:, 0].astype(np.uint64))
    return Part(keys, table[:, 1].astype(np.uint8), table[:, 2:], np.empty(0, np.int64))


def fresh() -> Rows:
    return Rows(Keys.of([]), np.zeros(0, NODE), np.empty(0, np.int32))


def planned(rows: Rows, new: Part, t: int, **rules: int) -> Plan:
    closed = Closed(rows, new, t)
    rules = {"first": 1, "lifetime": 0, "horizon": 99, **rules}
    return plan(closed, split_rows(closed)[1], **rules)


def totals(events: Events) -> list[int]:
    return events.within(DOMAIN, np.ones(1, np.uint64))[:, 0].tolist()


def test_within_counts_the_cells_below_a_node() -> None:
    rng = np.random.default_rng(0)
    cells = rng.integers(32, 64, 40).astype(np.uint64)
    counts = rng.integers(0, 5, (2, 40))
    events = Events.of(cells, counts)
    nodes = np.arange(1, 64, dtype=np.uint64)
    for node, inside in zip(nodes.tolist(), events.within(DOMAIN, nodes).T.tolist(), strict=True):
        below = np.array([int(c) >> (6 - node.bit_length()) == node for c in cells])
        assert inside == counts[:, below].sum(axis=1).tolist()


def test_without_rules_everything_counts_at_once() -> None:
    out = planned(fresh(), part((40, 0, 3), (40, 1, 2), (50, 1, 1)), 4)
    assert totals(out.events) == [3, 3] and len(out.rows.key) == 0


def test_held_back_events_come_at_the_first_trigger() -> None:
    early = planned(fresh(), part((40, 0, 3), (41, 1, 1)), 2, first=5)
    assert totals(early.events) == [0, 0]
    assert early.rows.due.tolist() == [5, 5] and is_canonical(early.rows.key)
    due = planned(early.rows, part((40, 0, 1)), 5, first=5)
    assert totals(due.events) == [4, 1]
    assert due.rows.due.tolist() == [0, 0] and due.rows.state.tolist() == [(0,) * 8] * 2


def test_waiting_rows_count_at_their_own_trigger_only() -> None:
    waiting = planned(fresh(), part((40, 0, 3)), 2, first=5).rows
    assert totals(planned(waiting, part(), 4, first=1).events) == [0, 0]


def test_insertions_with_a_lifetime_are_deleted_once() -> None:
    born = planned(fresh(), part((40, 0, 3)), 2, lifetime=4)
    assert totals(born.events) == [3, 0] and born.rows.due.tolist() == [6]
    gone = planned(born.rows, part((40, 0, 1)), 6, lifetime=4)
    assert totals(gone.events) == [1, 3]
    assert sorted(gone.rows.due.tolist()) == [0, 10]


@pytest.mark.parametrize(("lifetime", "first_totals", "due"), [(3, [2, 2], 0), (9, [2, 0], 10)])
def test_held_back_insertions_keep_their_own_lifetime(
    lifetime: int, first_totals: list[int], due: int
) -> None:
    held = planned(fresh(), part((40, 0, 2)), 1, first=5, lifetime=lifetime)
    out = planned(held.rows, part(), 5, first=5, lifetime=lifetime)
    assert totals(out.events) == first_totals and out.rows.due.tolist() == [due]
    if due:
        assert totals(planned(out.rows, part(), due, first=5, lifetime=lifetime).events) == [0, 2]


def test_nothing_waits_beyond_the_horizon() -> None:
    assert len(planned(fresh(), part((40, 0, 3)), 8, lifetime=4, horizon=10).rows.key) == 0


def test_cells_that_are_no_nodes_yet_are_not_taken_for_nodes() -> None:
    keys = Keys.of_codes(np.array([1, 40], np.uint64))
    cell = np.zeros(2, NODE)
    rows = Rows(keys, cell, np.array([-1, 0], np.int32))
    nodes, waiting = split_rows(Closed(rows, part((40, 0, 1)), 3))
    assert nodes.code.tolist() == [1] and waiting.tolist() == []
