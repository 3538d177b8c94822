"""The tree of PHDStream: node rows, lazy extension of released counts, one descent per trigger.

A node v stores the last output of its own counter, Cn(v), and the sum of all counters below it,
Cd(v). The count that its ancestors made before it existed, Ca(v), is never stored: it is handed
down whenever the tree is walked, ``Ca(child) = share·(Ca(v) + Cn(v))`` with shares that sum to 1.
Then ``G(v) = Ca(v) + Cn(v) + Cd(v)`` is additive: children sum to their parent. The time of a
trigger grows with the nodes that are walked or written, not with the domain.

Everything here reads released numbers only, the public grid is ``1/GRID`` records, and all
arithmetic that orders scores is in integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64
from ..spatial.domain import U64, Bool, Domain
from .shares import Error, concentration, share_error, unlike

GRID = 1 << 16
"""Grid steps of a count per record."""

_FAR = np.int64(-(2**52))  # below all possible released counts; sums stay exact

LARGEST_COUNT = 2**52 // GRID
"""Records that a released count may reach."""

NODE = np.dtype(
    [
        ("out", np.int64),  # Cn: the counter's latest output, records
        ("below", np.int64),  # Cd: outputs of all counters below, records
        ("spread", np.float64),  # variance of `below`, records squared
        ("carried", np.float32),  # variance of what lies below `out`: forgotten nodes, older chains
        ("first", np.int64),  # the counter's own state; inserts of a scheduled row
        ("second", np.int64),  # the counter's own state; deletions of a scheduled row
        ("steps", np.int32),  # activations of the counter since `start`
        ("start", np.int32),  # trigger of the first one, where noise is labelled by activations
    ]
)


Child = Bool | None
"""(splits, β) which children exist; None = all."""

_RAW = np.dtype((np.void, NODE.itemsize))  # NumPy moves plain bytes ten times as fast as fields

States = NDArray[np.void]
"""States of nodes, `NODE`."""


def copied(state: States) -> States:
    """A copy."""
    same: States = state.view(_RAW).copy().view(NODE)
    return same


def picked(state: States, rows: NDArray[Any]) -> States:
    """A copy of some rows."""
    some: States = state.view(_RAW)[rows].view(NODE)
    return some


def put(state: States, rows: NDArray[Any], new: States) -> None:
    """Write some rows in place."""
    state.view(_RAW)[rows] = new.view(_RAW)


def joined(states: list[States]) -> States:
    """All states, concatenated."""
    together: States = np.concatenate([state.view(_RAW) for state in states]).view(NODE)
    return together


def inserted(state: States, place: NDArray[np.intp]) -> States:
    """A copy with fresh states before the given rows."""
    more: States = np.insert(state.view(_RAW), place, np.zeros(1, NODE).view(_RAW)).view(NODE)
    return more


class Nodes(NamedTuple):
    """Stored nodes in code order, closed under parents."""

    code: U64  # (r,)
    state: States  # (r,) NODE

    def find(self, codes: U64) -> tuple[NDArray[np.intp], Bool]:
        """Rows of ``codes`` (any row where absent), and whether each is present."""
        row = np.searchsorted(self.code, codes)
        row = np.minimum(row, max(len(self.code) - 1, 0))
        return row, self.code[row] == codes if len(self.code) else np.zeros(len(codes), bool)

    def take(self, codes: U64) -> States:
        """(m,) a copy of the nodes' states, zeros where absent."""
        row, present = self.find(codes)
        state = np.zeros(len(codes), NODE)
        put(state, present, picked(self.state, row[present]))
        return state


class ExtensionRules(NamedTuple):
    """Public rules of extension."""

    domain: Domain  # the hierarchy; children outside its region do not exist
    # records added to every child's own estimate before shares are proportional to it; 0 =
    # equal shares
    smoothing: int


class Level(NamedTuple):
    """The live nodes at one depth, in code order."""

    code: U64  # (m,)
    state: States  # (m,) NODE
    split: Bool  # (m,)
    child: Child  # which children of the split nodes exist


