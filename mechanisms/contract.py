"""The contract of all mechanisms: pure functions over columns, with exact integers as state.

A mechanism runs in two places. A *bound shard* holds the state of privacy units and turns each
slice of a micro-batch into a `Part`, an exact and linear partial sum. An *aggregate shard* holds
the state of keys; when a micro-batch is closed it merges the parts and computes a release. All
randomness comes in as a `Noise` argument whose draws depend on labels alone, so any order, any
sharding and any replay give the same bytes.

Sizes in the comments: n events, u units, p (unit, key) pairs, k distinct keys, r rows,
c value columns, g shard-wide totals, m released keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .keys import Keys, concat

if TYPE_CHECKING:
    from ..client.survey import Survey

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

UNIT = "@unit"  # among a mechanism's inputs: the privacy unit itself, an object column


class Batch(NamedTuple):
    """A slice of ONE micro-batch of ONE window at ONE bound shard, decoded, in log order."""

    keys: Keys  # (k,) distinct keys of the slice
    key: NDArray[np.intp]  # (n,) row of `keys`
    unit: NDArray[np.intp]  # (n,) row of `Units`; the shard loads those first
    value: I64  # (n, c) clipped, on the public grid; c = 0 for a count alone
    sign: NDArray[np.int8]  # (n,) +1, or -1 for a deletion
    status: NDArray[np.int32]  # (k,) public status as of trigger j-1-d; 0 = none
    window: int = 0  # ordinal of the window inside its epoch: one key in two windows is two pairs


class Units(NamedTuple):
    """State PER UNIT; one stored row per (pipeline, epoch, unit)."""

    left: I64  # (u,) what remains of the contribution bound
    start: I64  # (u+1,) CSR offsets into the pairs
    pair: NDArray[np.uint32]  # (p,) hash of (window, key); a collision overcharges, hence is safe
    used: NDArray[np.uint16]  # (p, lanes) records accepted, or live inserts


class Part(NamedTuple):
    """THE partial sum: linear, hence mergeable in any order."""

    key: Keys  # (r,)
    lane: NDArray[np.uint8]  # (r,)
    sums: I64  # (r, 1+c) records (or distinct units), then column sums
    totals: I64  # (g,) shard-wide counters, sent to every aggregate shard


class Rows(NamedTuple):
    """State PER KEY; one stored row per (pipeline, window, key)."""

    key: Keys  # (r,) distinct, canonical order
    cell: NDArray[Any]  # (r,) structured, `mechanism.row_dtype`
    due: NDArray[np.int32]  # (r,) next trigger to load it without data; 0 none, -1 every trigger


class Closed(NamedTuple):
    """Everything a release may read; frozen by the barrier of trigger t.

    ``rows`` holds each key of ``part`` and each row that is due, freshly initialised where it
    was not stored. Both columns are in canonical key order.
    """

    rows: Rows
    part: Part  # merged parts of micro-batch t alone
    t: int  # trigger, 1..horizon
    renewals: tuple[int, ...] = ()  # triggers up to t, ascending, since which noise has a new nonce

    @property
    def renewed(self) -> int:
        """The trigger since which the nonce in force holds."""
        return self.renewals[-1] if self.renewals else 1


class Releases(NamedTuple):
    """Everything that becomes public at one trigger."""

    key: Keys  # (m,) public from now on
    value: I64  # (m, c') on the public output grid
    variance: F64  # (m, c') of the noise, in squared output-grid units: from public things alone
    status: NDArray[np.int32]  # (m,) what bound reads back: first release, or round
    public: dict[str, I64]  # tree, threshold, clipping bound: once, in the manifest


class Cost(NamedTuple):
    """Privacy loss per unit and epoch under add/remove of the unit.

    The Gaussian parts are mu²-GDP-like and add in ``mu2``; ``epsilon`` is the pure part and
    ``delta`` what thresholds, samplers and other couplings add.
    """

    mu2: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)


class Output(NamedTuple):
    """One released column: its name and the size of one step of its public grid."""

    name: str
    grid: Fraction = Fraction(1)


class Stated(NamedTuple):
    """Statements about a mechanism's cost besides ε, δ and μ², for ledger, manifests and people."""

    values: dict[str, Fraction]
    in_words: str  # empty where there is nothing to add


NOTHING_MORE = Stated({}, "")


class Encoded(NamedTuple):
    """Records as keys of a mechanism; ``keep`` is False where a public rule drops one."""

    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,) row of keys; any valid row where dropped
    value: I64  # (n, c)
    keep: NDArray[np.bool_]  # (n,)


