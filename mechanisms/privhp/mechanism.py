"""PrivHP: a private tree of a spatial stream in bounded memory, for synthetic points.

A binary hierarchy of cells is counted exactly near the root and sketched below; every sum gets
noise; at a trigger the tree is grown from the noisy sums, and only its largest nodes are refined.
Memory depends on k and the sketches, not on the stream or the domain. With a horizon of 1 this is
the one-pass algorithm; with a longer horizon every sum is the input of a counter over triggers, and
the tree is grown anew at each trigger from noisy sums alone.

Guarantee (add or remove all records of one unit, of which at most ``bound`` count): a record
changes one sum per exact level and one per sketch row below, by one each, so with shares σ_l of
ε that add up to at most ε and noise of scale c_l·H·bound/σ_l the sums of all triggers are
ε-differentially private, and growing, publishing and sampling are post-processing. Replacing a
record by another one costs twice as much.

Source: Holland, Camtepe, Thapa and Xue, *Private Synthetic Data Generation in Bounded Memory*
(2024); ``mechanisms/privhp/README.md`` says what differs and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..accounting import add
from ..columns import F64, I64, Batch, Closed, Part, Releases, Rows, Units
from ..contract import ALWAYS, Cost, Guarantee, Noise, Output, Traits
from ..keys import Keys, concat
from ..parts.bounds.points import insertions, signed
from ..ranges import Draws
from ..spatial.domain import bit_level
from ..spatial.stream import SpatialStream
from .layout import SumLayout
from .noise import SumNoise
from .tree import GrownTree, Live, Pruning, Reading, grow

_MARK = Keys.of_codes(np.array([2**64 - 1], np.uint64))  # sorts after every name of a sum
_RECORDS = Keys.of_codes(np.array([2**64 - 2], np.uint64))  # likewise
_STATE = np.dtype([("sum", np.int64), ("grown", np.int32)])
_ROWS = "privhp rows 2"
"""Version of the rows of a grown tree. It is pinned: two versions must not share an epoch."""


@dataclass(frozen=True)
class PrivHP(SpatialStream):
    """The mechanism; `hushstream.mechanisms.privhp.settings.build` makes one from settings.

    Attributes:
        domain: public geometry; its finest cells are the deepest level (`SpatialStream`).
        counter: noise of all sums; holds the shape, the horizon and the bound.
        prune: "top" refines the k largest nodes of a level, "threshold" those of at least
            ``bar`` standard deviations of their children's noise.
        bar: number of standard deviations for ``prune`` "threshold".
        decode: estimator of children from a sketch (`privhp_tree.Reading`).
        deletions: whether records of sign -1 are accepted (see `bounds.points`); otherwise they
            are dropped.

    Released: one row per leaf of the grown tree, empty siblings merged (`GrownTree.merged`). Its
    key is the node's code (eight bytes), its value a consistent, non-negative count; leaves
    partition the domain. ``variance`` is that of one noisy sum of the leaf's level, before
    consistency, which lowers the error.
    """

    counter: SumNoise
    prune: Literal["top", "threshold"] = "top"
    bar: Fraction = Fraction(2)
    decode: Literal["joint", "single"] = "joint"
    deletions: bool = False

    @property
    def accepted(self) -> int:
        return self.counter.bound

    @property
    def shape(self) -> SumLayout:
        """The sums."""
        return self.counter.shape

    @property
    def horizon(self) -> int:
        return self.counter.horizon

    @cached_property
    def traits(self) -> Traits:
        # A record is in a sum of every level, so sums of a part do not add up to records.
        outputs = (Output("count", least=ALWAYS),)
        return self._traits(self.horizon, outputs, _STATE, load="all", counting=False)

    def cost(self) -> Cost:
        beside = () if self.total is None else (Cost(epsilon=self.total.epsilon),)
        return add((*self.counter.costs(), *beside))

    @property
    def guarantee(self) -> Guarantee:
        """Name the distribution of the counter; the tree is grown from its sums alone."""
        return Guarantee(self.counter.distribution)

    def digests(self) -> tuple[str, ...]:
        """Digest of the counter's factorisation, if it has one, and version of the rows."""
        return (*self.counter.digests(), _ROWS)

    # Bound shard

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice; return exact sums of counters and sketches.

        A part has at most one row per sum, for any number of records and cells.
        """
        accept = signed if self.deletions else insertions
        units, accepted, records = self._accept(accept, units, batch)
        counts = _net(batch, accepted)
        used = np.flatnonzero(counts)
        codes = batch.keys.take(used).codes()
        order = np.argsort(codes, kind="stable")
        table = self.shape.sum_leaves(codes[order], counts[used[order]])
        places = np.flatnonzero(table)
        lane = np.zeros(len(places), np.uint8)
        return units, Part(self.shape.names(places), lane, table[places, None], records)

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Add the micro-batch and grow the tree from noisy sums.

        Raises:
            ContractError: the trigger is beyond the horizon, or a tree was grown from the sums at
                this trigger or a later one: the same noise on other records would reveal the
                difference exactly.
        """
        if not 1 <= closed.t <= self.horizon:
            raise ContractError(f"trigger {closed.t} is beyond the horizon")
        if bool((closed.rows.state["grown"] >= closed.t).any()):
            raise ContractError(f"the sums were grown at trigger {closed.t} before")
        rows, table = self._fold(closed)
        tree = self.grow(table + self.counter.draw(noise, closed.t), closed.t)
        if self.total is None:
            return rows, self._publish(tree, closed.t)
        number = self._records(closed, noise)
        last = len(rows.key) - 1  # the marker
        state = np.insert(rows.state, last, np.array([(number, closed.t)], _STATE))
        keys = concat([rows.key.take(np.arange(last)), _RECORDS, _MARK])
        rows = Rows(keys, state, np.zeros(len(state), np.int32))
        return rows, self._corrected(self._publish(tree, closed.t), number, closed.t)

    def _records(self, closed: Closed, noise: Noise) -> int:
        """The released number of all records up to this trigger."""
        assert self.total is not None
        known = closed.rows.key.codes() == _RECORDS.codes()[0] if len(closed.rows.key) else []
        before = int(closed.rows.state["sum"][known].sum()) if len(known) else 0
        drawn = self.total.noise(_RECORDS, closed.t, noise)
        return before + int(closed.part.totals[0]) + drawn

    def _corrected(self, release: Releases, number: int, t: int) -> Releases:
        assert self.total is not None
        shown = self.total.corrected(release.value, release.variance, 1, number, t)
        public = release.public | shown.public
        return release._replace(value=shown.value, variance=shown.variance, public=public)

    def _fold(self, closed: Closed) -> tuple[Rows, I64]:
        """Changed rows with the marker last, and the table of exact sums."""
        key = closed.rows.key
        stored = np.flatnonzero(key.codes() < _RECORDS.codes()[0]) if len(key) else np.arange(0)
        table = np.zeros(self.shape.sums, np.int64)
        table[self.shape.places(key.take(stored))] = closed.rows.state["sum"][stored]
        changed = self.shape.places(closed.part.key)
        np.add.at(table, changed, closed.part.sums[:, 0])
        changed = np.unique(changed)
        state = np.zeros(len(changed) + 1, _STATE)
        state["sum"][:-1], state["grown"] = table[changed], closed.t
        names = concat([self.shape.names(changed), _MARK])
        return Rows(names, state, np.zeros(len(state), np.int32)), table

    def grow(self, table: I64, t: int) -> GrownTree:
        """The tree of a (sums,) table of noisy sums, pruned for the noise of trigger t."""
        bars = self._bars(t) if self.prune == "threshold" else ()
        pruning = Pruning(self.prune, self.shape.keep, bars)
        reading = Reading(self.decode, self.counter.variance(t))
        return grow(self.shape, table, pruning, reading, self._live())

    def _bars(self, t: int) -> tuple[int, ...]:
        below = self.counter.variance(t)[1:].tolist()
        squares = (math.ceil(self.bar**2 * Fraction(variance)) for variance in below)
        return (*(max(1, math.isqrt(square - 1) + 1) for square in squares), 1)

    def _live(self) -> Live | None:
        return self.domain.touches if self.domain.cells or self.domain.rings else None

    def _publish(self, tree: GrownTree, t: int) -> Releases:
        codes, counts = tree.merged().leaves()
        variance = self.counter.variance(t)[bit_level(codes)]
        status = np.ones(len(codes), np.int32)
        return Releases(Keys.of_codes(codes), counts[:, None], variance[:, None], status, {})

    def draws(self) -> tuple[Draws, ...]:
        total = () if self.total is None else (self.total.draws(self.horizon),)
        return (*self.counter.draws(), *total)

    def error(self, t: int) -> F64:
        """(1,) largest standard deviation of a sum's noise over the levels at trigger t."""
        largest = float(self.counter.variance(t).max())
        return np.full(1, math.sqrt(largest))


def _net(batch: Batch, accepted: NDArray[np.bool_]) -> I64:
    """(k,) accepted insertions minus accepted deletions per key."""
    added = np.bincount(batch.key[accepted & (batch.sign > 0)], minlength=len(batch.keys))
    gone = accepted & (batch.sign < 0)
    if gone.any():
        added = added - np.bincount(batch.key[gone], minlength=len(batch.keys))
    return added