class LiveTree(NamedTuple):
    """All live nodes in code order, that is level after level."""

    code: U64  # (m,)
    state: States  # (m,) NODE
    split: Bool  # (m,)
    child: tuple[Child, ...]  # per level
    start: tuple[int, ...]  # first row of every level, and the number of nodes

    @classmethod
    def of(cls, levels: list[Level]) -> LiveTree:
        """The tree with these levels."""
        code, split = (np.concatenate([v[i] for v in levels]) for i in (0, 2))
        state = joined([level.state for level in levels])
        start = np.cumsum([0, *(len(level.code) for level in levels)])
        return cls(code, state, split, tuple(v.child for v in levels), tuple(start.tolist()))

    def rows(self, depth: int) -> slice:
        """Rows of one level."""
        return slice(self.start[depth], self.start[depth + 1])

    def fold(self, leaf: Bool) -> None:
        """Let leaves absorb the counts below them, in place; G does not change."""
        state = self.state
        state["out"][leaf] += state["below"][leaf]
        state["carried"][leaf] += state["spread"][leaf].astype(np.float32)
        for name in ("below", "spread"):
            state[name][leaf] = 0

    def sum_below(self, variance: F64) -> None:
        """Update ``below`` and ``spread`` of split nodes in place, bottom up, by (m,) variances."""
        total, spread = self.state["out"] + self.state["below"], variance + self.state["spread"]
        for depth in range(len(self.child) - 2, -1, -1):
            rows, below = self.rows(depth), self.rows(depth + 1)
            parent = rows.start + np.flatnonzero(self.split[rows])
            first = first_children(self.child[depth], len(parent), below.stop - below.start)
            for name, amount, own in (
                ("below", total, self.state["out"]),
                ("spread", spread, variance),
            ):
                # `offspring` leaves no split node childless: an empty range would yield garbage.
                sums = np.add.reduceat(amount[below], first)
                self.state[name][parent] = sums
                amount[parent] = sums + own[parent]

    def ages(self) -> F64:
        """(m,) triggers since each node's first count: its own, and those of its oldest child."""
        age: F64 = self.state["steps"].astype(np.float64)
        for depth in range(len(self.child) - 2, -1, -1):
            rows, below = self.rows(depth), self.rows(depth + 1)
            parent = rows.start + np.flatnonzero(self.split[rows])
            first = first_children(self.child[depth], len(parent), below.stop - below.start)
            age[parent] += np.maximum.reduceat(age[below], first)
        return age


