"""The contract of all mechanisms: pure functions over columns, with exact integers as state.

A mechanism runs in two places. A *bound shard* holds the state of privacy units and turns each
slice of a micro-batch into a `Part`, an exact and linear partial sum. An *aggregate shard* holds
the state of keys; when a micro-batch is closed it merges the parts and computes a release. All
randomness comes in as a `Noise` argument whose draws depend on labels alone, so any order, any
sharding and any replay give the same bytes.

`Mechanism` is the mathematics, `Statement` what is promised and published, `Traits` what the engine
must know to run it, and a form of keys (`key_form`) what released keys are. `catalogue.check`
refuses a mechanism that lacks an abstract member. `columns` holds the arrays that go in and out,
and names their sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import (
    F64,
    I64,
    Batch,
    Closed,
    Encoded,
    Part,
    Releases,
    Rows,
    Units,
    empty_part,
    empty_units,
)
from .key_form import RECORD_KEYS, KeyForm
from .keys import Keys
from .ranges import Draws
from .truth import Truth, WindowRecords

if TYPE_CHECKING:
    from ..client.survey import Survey

UNIT = "@unit"  # among a mechanism's inputs: the privacy unit itself, an object column


class Cost(NamedTuple):
    """Privacy loss per unit and epoch under add/remove of the unit.

    The Gaussian parts are mu²-GDP-like and add in ``mu2``; ``epsilon`` is the pure part and
    ``delta`` the part that thresholds, samplers and other couplings add.
    """

    mu2: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)


class Spending(NamedTuple):
    """Loss of a unit by what it spends of its bound, where that is linear.

    `accounting.lifetime` says what follows.

    Attributes:
        whole: cost of an epoch in which a unit spends all of its bound; s out of it cost s/left.
        opening: what else an epoch costs in which anything of a unit is kept, as if that much more
            of the bound had been spent.
        least: what the cheapest record spends.
    """

    whole: Cost
    opening: int = 0
    least: int = 1


SIGNED, INSERTING, ALWAYS = "signed", "inserting", "always"
"""When the truth behind an output cannot be negative: never known, while nothing is deleted and no
input value is negative, or whatever comes."""


class Output(NamedTuple):
    """One released column.

    Attributes:
        name: name of the column.
        grid: size of one step of its public grid.
        least: the condition under which the exact number cannot be below 0: `SIGNED`, `INSERTING`
            or `ALWAYS`.
        most: the exact number lies between 0 and this, and an estimate beyond is released as the
            nearer of the two; None where that is not so.
        ends: whether its interval is released with it (`Releases.value`), instead of following from
            its variance.
    """

    name: str
    grid: Fraction = Fraction(1)
    least: str = SIGNED
    most: Fraction | None = None
    ends: bool = False


class Stated(NamedTuple):
    """Statements of a mechanism besides ε, δ and μ², for ledger, manifests and people."""

    values: dict[str, Fraction]  # further costs
    in_words: str  # empty where there is nothing to add
    counted: bool = False  # whether its releases state `Releases.counted`


NOTHING_MORE = Stated({}, "")


class Noise(Protocol):
    """Keyed exact noise: the shard binds secret, charge, pipeline and window beforehand.

    The same arguments give the same draw; any different argument an independent one.

    ``first`` is the trigger (1, 2, …) at which each draw covers content for the first time: one
    per index, (len(index),), or one per key, (len(key), 1). The draw's label holds the nonce that
    is in force there, and the covered content must be complete at that trigger: then no draw
    ever covers two contents, even if a cluster is rewound (docs/decisions/keyed-noise.md).
    """

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        """(len(key), len(index)) discrete Gaussians, P(z) ∝ exp(-z² / 2 variance)."""

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        """(len(key), len(index)) discrete Laplace draws, P(z) ∝ exp(-abs(z) / scale)."""

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        """(len(key), len(index), 2) uniform words, for samplers of a mechanism's own."""


