"""The contract of all mechanisms: pure functions over columns, with exact integers as state.

A mechanism runs in two places. A *bound shard* holds the state of privacy units and turns each
slice of a micro-batch into a `Part`, an exact and linear partial sum. An *aggregate shard* holds
the state of keys; when a micro-batch is closed it merges the parts and computes a release. All
randomness comes from a `Noise` argument whose draws depend on labels alone, so any order, any
sharding and any replay give the same bytes.

`Mechanism` holds the mathematics, `Statement` what is promised and published, `Traits` what the
engine must know to run it, and `key_form` the form of released keys. `catalogue.check` refuses a
mechanism that lacks an abstract member. `columns` defines the input and output arrays and names
their sizes.
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

    Gaussian parts add up in ``mu2`` as μ² of GDP does; ``epsilon`` is the pure part, and ``delta``
    what thresholds, samplers and other couplings add.
    """

    mu2: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)


class Spending(NamedTuple):
    """A unit's loss as a linear function of what it spends of its bound; see `accounting.lifetime`.

    Attributes:
        whole: cost of an epoch in which a unit spends its whole bound ``left``; s costs s/left.
        opening: additional spending charged in every epoch in which a unit has a kept record.
        least: spending of the cheapest record.
    """

    whole: Cost
    opening: int = 0
    least: int = 1


SIGNED, INSERTING, ALWAYS = "signed", "inserting", "always"
"""When the exact value of an output cannot be negative: unknown; while nothing is deleted and no
input value is negative; always."""


class Output(NamedTuple):
    """One released column.

    Attributes:
        name: name of the column.
        grid: size of one step of its public grid.
        least: the condition under which the exact value cannot be below 0: `SIGNED`, `INSERTING`
            or `ALWAYS`.
        most: the exact value lies between 0 and this, and estimates are clamped to that range;
            None: no such range is known.
        ends: whether its interval is released with it (`Releases.value`), instead of following from
            its variance.
    """

    name: str
    grid: Fraction = Fraction(1)
    least: str = SIGNED
    most: Fraction | None = None
    ends: bool = False


class Stated(NamedTuple):
    """Statements of a mechanism besides ε, δ and μ², for the ledger, manifests and people."""

    values: dict[str, Fraction]  # further costs
    in_words: str  # empty: nothing to add
    counted: bool = False  # whether its releases state `Releases.counted`


NOTHING_MORE = Stated({}, "")


class Noise(Protocol):
    """Keyed exact noise: the shard binds secret, charge, pipeline and window beforehand.

    Equal arguments give equal draws; a change of any argument gives an independent one.

    ``first`` is the trigger (1, 2, …) at which each draw covers content for the first time: one
    per index, (len(index),), or one per key, (len(key), 1). The draw's label holds the nonce in
    force at that trigger, where the covered content must be complete: then no draw ever covers two
    contents, even if a cluster is rewound (docs/decisions/keyed-noise.md).
    """

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        """(len(key), len(index)) discrete Gaussians, P(z) ∝ exp(-z² / 2 variance)."""

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        """(len(key), len(index)) discrete Laplace draws, P(z) ∝ exp(-abs(z) / scale)."""

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        """(len(key), len(index), 2) uniform words, for a mechanism's own samplers."""


class Guarantee(NamedTuple):
    """The guarantee to a unit in words; its numbers are in `Cost` and `Statement.bounds`.

    Attributes:
        distribution: distribution of the noise.
        definition: kind of differential privacy.
        neighbouring: the neighbouring relation.
    """

    distribution: Literal["discrete_gaussian", "discrete_laplace", "local_randomizer"]
    definition: Literal["approximate", "pure", "local"] = "approximate"
    neighbouring: Literal["add_remove", "replace_value"] = "add_remove"


