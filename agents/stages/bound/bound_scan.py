"""Compiled loops over a contribution bound, with the answers of `mechanisms.parts.bounding`.

Records are taken one by one in log order, as the definition reads. NumPy writes all prices down
beforehand and sorts; here each (unit, key) pair is looked up in a table, and a unit whose bound is
spent costs one comparison.

Importing this module needs numba: see `formats.events.compiled.possible`.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from ....formats.events.compiled import compiled
from ....mechanisms.columns import I64, Batch, Units
from ....mechanisms.parts.bounding import RESERVED, Accepted, Bound

Bytes = NDArray[np.uint8]
U64 = NDArray[np.uint64]
Used = NDArray[np.uint16]
Flags = NDArray[np.bool_]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SEED = secrets.randbits(62)  # so that nobody can make keys that meet in one place of the table


@compiled
def hashes(data: Bytes, ends: I64, window: int, reserved: int, out: U64) -> None:
    """Hash keys as `mechanisms.parts.bounding.hashes` does.

    Args:
        data, ends: of the keys.
        window: of all of them.
        reserved: a hash that no key has.
        out: (k,), taken.
    """
    prime, begun = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    for shift in (24, 16, 8, 0):
        begun = (begun ^ np.uint64((window >> shift) & 0xFF)) * prime
    for n in range(len(out)):
        state = begun
        for at in range(ends[n], ends[n + 1]):
            state = (state ^ np.uint64(data[at])) * prime
        out[n] = min((state >> _HALF) ^ (state & _LOW), np.uint64(reserved - 1))


@compiled
def in_order(start: I64, pair: NDArray[np.uint32]) -> bool:
    """Whether the pairs of each unit are distinct and in order, as every bound leaves them."""
    for unit in range(len(start) - 1):
        for p in range(start[unit] + 1, start[unit + 1]):
            if pair[p] <= pair[p - 1]:
                return False
    return True


@compiled
def _place(table: I64, code: U64, wanted: np.uint64, seed: int) -> int:
    """The place of a pair in the table, or the empty one that it would take."""
    mask = np.uint64(len(table) - 1)
    state = (wanted ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    place = (state >> np.uint64(20)) & mask
    while table[place] != 0 and code[table[place] - 1] != wanted:
        place = (place + np.uint64(1)) & mask
    return int(place)


@compiled
def _stored(start: I64, pair: NDArray[np.uint32], unit: int, wanted: np.uint64) -> int:
    """The row of a unit's pair; -1 if it has none."""
    low, high = start[unit], start[unit + 1]
    while low < high:
        middle = (low + high) >> 1
        if np.uint64(pair[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    if low < start[unit + 1] and np.uint64(pair[low]) == wanted:
        return int(low)
    return -1


@compiled
def decide(
    start: I64, pair: NDArray[np.uint32], used: Used, left: I64,
    unit: I64, key: I64, hashed: U64, lane: I64,
    quadratic: bool, weights: I64, caps: I64, per_key: int, seed: int,
    table: I64, code: U64, row: I64, fresh: Used, met: NDArray[np.uint8],
    accepted: Flags, first: Flags,
) -> int:  # fmt: skip
    """Take records in order, and say which are accepted.

    Args:
        start, pair: of the stored units.
        used: (p, lanes) records accepted; changed in place.
        left: (u,) what remains of each bound; changed in place.
        unit, key: (n,) of the records.
        hashed, lane: (k,) of the keys.
        quadratic: whether the n-th record of a pair and lane costs ``weights[lane]·(2n-1)``; else
            each costs 1.
        weights, caps: (lanes,) of a quadratic bound.
        per_key: most records of a pair, of the other bound.
        seed: of the table.
        table: zeros, a power of two of them, more than n.
        code, row, fresh, met: (n,) space for the pairs that come; ``fresh`` (n, lanes) is zeros.
        accepted, first: (n,), taken: which records are accepted, and which are the first of their
            pair in this window.

    Returns:
        How many pairs came.
    """
    least, pairs = np.int64(1), 0
    if quadratic:
        least = weights.min()
    for n in range(len(unit)):
        accepted[n] = first[n] = False
        owner = unit[n]
        if left[owner] < least:
            continue
        which, at = hashed[key[n]], lane[key[n]]
        wanted = (np.uint64(owner) << _HALF) | which
        place = _place(table, code, wanted, seed)
        slot = table[place] - 1
        if slot < 0:
            slot = pairs
            pairs += 1
            table[place] = pairs
            code[slot], row[slot] = wanted, _stored(start, pair, owner, which)
            met[slot] = 0
        count = used[row[slot]] if row[slot] >= 0 else fresh[slot]
        total = np.int64(0)
        for one in range(len(count)):
            total += np.int64(count[one])
        if quadratic:
            seen = np.int64(count[at])
            price = weights[at] * (2 * seen + 1)
            fine = seen < caps[at] and price <= left[owner]
        else:
            price, fine = np.int64(1), total < per_key
        if fine:
            accepted[n] = True
            first[n] = met[slot] == 0 and total == 0
            met[slot] = 1
            left[owner] -= price
            count[at] += np.uint16(1)
    return pairs


@compiled
def new_pairs(code: U64, row: I64, met: NDArray[np.uint8], out: U64) -> int:
    """List the pairs that were not stored and had a record accepted; returns their number."""
    found = 0
    for slot in range(len(code)):
        if row[slot] < 0 and met[slot]:
            out[found] = code[slot]
            found += 1
    return found


@compiled
def merge(
    start: I64, pair: NDArray[np.uint32], used: Used,
    added: U64, table: I64, code: U64, fresh: Used, seed: int,
    begins: I64, pairs: NDArray[np.uint32], counts: Used,
) -> None:  # fmt: skip
    """Put the new pairs between the stored ones, in order; a pair without records is dropped.

    Args:
        start, pair, used: of the stored units, after `decide`.
        added: of `new_pairs`, in order.
        table, code, fresh, seed: of `decide`.
        begins: (u+1,), taken: where each unit's pairs begin.
        pairs, counts: taken; they have room for all.
    """
    out, new = 0, 0
    begins[0] = 0
    for unit in range(len(start) - 1):
        at, end = start[unit], start[unit + 1]
        while True:
            mine = new < len(added) and np.int64(added[new] >> _HALF) == unit
            if at < end and (not mine or np.uint64(pair[at]) < (added[new] & _LOW)):
                live = False
                for lane in range(used.shape[1]):
                    counts[out, lane] = used[at, lane]
                    live |= used[at, lane] > 0
                pairs[out] = pair[at]
                out += 1 if live else 0
                at += 1
            elif mine:
                slot = table[_place(table, code, added[new], seed)] - 1
                for lane in range(used.shape[1]):
                    counts[out, lane] = fresh[slot, lane]
                pairs[out] = np.uint32(added[new] & _LOW)
                out += 1
                new += 1
            else:
                break
        begins[unit + 1] = out


def bounded(bound: Bound, units: Units, batch: Batch, lane: NDArray[np.intp]) -> Accepted | None:
    """Take the slice's records in order, as `Bound.apply` does.

    Args:
        bound: the bound.
        units: as they are stored.
        batch: n records.
        lane: (k,) lane of each key.

    Returns:
        None where stored pairs are in no order: NumPy sorts them.
    """
    start, pair, n = units.start, np.ascontiguousarray(units.pair), len(batch.unit)
    if not in_order(start, pair):
        return None
    used, left = np.array(units.used, np.uint16), np.array(units.left, np.int64)
    hashed = np.empty(len(batch.keys), np.uint64)
    data = batch.keys.data
    hashes(
        data if data.flags.writeable else data.copy(), batch.keys.offsets, batch.window,
        int(RESERVED), hashed,
    )  # fmt: skip
    table = np.zeros(1 << max(2 * n - 1, 1).bit_length(), np.int64)
    code, row, met = np.empty(n, np.uint64), np.empty(n, np.int64), np.empty(n, np.uint8)
    fresh = np.zeros((n, used.shape[1]), np.uint16)
    accepted, first = np.empty(n, np.bool_), np.empty(n, np.bool_)
    weights = np.asarray(bound.weights, np.int64)
    count = decide(
        start, pair, used, left, _whole(batch.unit), _whole(batch.key), hashed, _whole(lane),
        bound.kind == "quadratic", weights, bound.most_per_lane(), bound.per_key, _SEED,
        table, code, row, fresh, met, accepted, first,
    )  # fmt: skip
    added = np.empty(count, np.uint64)
    added = np.sort(added[: new_pairs(code[:count], row[:count], met[:count], added)])
    begins, most = np.empty(len(start), np.int64), len(pair) + len(added)
    pairs, counts = np.empty(most, np.uint32), np.empty((most, used.shape[1]), np.uint16)
    merge(start, pair, used, added, table, code, fresh, _SEED, begins, pairs, counts)
    end = int(begins[-1])
    return Accepted(Units(left, begins, pairs[:end], counts[:end]), accepted, first)


def _whole(column: NDArray[np.intp]) -> I64:
    return np.ascontiguousarray(column, np.int64)
