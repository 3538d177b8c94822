"""The contract of all mechanisms: pure functions over columns, with exact integers as state.

A mechanism runs in two places. A *bound shard* holds the state of privacy units and turns each
slice of a micro-batch into a `Part`, an exact and linear partial sum. An *aggregate shard* holds
the state of keys; when a micro-batch is closed it merges the parts and computes a release. All
randomness comes in as a `Noise` argument whose draws depend on labels alone, so any order, any
sharding and any replay give the same bytes.

`columns` holds the arrays that go in and out, and names their sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .columns import F64, I64, Batch, Closed, Encoded, Part, Releases, Rows, Units
from .keys import Keys
from .ranges import Draws

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


SIGNED, INSERTING, ALWAYS = "signed", "inserting", "always"
"""When the truth behind an output cannot be negative: never known, while nothing is deleted and no
input value is negative, or whatever comes."""


class Output(NamedTuple):
    """One released column.

    Attributes:
        name: of the column.
        grid: size of one step of its public grid.
        least: when the exact number cannot be below 0: `SIGNED`, `INSERTING` or `ALWAYS`.
        most: the exact number lies between 0 and this, and an estimate beyond is released as the
            nearer of the two; None where that is not so.
    """

    name: str
    grid: Fraction = Fraction(1)
    least: str = SIGNED
    most: Fraction | None = None


class Place(NamedTuple):
    """Meaning of a key of a mechanism's own, in words that a reader has without its code.

    Attributes:
        key: a text or number per name of `Mechanism.key_fields`.
        box: per coordinate the lower and upper end, in the unit of the input; {} where a key is
            not a part of a space.
    """

    key: dict[str, str | int]
    box: dict[str, tuple[float, float]]


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
        ...

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        """(len(key), len(index)) discrete Laplace draws, P(z) ∝ exp(-abs(z) / scale)."""
        ...

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        """(len(key), len(index), 2) uniform words, for samplers of a mechanism's own."""
        ...


@runtime_checkable
class Mechanism(Protocol):
    """A frozen dataclass of public parameters with pure functions.

    Absorbing is sequential in meaning: cutting a slice anywhere gives the same units and the
    same merged part. Releasing is a function of `Closed` and `Noise`; where ``routing`` is
    "key" it is row-wise, so that any subset of keys may be released on its own.
    """

    routing: ClassVar[Literal["key", "single"]]  # "single": one aggregate partition
    load: ClassVar[Literal["due", "all"]]  # which rows a release needs
    feedback: bool  # whether absorb depends on earlier releases
    row_dtype: np.dtype[Any]
    horizon: int  # triggers per window
    columns: int  # c
    totals: int  # g
    lanes: int  # width of Units.used
    inputs: tuple[str, ...]  # numeric record columns that `encode` wants, or `UNIT`; () = by key
    outputs: tuple[Output, ...]  # released columns, c' of them

    # Public statements. None has a default: a mechanism that states no noise would be published
    # with that of another.
    distribution: Literal["discrete_gaussian", "discrete_laplace", "local_randomizer"]
    definition: ClassVar[Literal["approximate", "pure", "local"]]  # of differential privacy
    neighbouring: ClassVar[Literal["add_remove", "replace_value"]]
    key_form: ClassVar[Literal["columns", "code"]]  # released keys: the record's, or own bytes
    key_fields: ClassVar[tuple[str, ...]]  # names in keys of its own bytes; () with "columns"
    replaces: ClassVar[bool]  # a key that a release lacks is gone; else its last value stays
    survey: Survey | None  # what devices are given where records are their reports; else None

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Turn decoded numeric columns into keys; unused where ``inputs`` is empty."""
        ...

    def init_units(self, u: int) -> Units:
        """State of u units that have contributed nothing."""
        ...

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Apply the contribution bound in log order; return new unit state and exact sums."""
        ...

    def init_rows(self, key: Keys) -> Rows:
        """State of keys that have never been seen."""
        ...

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Return every row that is new or changed (cell or due), and what becomes public."""
        ...

    def cost(self) -> Cost:
        """Loss per unit and epoch for all triggers of all windows of the epoch."""
        ...

    def error(self, t: int) -> F64:
        """(c',) standard deviation of the noise of each output at trigger t, in grid units."""
        ...

    def draws(self) -> tuple[Draws, ...]:
        """Every kind of draw that any release may ask for, at its largest parameter.

        `ranges.check` refuses a configuration whose noise cannot be drawn or added up; () where
        there is none.
        """
        ...

    # Statements: functions of public parameters

    def stated(self, unit: str) -> Stated:
        """Additional cost: `NOTHING_MORE`, or for local privacy the cost of one report."""
        ...

    def bounds(self, unit: str) -> dict[str, Any]:
        """The bound on one privacy unit's contribution in an epoch: numbers, and ``in_words``."""
        ...

    def key_threshold(self, t: int) -> Fraction | None:
        """The threshold of a key's noisy count at trigger t; None if keys are not selected."""
        ...

    def places(self, keys: Keys) -> list[Place]:
        """Meaning of released keys, where ``key_form`` is "code"; unused elsewhere."""
        ...

    def geometry(self) -> dict[str, Any]:
        """The public space that keys divide, as plain JSON for manifests; {} where there is none.

        A space has axes, depth and split, and a region: polygons, cells, or neither.
        """
        ...

    def digests(self) -> tuple[str, ...]:
        """Digests of everything that this machine computed and a release depends on.

        They go into the charged hash: a machine that computes one otherwise is stopped.
        """
        ...

    def plan(self) -> dict[str, Any]:
        """Fields of `hush plan --json` besides cost and noise; {} if there are none."""
        ...

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """The same fields as rows of a table for people."""
        ...


MEMBERS = (
    *Mechanism.__annotations__,
    *(name for name, value in vars(Mechanism).items() if callable(value) and name[0] != "_"),
)
"""Everything that a mechanism must have; see `registry.check`."""


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
        shards: aggregate shards. Each draws under nonces of its own, so whatever all of them
            release of the same content is released with so many independent noises.
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