class Statement(ABC):
    """Promises and published statements of a mechanism: functions of its public parameters.

    Three members have no default: a mechanism that stated no noise, bound or digest would be
    published with those of another.

    Attributes:
        survey: parameters for devices that report locally; None where records are not reports.
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
        """Digests of every computed result that a release depends on.

        They go into the charged hash, which stops a machine that computes a different result. ()
        where nothing is computed in floating point.
        """

    def stated(self, unit: str) -> Stated:
        """Additional cost, such as that of one report for local privacy."""
        return NOTHING_MORE

    def key_threshold(self, t: int) -> Fraction | None:
        """The threshold of a key's noisy count at trigger t; None if keys are not selected.

        Where rows are carried, t is the window's position in its epoch, from 1.
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
    """Facts that the engine needs to read, route, store and publish for a mechanism.

    Attributes:
        horizon: triggers per window.
        outputs: the c' released columns.
        row_dtype: state of one key.
        bound: a unit's contribution bound before its first record (`Units.left`).
        keys: the form of released keys: `RecordKeys`, or a kind of `OwnKeys`.
        due: the triggers at which a key without records is loaded (`Rows.due`).
        inputs: names of the record's numbers that `encode` takes, or `UNIT`.
        columns: value columns of a batch, c.
        lanes: width of ``Units.used``.
        totals: g, the number of shard-wide counters of a part.
        routing: destination of sums: a partition by key, or a single one.
        load: stored rows that a release needs besides those with new sums.
        sparse: whether rows are packed: most numbers of a row, and all of a fresh one, are 0.
        carries: whether each window continues the rows of the previous one; it has one trigger.
        feedback: whether `absorb` depends on earlier releases.
        pairs: whether parts list pairs of key and value, and only new pairs count (`pairs`).
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
        """Whether keys of a batch are columns of its records rather than results of `encode`."""
        return not self.inputs or self.keys.of_record

    @property
    def foremost(self) -> int:
        """The trigger whose error is forecast."""
        return self.exact_until or self.horizon

    def units(self, u: int) -> Units:
        """State of u units before their first record."""
        return empty_units(u, self.lanes, self.bound)

    def rows(self, key: Keys) -> Rows:
        """State of keys before their first record."""
        due = np.full(len(key), self.due, np.int32)
        return Rows(key, np.zeros(len(key), self.row_dtype), due)

    def part(self) -> Part:
        """The partial sum of no records."""
        return empty_part(self.columns, self.totals)


class Mechanism(Statement):
    """A frozen dataclass of public parameters with pure functions.

    `absorb` is sequential in meaning: cutting a slice anywhere gives the same units and the same
    merged part. `release` is a function of `Closed` and `Noise`; where ``routing`` is "key" it is
    row-wise, so any subset of keys may be released on its own.

    Attributes:
        spending: cost as a function of spending; None, the default: units cannot have a cap.
    """

    spending: Spending | None = None

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """Facts for the engine; cached, because it reads them with every slice."""

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
        """Every kind of draw that a release may request, at its largest parameter.

        `ranges.check` refuses a configuration whose noise cannot be drawn or would overflow; ()
        where there is no noise.
        """

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Turn columns of ``inputs`` into keys and values; with record keys, values alone count."""
        raise ContractError(f"{type(self).__name__} reads no inputs")

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Exact answers with which a simulation compares a window; see `truth`.

        Not called where values are finished from parts: exact aggregates follow from the records.

        Args:
            seen: the records of the window, unbounded.
            released: keys of the window's last state.
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
        distinct: whether the count is of distinct values, the last column of record keys.
        apart: groups of indices of value columns; no record has values in two columns of a group,
            and a record without a value in a column has 0 there.
        within: pairs of indices: such a column and the one that counts its records, 1 each. Values
            are then measured from the middle of their interval, which need not contain 0.
        hops: for overlapping windows, the number of the schedule's windows that each one sums.
        endless: whether the window has no stated end: ``horizon`` is then a limit, for which
            nothing is prepared.
        shards: number of aggregate shards. Each draws under its own nonces, so what all of them
            release of the same content carries that number of independent noises.
        confidence: confidence level of intervals that the mechanism computes itself.
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
