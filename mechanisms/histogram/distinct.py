"""Distinct values per key: a unit's bound on pairs, and how far first sightings may shift a count.

A key's count is the number of distinct values that accepted records have shown in it, each counted
in the micro-batch of its first sighting. A unit's records are bounded as pairs of key and value: a
pair that it shows again costs nothing and counts nothing. Acceptance of a pair depends on its own
unit's records and on what is public, *not on whether others have shown it*; a rejected pair never
enters a set.

*What a unit moves.* Take neighbours, with and without one unit. On every path the records of all
others, and which of them count, are the same in both. A pair of the unit that others have
shown before moves nothing. Any other pair adds 1 at its trigger t in the world with the unit; in
the world without, the same pair adds 1 at the first sighting by others, t' > t, if there is one.
(Within a micro-batch the order does not matter: the pair is there or not.) So x changes
by -1 at t and perhaps +1 at t', in the same key. When t' comes is up to others, who may react to
releases; but it is known at t', and every row of Cx is a function of what is known by its trigger.
So shifts are predictable, as `mechanism` requires, and it is enough to bound their squares path by
path, after the last trigger, when they are largest.

*One lane.* Let Δ be the largest column norm of C and D = d·Δ the largest ‖c_t - c_t'‖ over t < t',
but at least Δ. Each of a unit's m pairs in a key moves Cx by at most D, all of them by at most m·D:
Σ over keys ≤ d²Q, as a unit has Σ m² ≤ Q. Where C ≥ 0, d² ≤ 2.

*Two lanes.* A pair that the unit shows while its key is hidden may be shown by others once it is
public: it leaves S, and enters V. Of a pairs in S let r return in S, so that at most a - r enter V;
the b pairs in V return in V, if at all, since a public key stays public. The squared shift is at
most (rD + (a-r)Δ)² + w²(bD + (a-r)Δ)², convex in r, so at most what r = a or r = 0 give:
d²(a² + w²b²) or a² + w²(a + db)², each times Δ². As 2·w·d·a·wb ≤ τa² + w²d²/τ·(wb)² for any τ > 0,
the second is at most max(1 + w² + τ, d² + w²d²/τ)·(a² + w²b²). `factor2`, the declared multiple of
Q, is that maximum, with a τ that makes both terms equal.

*Keys.* A gate of a key differs between the worlds only while no other unit has shown anything in
it; then the key holds only the unit's own m pairs, as with counts of records. So the argument of
`thresholds.key_selection` holds as it is, with the larger noise.

Deletions are refused: they would need to know whether others still show a value, and one unit that
alternately shows and deletes a value would change the count at each trigger.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError, ParameterError
from ..columns import I64, Batch, Part, Units, compact
from ..contract import Setting
from ..factorization import Factorization
from ..pairs import PAIR, Split
from ..parts.bounds.bounding import Bound, Once, pair_hash

_LARGEST = 2048  # triggers up to which all distances of columns are computed
_SEEN = np.uint32(1 << 31)  # set in an entry of `Units.pair` that remembers a pair
_FINE = 4096


def refuse(setting: Setting, parameters: Any) -> None:
    """Refuse settings without meaning for distinct values.

    Raises:
        ParameterError: names the setting.
    """
    if setting.columns or not setting.count:
        raise ParameterError("distinct", True, "excludes sums: sum in another pipeline")
    if parameters.min_users > 1:
        rule = "counts units, but a set of values has no units: leave it out"
        raise ParameterError("min_users", parameters.min_users, rule)
    rounds = parameters.selection == "rounds"
    if parameters.debias or rounds or parameters.aggregate == "keys":
        raise ParameterError("distinct", True, 'not with debias, rounds or aggregate = "keys"')


def displaced(factor: Factorization) -> Fraction:
    """d²: largest squared distance of a column of C from a later one, over Δ²; at least 1.

    Raises:
        ContractError: C has a negative entry, and is too large to compute all distances.
    """
    if factor.horizon > _LARGEST:
        if int(factor.core.min()) < 0:
            raise ContractError("this factorisation moves first sightings too far")
        return Fraction(2)
    exact = factor.C.astype(np.float64)
    inner = exact.T @ exact  # integers below 2^53
    norm = inner.diagonal()
    most = max(float((norm[:, None] + norm - 2 * inner).max()), float(norm.max()))
    return Fraction(int(most), int(norm.max()))


def factor2(bound: Bound, displaced2: Fraction) -> Fraction:
    """Squared shifts of a unit relative to those of the same bound on records.

    >>> factor2(Bound("quadratic", 4, (1,)), Fraction(2))
    Fraction(2, 1)
    """
    if len(bound.weights) == 1:
        return displaced2
    w2 = Fraction(bound.weights[1], bound.weights[0])
    one, two = float(1 + w2), float(displaced2)
    root = math.sqrt((one - two) ** 2 + 4 * float(w2) * two)
    tau = Fraction(max(1, round((root + two - one) / 2 * _FINE)), _FINE)
    return max(1 + w2 + tau, displaced2 + w2 * displaced2 / tau)


def absorb(
    bound: Bound, units: Units, batch: Batch, lanes: NDArray[np.intp], parts: Split
) -> tuple[Units, Part]:
    """Bound the pairs of a slice, and list those that were accepted.

    A unit's row remembers each accepted pair by 31 bits. Records are taken in order: one whose bits
    are remembered costs nothing and counts nothing, any other is put to the bound, and only its
    acceptance is remembered. So a pair that collides with an accepted one is left out, whereas a
    refused pair leaves no trace, and hides none. A slice that ends between two records changes
    neither rule: what is accepted depends on the unit's own records and on what is public.

    Args:
        bound: bound on pairs.
        units: state of the slice's units.
        batch: its keys include the value.
        lanes: (k,) lane of each of its keys.
        parts: these keys, split into key and value.
    """
    code = pair_hash(batch.keys, batch.window) | _SEEN
    known, seen = _split(units)
    each = batch.unit.astype(np.uint64) << np.uint64(32) | code[batch.key]
    shown, group = np.unique(each, return_inverse=True)
    lane = np.zeros(len(parts.keys), np.intp)
    lane[parts.key] = lanes
    bare = Batch(
        parts.keys, parts.key[batch.key], batch.unit, batch.value, batch.sign,
        np.zeros(len(parts.keys), np.int32), batch.window,
    )  # fmt: skip
    hashed = pair_hash(parts.keys, batch.window) & ~_SEEN
    done = bound.apply(known, bare, lane, hashed, Once(group, np.isin(shown, seen)))
    rows = np.flatnonzero(done.accepted)
    used, _ = compact(batch.key[rows], len(batch.keys))
    sums = np.bincount(batch.key[rows], minlength=len(batch.keys))[used].astype(np.int64)
    part = Part(
        parts.names.take(used), (lanes[used] + PAIR).astype(np.uint8), sums[:, None],
        np.zeros(0, np.int64),
    )  # fmt: skip
    return _joined(done.units, np.concatenate([seen, each[rows]])), part


def _split(units: Units) -> tuple[Units, NDArray[np.uint64]]:
    """Counts per key, and (unit << 32 | pair) of each pair that was accepted."""
    pairs = units.pair >= _SEEN
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    seen = owner[pairs] << np.uint64(32) | units.pair[pairs]
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(~pairs)])[units.start]
    return Units(units.left, start, units.pair[~pairs], units.used[~pairs]), seen


def _joined(units: Units, seen: NDArray[np.uint64]) -> Units:
    """The inverse of `_split`: a pair counts once, in the first lane."""
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    code = np.concatenate([owner << np.uint64(32) | units.pair, seen])
    order = np.argsort(code, kind="stable")
    used = np.zeros((len(code), units.used.shape[1]), np.uint16)
    used[: len(owner)], used[len(owner) :, 0] = units.used, 1
    sizes = np.bincount((code >> np.uint64(32)).astype(np.int64), minlength=len(units.left))
    start: I64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pair = (code[order] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Units(units.left, start, pair, used[order])
