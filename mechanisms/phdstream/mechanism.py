"""PHDStream: a private tree of a spatial stream of insertions and deletions.

At every trigger, empty ones included, the tree is grown anew from the root by private splitting
(`spatial.privtree`) or by released counts alone, its leaves count the trigger's
changes (`hushstream.mechanisms.phdstream.node_counters`), and the leaves with their estimates are
released. A node that no leaf has counted yet inherits from its ancestors
(`hushstream.mechanisms.phdstream.tree`).

Guarantee, for neighbours that differ by one event in one cell at one trigger: an insertion costs
ε_split + ε_count and a deletion ε_count. A unit pays the sum over its events, of which at most
``bound`` are accepted; a deletion is accepted only against a live insertion of the same unit in the
same cell. At the first trigger that counts, splitting and count may divide the same sum differently
(`opening`); the proof holds with ε_split and ε_count of that trigger.

*Proof.* Fix the releases before the event's trigger t, which have the same law. (i) *Splitting.*
The score of a node is its estimate from released counts, non-negative and consistent, plus the
insertions of trigger t in it: never larger than its parent's, and an insertion adds exactly 1 along
one path. Later scores read released counts only. So splitting costs an insertion ε_split once and
a deletion nothing. (ii) *Counting.* Given which nodes are leaves when, every counter is an
independent run on fixed triggers, and the event enters exactly one of them. Multiply. ∎

*No draw covers two contents.* Splitting draws once per node and trigger, over the insertions of
that trigger, under the nonce in force there; for counters see `node_counters`.

Kumar, Strohmer & Vershynin, *An Algorithm for Streaming Differentially Private Data* (2024),
Algorithms 3 to 6, but their score is the sum of released counts and net changes,
which may be negative and grow downwards: its loss has no bound in terms of ε. Here deletions
reach the score only through released counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from ...errors import ContractError
from ..columns import F64, I64, Batch, Closed, Part, Releases, Rows, Units, no_releases
from ..contract import ALWAYS, Cost, Guarantee, Noise, Output, Traits
from ..keys import Keys, concat
from ..parts.bounds import points as point_bound
from ..ranges import Draws
from ..spatial.domain import U64, Bool
from ..spatial.privtree import STEPS, Selection
from ..spatial.stream import SpatialStream
from .events import DELETE, INSERT, Events, beside, plan, record_row, split_rows
from .node_counters import NodeCounter, Now
from .opening import WindowStart
from .tree import (
    GRID,
    NODE,
    ExtensionRules,
    Level,
    LiveTree,
    Nodes,
    describe,
    estimates,
    inserted,
    joined,
    offspring,
    picked,
    put,
    root_estimate,
    root_level,
)


@dataclass(frozen=True)
class ReleasedSelection:
    """Split nodes by released counts alone: post-processing, at no cost.

    A node splits if its estimate exceeds θ plus ``resolution`` standard deviations of a counter
    that was active at every trigger so far, rounded up to whole records.
    """

    depth: int
    theta: int = 0
    resolution: Fraction = Fraction(3)
    floor: int = 0
    epsilon: ClassVar[Fraction] = Fraction(0)

    def threshold(self, variance: float) -> int:
        """Least estimate in grid steps, exclusive, for a counter of this variance."""
        return (self.theta + math.ceil(float(self.resolution) * math.sqrt(variance))) * GRID

    def splits(self, estimate: I64, level: int, variance: float) -> Bool:
        """(m,) whether each node at depth ``level`` splits, by estimates in grid steps."""
        if level < self.floor or level >= self.depth:
            return np.full(len(estimate), level < self.floor)
        return estimate > self.threshold(variance)


_NONE = np.empty(0, np.uint64)


class _Walk(Protocol):
    """The rule that chooses which nodes at a depth split, given estimates in grid steps."""

    def __call__(self, estimate: I64, level: int, nodes: U64) -> Bool: ...


@dataclass(frozen=True)
class PHDStream(SpatialStream):
    """The mechanism; `hushstream.mechanisms.phdstream.settings.build` makes one from settings.

    Attributes:
        domain: public geometry, its depth the cap of the tree (`SpatialStream`).
        horizon: triggers of a window.
        bound: most events of one unit in an epoch; with a lifetime an insertion is two events.
        counter: counts at leaves, at ε_count per change.
        selection: splits nodes, at ε_split per insertion (0 for `ReleasedSelection`).
        first: hold-back: nothing is counted or released before this trigger, which counts all.
        lifetime: triggers after which an insertion is deleted; 0 = never.
        deletions: whether records of sign -1 are accepted; they need ``lifetime`` 0.
        opening: splits and counts at trigger ``first`` instead of ``selection`` and ``counter``;
            None = those begin at once.
        forget: whether leaves absorb the counts below them, so that state is the live tree alone;
            needs a counter whose noise is labelled by trigger.
        smoothing: records added to a child's estimate before its parent's unplaced counts are
            shared in proportion; 0 = equal shares, as in the paper.

    Released: one row per leaf. Its key is the node's code (eight bytes), ``count`` a non-negative
    estimate that is consistent over the whole tree, ``unbiased`` the plain sum of counters and
    inherited shares; ``variance`` has their mean squared errors as records meet them, from noise
    and shares (`shares.share_error`). Leaves partition the domain.
    """

    horizon: int
    bound: int
    counter: NodeCounter
    selection: Selection | ReleasedSelection
    first: int = 1
    lifetime: int = 0
    deletions: bool = True
    smoothing: int = 0
    forget: bool = False
    opening: WindowStart | None = None

    @property
    def accepted(self) -> int:
        return self.bound

    @property
    def insertions(self) -> int:
        return self.bound // 2 if self.lifetime else self.bound

    @cached_property
    def traits(self) -> Traits:
        grid = Fraction(1, GRID)
        outputs = (Output("count", grid, ALWAYS), Output("unbiased", grid, ALWAYS))
        return self._traits(self.horizon, outputs, NODE)

    @property
    def shape(self) -> ExtensionRules:
        """Rules of extension."""
        return ExtensionRules(self.domain, self.smoothing)

    def cost(self) -> Cost:
        """All events of a unit: insertions, or with a lifetime pairs of events, cost the most."""
        inserts = self.insertions
        counted = self.counter.cost(2 * inserts if self.lifetime else inserts)
        beside = Fraction(0) if self.total is None else self.total.epsilon
        every = inserts * self.selection.epsilon + beside
        usual = counted._replace(epsilon=counted.epsilon + every)
        if self.opening is None:
            return usual
        # Every insertion may come at the first trigger; its later deletion costs the same.
        later = self.counter.cost(inserts).epsilon if self.lifetime else Fraction(0)
        opened = usual._replace(epsilon=inserts * self.opening.epsilon + later + beside)
        return max(usual, opened, key=lambda cost: cost.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        """Name the distribution of the counter; private selection draws separate scores."""
        return Guarantee(self.counter.distribution)

    def digests(self) -> tuple[str, ...]:
        return self.counter.digests()

    # Bound shard

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice; sum insertions and deletions per cell, never netted."""
        signed = self.deletions and not self.lifetime
        accept = point_bound.signed if signed else point_bound.insertions
        units, accepted, records = self._accept(accept, units, batch)
        k = len(batch.keys)
        slot = batch.key[accepted] + k * (batch.sign[accepted] < 0)
        counts = np.bincount(slot, minlength=2 * k)
        used = np.flatnonzero(counts)
        lane = np.where(used < k, INSERT, DELETE).astype(np.uint8)
        return units, Part(batch.keys.take(used % max(k, 1)), lane, counts[used, None], records)

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Grow the tree, count at its leaves, release them.

        Raises:
            ContractError: the trigger is beyond the horizon.
        """
        if not 1 <= closed.t <= self.horizon:
            raise ContractError(f"trigger {closed.t} is beyond the horizon")
        nodes, waiting = split_rows(closed)
        events, waits = plan(closed, waiting, self.first, self.lifetime, self.horizon)
        records = self._records(closed, noise)
        if closed.t < self.first:
            return beside(records, waits), no_releases(2, _public(0))
        carried = float(nodes.state["carried"].max(initial=0.0))
        tree = self.descend(nodes, self._walk(events, closed.t, noise, carried))
        variance = self._counted(tree, events, Now(closed.t, closed.renewed), noise)
        gone = np.setdiff1d(nodes.code, tree.code, assume_unique=True) if self.forget else _NONE
        rows = beside(records, _stored(tree, gone, waits))
        return rows, self._publish(tree, variance, records, closed.t)

    def _records(self, closed: Closed, noise: Noise) -> Rows | None:
        """The row of the private total of records after this trigger, if there is one."""
        if self.total is None:
            return None
        row = record_row(closed)
        row.state["first"] += closed.part.totals[0]
        if closed.t >= self.first:  # this draw also covers what was held back
            row.state["out"] += row.state["first"] + self.total.noise(row.key, closed.t, noise)
            row.state["first"] = 0
        return row

    def _opens(self, t: int) -> WindowStart | None:
        return self.opening if t == self.first else None

    def _walk(self, events: Events, t: int, noise: Noise, carried: float) -> _Walk:
        opening = self._opens(t)
        rule = self.selection if opening is None else opening.selection
        if isinstance(rule, ReleasedSelection):
            # Counts absorbed from forgotten nodes are a leaf's own counts; older chains are not.
            before = self._opened if self.counter.by_trigger else carried
            variance = self._chain(t - 1) + before
            return lambda estimate, level, nodes: rule.splits(estimate, level, variance)

        def splits(estimate: I64, level: int, nodes: U64) -> Bool:
            score = estimate // (GRID // STEPS)
            score += STEPS * events.within(self.domain, nodes)[INSERT]
            return rule.splits(score, level, nodes, t, noise)

        return splits

    def descend(self, nodes: Nodes, walk: _Walk) -> LiveTree:
        """The live tree with the stored states of its nodes."""
        code, state = root_level(), nodes.take(root_level())
        above, estimate = root_estimate(state)
        levels = []
        for depth in range(self.domain.depth + 1):
            split = walk(estimate, depth, code)
            children, child = offspring(self.shape, code[split])
            levels.append(Level(code, state, split, child))
            if not split.any():
                break
            inherited = (above + state["out"] * GRID)[split]
            code, state = children, nodes.take(children)
            own = state["out"] + state["below"]
            above, estimate = estimates(self.shape, inherited, estimate[split], own, child)
        return LiveTree.of(levels)

    def _counted(self, tree: LiveTree, events: Events, now: Now, noise: Noise) -> F64:
        """Let every leaf count its changes, in place; return the variance of all counters."""
        leaf = ~tree.split
        code = tree.code[leaf]
        inserts, deletes = events.within(self.domain, code)
        state = picked(tree.state, leaf)
        counter = self._opens(now.t) or self.counter
        put(tree.state, leaf, counter.step(state, code, inserts - deletes, now, noise))
        if self.forget:
            tree.fold(leaf)
        variance: F64 = self.counter.variance(tree.state["steps"]) + tree.state["carried"]
        tree.sum_below(variance)
        return variance

    def _publish(self, tree: LiveTree, variance: F64, records: Rows | None, t: int) -> Releases:
        leaves = describe(self.shape, tree, variance)
        value = np.stack([leaves.total, leaves.unbiased], axis=1)
        spread, public = leaves.spread, _public(len(value))
        if self.total is not None and records is not None:
            number, triggers = int(records.state["out"][0]), t - self.first + 1
            shown = self.total.corrected(value, spread, GRID, number, triggers)
            value, spread, public = shown.value, shown.variance, public | shown.public
        status = np.ones(len(value), np.int32)
        return Releases(Keys.of_codes(leaves.code), value, spread, status, public)

    def _longest(self, t: int) -> float:
        """Variance of a leaf that was active at every trigger up to t."""
        return self._chain(t) + self._opened

    def _chain(self, t: int) -> float:
        """Variance of its counter alone, which takes over after the opening."""
        active = t - self.first + 1 if self.opening is None else t - self.first
        steps = np.array([max(active, 1 if self.opening is None else 0)], np.int32)
        return float(self.counter.variance(steps)[0])

    @property
    def _opened(self) -> float:
        return 0.0 if self.opening is None else self.opening.variance

    def draws(self) -> tuple[Draws, ...]:
        """Draws of counters and, where splitting is private, of scores."""
        scores = (self.selection.draws(),) if isinstance(self.selection, Selection) else ()
        opening = self.opening
        begun = () if opening is None else (opening.selection.draws(), opening.counter.draws(1))
        total = () if self.total is None else (self.total.draws(self.horizon),)
        return (*begun, *scores, self.counter.draws(self.horizon), *total)

    def error(self, t: int) -> F64:
        """(2,) standard deviation of a leaf active at every trigger in one chain, in grid steps."""
        return np.full(2, GRID * math.sqrt(self._longest(t)))


def _public(leaves: int) -> dict[str, I64]:
    return {"leaves": np.array([leaves], np.int64)}


def _stored(tree: LiveTree, gone: U64, waits: Rows) -> Rows:
    """Rows of live nodes, due at every trigger, of forgotten nodes, and of waiting events."""
    code, state = tree.code, tree.state
    due = np.full(len(code), -1, np.int32)
    if len(gone):
        place = np.searchsorted(code, gone)
        code, due = np.insert(code, place, gone), np.insert(due, place, 0)
        state = inserted(state, place)
    keys = Keys.of_codes(code)
    if not len(waits.key):
        return Rows(keys, state, due)
    together = concat([keys, waits.key])
    return Rows(together, joined([state, waits.state]), np.concatenate([due, waits.due]))