def first_children(child: Child, parents: int, children: int) -> NDArray[np.intp]:
    """(s,) where each split node's children begin among all of the next level."""
    if child is None:
        return np.arange(0, children, children // parents)
    count = child.sum(axis=1)
    first: NDArray[np.intp] = np.cumsum(count) - count
    return first


def root_level() -> U64:
    """The code of the root alone."""
    return np.ones(1, np.uint64)


def root_estimate(state: States) -> tuple[I64, I64]:
    """Ca and the non-negative estimate of the root, in grid steps."""
    total = (state["out"] + state["below"]) * GRID
    return np.zeros(1, np.int64), np.maximum(total, 0)


def offspring(shape: ExtensionRules, codes: U64) -> tuple[U64, Child]:
    """(c,) children of split nodes that meet the region, at least one each, and their mask."""
    children = shape.domain.children(codes)
    if not (shape.domain.cells or shape.domain.rings):
        return children.reshape(-1), None
    inside = shape.domain.touches(children.reshape(-1)).reshape(children.shape)
    inside |= ~inside.any(axis=1, keepdims=True)
    return children[inside], inside


def hand_down(shape: ExtensionRules, inherited: I64, own: I64, child: Child = None) -> I64:
    """(s, β) shares of ``inherited`` (s,), in grid steps; each row sums to it exactly.

    ``own`` (s, β) holds Cn + Cd of the children in records. Absent children get nothing.
    """
    weight = np.maximum(own, 0) + shape.smoothing if shape.smoothing else np.ones_like(own)
    if child is not None:
        weight = weight * child
    upto = np.cumsum(weight, axis=1)  # rounded totals, then their differences: rows sum exactly
    part = np.floor(inherited[:, None] * (upto / upto[:, -1:])).astype(np.int64)
    part[:, -1] = inherited
    shares: I64 = part.copy()
    shares[:, 1:] -= part[:, :-1]
    return shares


def project(total: I64, raw: I64, child: Child = None) -> I64:
    """Closest non-negative integers to ``raw`` (s, β) whose rows sum to ``total`` (s,) ≥ 0.

    Euclidean projection on the simplex (Held, Wolfe & Crowder 1974), rounded down, the rest
    going to the largest child; absent children stay at 0. No child ever exceeds its total.

    >>> project(np.array([10]), np.array([[-2, 5]])).tolist()
    [[1, 9]]
    """
    if child is not None:
        raw = np.where(child, raw, _FAR)
    # The exact shift is the largest mean excess of the k largest children.
    shift, excess = np.full(len(raw), _FAR), -total
    for k, value in enumerate(np.sort(raw, axis=1).T[::-1], 1):
        excess = excess + value
        shift = np.maximum(shift, (excess + (k - 1)) // k)
    out: I64 = np.maximum(raw - shift[:, None], 0)
    out[np.arange(len(raw)), raw.argmax(axis=1)] += total - out.sum(axis=1)
    return out


def estimates(
    shape: ExtensionRules, inherited: I64, estimate: I64, own: I64, child: Child
) -> tuple[I64, I64]:
    """Ca and the non-negative estimate of the existing children, in code order, grid steps.

    Args:
        inherited: (s,) Ca + Cn of the split nodes, grid steps.
        estimate: (s,) their non-negative estimates.
        own: (c,) Cn + Cd of their existing children, records.
    """
    if child is None:
        table = own.reshape(len(estimate), -1)
        above = hand_down(shape, inherited, table)
        return above.reshape(-1), project(estimate, above + table * GRID).reshape(-1)
    table = np.zeros(child.shape, np.int64)
    table[child] = own
    above = hand_down(shape, inherited, table, child)
    return above[child], project(estimate, above + table * GRID, child)[child]


class Leaves(NamedTuple):
    """The estimates of a tree's leaves, in code order."""

    code: U64  # (m,)
    total: I64  # (m,) non-negative, children sum to parents, grid steps
    unbiased: I64  # (m,) G, grid steps
    spread: F64  # (m, 2) mean squared errors of both, as records meet them, squared grid steps


def describe(shape: ExtensionRules, tree: LiveTree, variance: F64) -> Leaves:
    """Estimates of all leaves in code order; ``variance`` (m,) of every node's own counter."""
    above, estimate = root_estimate(tree.state[:1])
    own, out = tree.state["out"] + tree.state["below"], tree.state["out"] * GRID
    raw, total = own * GRID, np.empty(len(tree.code), np.int64)
    age, counted = tree.ages(), variance + tree.state["spread"]
    share = Error(np.zeros(len(tree.code)), np.zeros(len(tree.code)))
    for depth, child in enumerate(tree.child):
        rows = tree.rows(depth)
        total[rows] = estimate
        raw[rows] += above
        if depth + 1 == len(tree.child):
            break
        split, below = tree.split[rows], tree.rows(depth + 1)
        error = Error(share.mean[rows][split], (share.square[rows] + variance[rows])[split])
        inherited = (above + out[rows])[split]
        above, estimate = estimates(shape, inherited, estimate[split], own[below], child)
        first = first_children(child, len(inherited), len(above))
        later = np.maximum(np.add.reduceat(own[below], first), 0).astype(np.float64)
        since, records = np.maximum.reduceat(age[below], first), np.maximum(inherited, 0) / GRID
        doubt = unlike(records, age[0] - since, later, since)
        alpha = concentration(own[below], counted[below], first, shape.domain.fanout)
        families = np.diff(first, append=len(above))
        part = parts(inherited, above, families)
        share.mean[below], share.square[below] = share_error(
            records, error, part, families, doubt, alpha
        )
    leaf = ~tree.split
    square = (share.square + counted)[leaf] * float(GRID) ** 2
    # Where its siblings' noise was negative, a child's estimate is lowered below its own count.
    lowered = np.maximum(raw - total, 0)[leaf].astype(np.float64)
    spread = np.stack([square + lowered**2, square], axis=1)
    return Leaves(tree.code[leaf], total[leaf], raw[leaf], spread)


def parts(inherited: I64, shares: I64, families: I64) -> F64:
    """(c,) shares as parts of ``inherited`` (s,); equal parts of nothing."""
    whole = np.repeat(inherited, families)
    even = 1 / np.repeat(families, families)
    part = np.where(whole == 0, even, shares / np.where(whole == 0, 1, whole))
    clipped: F64 = np.clip(part, 0, 1)  # shares are whole grid steps: one may be off by a step
    return clipped
