"""Contribution bounds: limits on one privacy unit over all keys, triggers and windows together.

Records are taken in log order; each is accepted if what is left of its unit's bound can pay for it.

Guarantee, for neighbours that differ by all records of one unit: with m_kl the accepted records
of the unit in key k and lane l, ``Σ weight_l·m_kl² ≤ Bound.left`` for `quadratic`; at most
``left`` records and ``per_key`` of them per key for `records`. It holds for every input, every
cut of the stream into slices, and under collisions of the pair hash, which only overcharge.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import ContractError, ParameterError
from ...columns import I64, Batch, Units, writeable
from ...keys import Keys
from ...validate import at_least, one_of

RESERVED = np.uint32(0xFFFFFFFF)
"""A pair hash that no key has: for state about a unit as a whole."""

MOST = 2**16 - 1  # records per pair and lane that `Units.used` can hold
MOST_PAIRS = 100_000  # entries of a unit; its changelog row has 8 bytes each at most, and 900 kB
_LARGEST_BUDGET = 2**40
_SEED = secrets.randbits(62)  # so that crafted keys cannot collide in the table


class Accepted(NamedTuple):
    """The decisions of `Bound.apply` on a slice of n records."""

    units: Units
    accepted: NDArray[np.bool_]  # (n,)


class Once(NamedTuple):
    """Groups of records of one unit; of each group at most one record is accepted."""

    group: NDArray[np.intp]  # (n,) of each record; empty: every record counts
    had: NDArray[np.bool_]  # (groups,) whether one was accepted before


_EACH = Once(np.zeros(0, np.intp), np.zeros(0, np.bool_))


@dataclass(frozen=True)
class Bound:
    """A contribution bound.

    Attributes:
        kind: "quadratic" charges ``weights[lane]·(2m+1)`` for the record that raises the pair's
            count in its lane from m to m+1; "records" charges 1.
        left: the budget of one unit, in the same integer unit as ``weights``.
        weights: price factor per lane (quadratic only).
        per_key: most records of one unit in one key and window, all lanes together ("records"
            only).
        caps: most records of one unit in one key and window per lane (quadratic only).

    >>> Bound("quadratic", 9, (1,)).sensitivity2(), Bound("records", 7, (1,), 3).sensitivity2()
    (9, 19)
    """

    kind: Literal["quadratic", "records"]
    left: int
    weights: tuple[int, ...] = (1,)
    per_key: int = MOST
    caps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("bound", self.kind, ("quadratic", "records"))
        at_least("budget", self.left, 1)
        at_least("per_key", self.per_key, 1)
        if self.left > _LARGEST_BUDGET or self.per_key > MOST:
            raise ParameterError("budget", self.left, "is too large for the state of a unit")
        for weight in self.weights:
            at_least("weights", weight, 1)
            if self.kind == "quadratic" and self.left > weight * MOST**2:
                raise ParameterError("budget", self.left, "is too large for the state of a unit")
        for cap in self.caps:
            at_least("caps", cap, 1)

    def sensitivity2(self) -> int:
        """Largest ``Σ weight·m²`` over keys, windows and lanes that one unit can reach."""
        if self.kind == "quadratic":
            return self.left
        full, rest = divmod(self.left, min(self.per_key, self.left))
        return full * min(self.per_key, self.left) ** 2 + rest**2

    def storable(self, distinct: bool = False) -> Bound:
        """Return itself if the state of any unit fits into a record.

        Args:
            distinct: whether pairs of key and value count.

        Raises:
            ParameterError: a unit may count in too many keys, or with too many values.
        """
        price, most = min(self.weights) if self.kind == "quadratic" else 1, most_pairs(distinct)
        if self.left > most * price:
            does, what = ("show", "values") if distinct else ("count in", "keys")
            rule = f"lets a unit {does} more than the {most:,} {what} that its state can hold"
            raise ParameterError("budget", self.left / self.weights[0], rule)
        return self

    @property
    def of_units(self) -> bool:
        """Whether counts are of distinct units: each counts once in a key and window.

        With two lanes this holds until the key is public.
        """
        return self.per_key == 1 if self.kind == "records" else self.caps[:1] == (1,)

    def most_per_key(self) -> int:
        """Most records of one unit in one key and lane 0."""
        if self.kind == "records":
            return min(self.per_key, self.left)
        return min(math.isqrt(self.left // self.weights[0]), *self.caps[:1], MOST)

    def most_per_lane(self) -> I64:
        """(lanes,) most records of one unit in one key and lane, of a quadratic bound."""
        return np.asarray(self.caps or (MOST,) * len(self.weights), np.int64)

    def apply(
        self,
        units: Units,
        batch: Batch,
        lane: NDArray[np.intp],
        hashed: NDArray[np.uint32] | None = None,
        once: Once = _EACH,
    ) -> Accepted:
        """Take the slice's records in order; ``lane`` (k,) is the lane of each key.

        ``hashed`` (k,) identifies keys in unit state; None: their `hashes`.

        Returns new unit state, and (n,) whether each record was accepted.

        Raises:
            ContractError: the stored pairs of a unit are not in order, which no bound causes.
        """
        from . import scan as bound_scan

        start, pair = units.start, writeable(units.pair)
        if not bound_scan.in_order(start, pair):
            raise ContractError("the stored pairs of a unit are not in order")
        used, left = np.array(units.used, np.uint16), np.array(units.left, np.int64)
        stored = Units(left, start, pair, used)
        told = hashes(batch) if hashed is None else hashed.astype(np.uint64)
        made = decided(self, stored, batch.unit, batch.key, told, lane, once)
        added = np.empty(len(made.code), np.uint64)
        added = np.sort(added[: bound_scan.new_pairs(made.code, made.row, made.met, added)])
        begins, most = np.empty(len(start), np.int64), len(pair) + len(added)
        pairs, counts = np.empty(most, np.uint32), np.empty((most, used.shape[1]), np.uint16)
        bound_scan.merge(
            start, pair, used, added, made.table, made.code, made.fresh, _SEED,
            begins, pairs, counts,
        )  # fmt: skip
        end = int(begins[-1])
        return Accepted(Units(left, begins, pairs[:end], counts[:end]), made.accepted)


def most_pairs(distinct: bool) -> int:
    """Most pairs of a unit that its state can hold; each of key and value has an entry of its own,
    beside that of its key.

    >>> most_pairs(False), most_pairs(True)
    (100000, 50000)
    """
    return MOST_PAIRS // 2 if distinct else MOST_PAIRS


class Decided(NamedTuple):
    """The decisions of `decided` on n records, and the s pairs among them."""

    table: I64  # position of each pair
    code: NDArray[np.uint64]  # (s,) unit · 2^32 + hash of each pair
    row: I64  # (s,) its position in the stored state; -1 if it has none
    met: NDArray[np.uint8]  # (s,) whether one of its records was accepted
    fresh: NDArray[np.uint16]  # (n, lanes) records of pairs that were not stored
    accepted: NDArray[np.bool_]  # (n,)


def decided(
    bound: Bound,
    units: Units,
    unit: NDArray[np.intp],
    key: NDArray[np.intp],
    hashed: NDArray[np.uint64],
    lane: NDArray[np.intp],
    once: Once = _EACH,
) -> Decided:
    """Take records in order; changes ``left`` and ``used`` of the stored units in place."""
    from .scan import decide

    n, lanes = len(unit), units.used.shape[1]
    table = np.zeros(1 << max(2 * n - 1, 1).bit_length(), np.int64)
    code, row, met = np.empty(n, np.uint64), np.empty(n, np.int64), np.empty(n, np.uint8)
    fresh = np.zeros((n, lanes), np.uint16)
    accepted = np.empty(n, np.bool_)
    s = decide(
        units.start, units.pair, units.used, units.left,
        writeable(unit), writeable(key), hashed, writeable(lane),
        writeable(once.group), once.had.copy(),
        bound.kind == "quadratic", np.asarray(bound.weights, np.int64), bound.most_per_lane(),
        bound.per_key, _SEED, table, code, row, fresh, met, accepted,
    )  # fmt: skip
    return Decided(table, code[:s], row[:s], met[:s], fresh, accepted)


def pair_hash(keys: Keys, window: int) -> NDArray[np.uint32]:
    """(k,) FNV-1a hash of (window, key), for `Units.pair`; it must never change.

    Collisions only make a unit pay more than necessary, so the hash needs no secret.
    """
    from .scan import hash_keys

    out = np.empty(len(keys), np.uint32)
    hash_keys(writeable(keys.data), keys.offsets, window, out)
    return out


def hashes(batch: Batch) -> NDArray[np.uint64]:
    """(k,) hash of each key in the batch's window, never `RESERVED`."""
    return np.minimum(pair_hash(batch.keys, batch.window), RESERVED - 1).astype(np.uint64)


def ranks(group: NDArray[np.intp], groups: int) -> I64:
    """(n,) number of earlier records of the same group."""
    sizes = np.bincount(group, minlength=groups)
    if sizes.max(initial=0) <= 1:
        return np.zeros(len(group), np.int64)
    order = np.argsort(group, kind="stable")
    begin = np.zeros(groups + 1, np.int64)
    np.cumsum(sizes, out=begin[1:])
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - begin[group[order]]
    return rank