class Guarantee(NamedTuple):
    """Words for what is promised to a unit; numbers are `Cost` and `Statement.bounds`.

    Attributes:
        distribution: distribution of the noise.
        definition: kind of differential privacy.
        neighbouring: relation of two streams that cannot be told apart.
    """

    distribution: Literal["discrete_gaussian", "discrete_laplace", "local_randomizer"]
    definition: Literal["approximate", "pure", "local"] = "approximate"
    neighbouring: Literal["add_remove", "replace_value"] = "add_remove"


class Statement(ABC):
    """Promises and published statements of a mechanism: functions of its public parameters.

    Three members have no default: a mechanism that states no noise, no bound or no digest would be
    published with that of another.

    Attributes:
        survey: parameters for devices, where records are their reports; None by default.
    """

    survey: Survey | None = None

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Distribution of the noise, kind of privacy, neighbours."""

    @abstractmethod
    def bounds(self, unit: str) -> dict[str, Any]:
        """The bound on one privacy unit's contribution in an epoch: numbers, and ``in_words``."""

    @abstractmethod
    def digests(self) -> tuple[str, ...]:
        """Digests of everything that this machine computed and a release depends on.

        They go into the charged hash: a machine that computes one otherwise is stopped. () where
        nothing is computed in floating point.
        """

    def stated(self, unit: str) -> Stated:
        """Additional cost, such as that of one report for local privacy."""
        return NOTHING_MORE

    def key_threshold(self, t: int) -> Fraction | None:
        """The threshold of a key's noisy count at trigger t; None if keys are not selected.

        Where rows are carried, t is the window's place in its epoch, from 1.
        """
        return None

    def learnt(self, public: Mapping[str, Sequence[int]]) -> float | None:
        """The clipping threshold among the public columns of a window, in the value's own unit."""
        return None

    def plan(self) -> dict[str, Any]:
        """Fields of `hush plan --json` besides cost and noise."""
        return {}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """The same fields as rows of a table for people."""
        return []


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Facts of a mechanism that the engine needs to read, route, store and publish for it.

    Attributes:
        horizon: triggers per window.
        outputs: released columns, c' of them.
        row_dtype: state of one key.
        bound: what a unit has left before its first record (`Units.left`).
        keys: the form of released keys: `RecordKeys`, or a kind of `OwnKeys`.
        due: the triggers at which a key without records is loaded (`Rows.due`).
        inputs: numbers of a record that `encode` wants, or `UNIT`.
        columns: value columns of a batch, c.
        lanes: width of ``Units.used``.
        totals: shard-wide counters of a part, g.
        routing: destination of sums: a partition by key, or a single one.
        load: stored rows that a release needs besides those with new sums.
        sparse: whether most numbers of a row are 0, and all of a fresh one: rows are packed then.
        carries: whether rows of a window begin as those of the window before: it has one trigger.
        feedback: whether `absorb` depends on earlier releases.
        pairs: whether parts name pairs of key and value, of which new ones count (`pairs`).
        counting: whether the first sums of a part add up to its accepted records.
        exact_until: last trigger at which `error` is exact; later it is a bound. None: the horizon.
    """

    horizon: int
    outputs: tuple[Output, ...]
    row_dtype: np.dtype[Any]
    bound: int
    keys: KeyForm = RECORD_KEYS
    due: Literal[0, -1] = 0
    inputs: tuple[str, ...] = ()
    columns: int = 0
    lanes: int = 1
    totals: int = 0
    routing: Literal["key", "single"] = "key"
    load: Literal["due", "all"] = "due"
    sparse: bool = False
    carries: bool = False
    feedback: bool = False
    pairs: bool = False
    counting: bool = True
    exact_until: int | None = None

    @property
    def by_record(self) -> bool:
        """Whether keys of a batch are columns of its records, and not what `encode` makes."""
        return not self.inputs or self.keys.of_record

    @property
    def foremost(self) -> int:
        """The trigger whose error is told in advance."""
        return self.exact_until or self.horizon

    def units(self, u: int) -> Units:
        """State of u units that have contributed nothing."""
        return empty_units(u, self.lanes, self.bound)

    def rows(self, key: Keys) -> Rows:
        """State of keys that have never been seen."""
        due = np.full(len(key), self.due, np.int32)
        return Rows(key, np.zeros(len(key), self.row_dtype), due)

    def part(self) -> Part:
        """The partial sum of no records."""
        return empty_part(self.columns, self.totals)


class Mechanism(Statement):
    """A frozen dataclass of public parameters with pure functions.

    Absorbing is sequential in meaning: cutting a slice anywhere gives the same units and the
    same merged part. Releasing is a function of `Closed` and `Noise`; where ``routing`` is
    "key" it is row-wise, so that any subset of keys may be released on its own.

    Attributes:
        spending: cost by what is spent; None, the default: units of it cannot have a cap.
    """

    spending: Spending | None = None

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """Facts for the engine; cached, since it asks for them with every slice."""

    @abstractmethod
    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Apply the contribution bound in log order; return new unit state and exact sums."""

    @abstractmethod
    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Return every row that is new or changed (state or due), and what becomes public."""

    @abstractmethod
    def cost(self) -> Cost:
        """Loss per unit and epoch for all triggers of all windows of the epoch."""

    @abstractmethod
    def error(self, t: int) -> F64:
        """(c',) standard deviation of the noise of each output at trigger t, in grid units."""

    @abstractmethod
    def draws(self) -> tuple[Draws, ...]:
        """Every kind of draw that any release may ask for, at its largest parameter.

        `ranges.check` refuses a configuration whose noise cannot be drawn or added up; () where
        there is none.
        """

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Turn columns of ``inputs`` into keys and values; with record keys, values alone count."""
        raise ContractError(f"{type(self).__name__} reads no inputs")

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Exact answers that a simulation compares a window with; see `truth`.

        Not asked where values are finished from parts: exact aggregates follow from the records.

        Args:
            seen: the records of the window, without any bound.
            released: keys of its last state.
        """
        return Truth(len(seen.key), {}, {})


@dataclass(frozen=True)
class Setting:
    """The configuration around a mechanism: budget, horizon, value columns.

    Attributes:
        epsilon, delta: budget per unit and epoch.
        horizon: triggers per window (≥ 1).
        windows: windows per epoch (≥ 1); they share the budget and the unit state.
        columns: (name, low, high) of each value column on its integer grid.
        grids: size of one grid step of each value column, in the record's own unit.
        keys: the public key list in canonical order, or None if keys are unknown.
        count: whether the number of records itself is released.
        squares: names of value columns whose squares are summed as well.
        distinct: whether the count is one of distinct values, which keys of records list last.
        apart: places of value columns that are of some records alone and 0 for others, in groups:
            no record is in two columns of a group.
        within: places of such a column and of the one that counts its records, 1 for each: values
            are then taken around the middle of their interval, which need not contain 0.
        hops: windows that overlap: how many of the schedule's windows each is a sum of.
        endless: whether the window has no stated end: ``horizon`` is then a limit, for which
            nothing is made.
        shards: aggregate shards. Each draws under nonces of its own, so whatever all of them
            release of the same content is released with so many independent noises.
        confidence: confidence of released intervals, for a mechanism that makes its own.
    """

    epsilon: Fraction
    delta: Fraction
    horizon: int
    windows: int = 1
    columns: tuple[tuple[str, int, int], ...] = ()
    grids: tuple[Fraction, ...] = ()
    keys: tuple[bytes, ...] | None = None
    count: bool = True
    shards: int = 1
    squares: tuple[str, ...] = ()
    confidence: Fraction = Fraction(95, 100)
    distinct: bool = False
    apart: tuple[tuple[int, ...], ...] = ()
    within: tuple[tuple[int, int], ...] = ()
    hops: int = 1
    endless: bool = False