class Noise(Protocol):
    """Keyed exact noise: the shard binds secret, charge, pipeline and window beforehand.

    The same arguments give the same draw; any different argument an independent one.

    ``first`` is the trigger (1, 2, …) at which each draw covers content for the first time: one
    per index, (len(index),), or one per key, (len(key), 1). The draw's label holds the nonce that
    is in force there, and what the draw covers must be complete at that trigger: then no draw
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

    # What is said of it in public. Nothing here has a default: a mechanism that says nothing of
    # its noise would be published with somebody else's.
    distribution: Literal["discrete_gaussian", "discrete_laplace", "local_randomizer"]
    definition: ClassVar[Literal["approximate", "pure", "local"]]  # of differential privacy
    neighbouring: ClassVar[Literal["add_remove", "replace_value"]]
    key_form: ClassVar[Literal["columns", "code"]]  # released keys: the record's, or own bytes
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

    def digests(self) -> tuple[str, ...]:
        """Digests of everything that this machine computed and a release depends on.

        They go into the charged hash: a machine that computes one otherwise is stopped.
        """
        ...

    def plan(self) -> dict[str, Any]:
        """Fields of `hush plan --json` besides cost and noise; {} if there are none."""
        ...

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        """The same as rows of a table for people."""
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
    """

    epsilon: Fraction
    delta: Fraction
    horizon: int
    windows: int = 1
    columns: tuple[tuple[str, int, int], ...] = ()
    grids: tuple[Fraction, ...] = ()
    keys: tuple[bytes, ...] | None = None
    count: bool = True


def empty_units(u: int, lanes: int, bound: int) -> Units:
    """Units with the full bound left and no pairs."""
    return Units(
        np.full(u, bound, np.int64),
        np.zeros(u + 1, np.int64),
        np.empty(0, np.uint32),
        np.empty((0, lanes), np.uint16),
    )


def empty_part(columns: int, totals: int = 0) -> Part:
    """The partial sum of no events."""
    return Part(
        Keys.of([]),
        np.empty(0, np.uint8),
        np.empty((0, 1 + columns), np.int64),
        np.zeros(totals, np.int64),
    )


def merge(parts: Sequence[Part]) -> Part:
    """Sum partial sums exactly; rows come out in canonical (key, lane) order.

    Raises:
        ContractError: no part was given, or their widths differ.
    """
    if not parts:
        raise ContractError("merge needs at least one part")
    if len({(p.sums.shape[1], len(p.totals)) for p in parts}) != 1:
        raise ContractError("parts of different mechanisms cannot be merged")
    totals: I64 = np.stack([p.totals for p in parts]).sum(axis=0, dtype=np.int64)
    keys, key = concat([p.key for p in parts]).unique()
    lane = np.concatenate([p.lane for p in parts])
    codes, row = np.unique(key * 256 + lane, return_inverse=True)
    sums = np.zeros((len(codes), parts[0].sums.shape[1]), np.int64)
    np.add.at(sums, row, np.concatenate([p.sums for p in parts]))
    return Part(keys.take(codes // 256), (codes % 256).astype(np.uint8), sums, totals)


def no_releases(outputs: int, public: dict[str, I64] | None = None) -> Releases:
    """A release of no key at all, which is a release nevertheless."""
    return Releases(
        Keys.of([]),
        np.empty((0, outputs), np.int64),
        np.empty((0, outputs)),
        np.empty(0, np.int32),
        public or {},
    )


def compact(index: NDArray[np.intp], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The distinct values of ``index`` in order, and the place of each entry among them.

    What `numpy.unique` gives for numbers in [0, ``size``), without sorting them.

    >>> used, place = compact(np.array([4, 1, 4]), 6)
    >>> used.tolist(), place.tolist()
    ([1, 4], [1, 0, 1])
    """
    present = np.zeros(size, np.bool_)
    present[index] = True
    return np.flatnonzero(present), (present.cumsum() - 1)[index]


def pair_hash(keys: Keys, window: int) -> NDArray[np.uint32]:
    """(k,) FNV-1a hash of (window, key), for `Units.pair`; stable for ever.

    Collisions only make a unit pay more than it needs to, so no secret is needed here.
    """
    state = np.full(len(keys), 0xCBF29CE484222325, np.uint64)
    prime = np.uint64(0x100000001B3)
    for byte in int(window).to_bytes(4, "big"):
        state = (state ^ np.uint64(byte)) * prime
    widths, starts = np.diff(keys.offsets), keys.offsets[:-1]
    shortest = int(widths.min(initial=1 << 30)) if len(widths) else 0
    for place in range(shortest):
        state = (state ^ keys.data[starts + place]) * prime
    for place in range(shortest, int(widths.max(initial=0))):
        live = np.flatnonzero(widths > place)
        state[live] = (state[live] ^ keys.data[keys.offsets[live] + place]) * prime
    return ((state >> np.uint64(32)) ^ (state & np.uint64(0xFFFFFFFF))).astype(np.uint32)
