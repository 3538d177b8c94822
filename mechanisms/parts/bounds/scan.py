"""Compiled loops over a contribution bound: records are taken in log order.

Each (unit, key) pair is looked up in a table, and a unit whose bound is spent costs one comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled
from ...columns import I64

U64 = NDArray[np.uint64]
Used = NDArray[np.uint16]
Flags = NDArray[np.bool_]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def in_order(start: I64, pair: NDArray[np.uint32]) -> bool:
    """Whether the pairs of each unit are distinct and in order, as after every bound."""
    for unit in range(len(start) - 1):
        for p in range(start[unit] + 1, start[unit + 1]):
            if pair[p] <= pair[p - 1]:
                return False
    return True


@compiled
def _place(table: I64, code: U64, wanted: np.uint64, seed: int) -> int:
    """The place of a pair in the table, or the empty place where it belongs."""
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
    unit: I64, key: I64, hashed: U64, lane: I64, once: I64, had: Flags,
    quadratic: bool, weights: I64, caps: I64, per_key: int, seed: int,
    table: I64, code: U64, row: I64, fresh: Used, met: NDArray[np.uint8],
    accepted: Flags,
) -> int:  # fmt: skip
    """Take records in order and decide which are accepted; return the number of pairs.

    Args:
        used: (p, lanes) records accepted; changed in place.
        left: (u,) what remains of each bound; changed in place.
        unit, key: (n,) columns of the records.
        hashed, lane: (k,) columns of the keys.
        once: (n,) group of each record; a group has at most one accepted record. Empty: no limit.
        had: (groups,) whether a record of the group was accepted; changed in place.
        quadratic: whether the n-th record of a pair and lane costs ``weights[lane]·(2n-1)``; else
            each costs 1.
        weights, caps: (lanes,) parameters of a quadratic bound.
        per_key: most records of a pair, for the bound on records.
        table: zeros; their number is a power of two and exceeds n.
        code, row, fresh, met: (n,) space for the pairs; ``fresh`` (n, lanes) is zeros.
        accepted: (n,) output, whether a record is accepted.
    """
    least, pairs = np.int64(1), 0
    if quadratic:
        least = weights.min()
    for n in range(len(unit)):
        accepted[n] = False
        owner = unit[n]
        if left[owner] < least or (len(once) and had[once[n]]):
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
        if quadratic:
            seen = np.int64(count[at])
            price = weights[at] * (2 * seen + 1)
            fine = seen < caps[at] and price <= left[owner]
        else:
            total = np.int64(0)
            for one in range(len(count)):
                total += np.int64(count[one])
            price, fine = np.int64(1), total < per_key
        if fine:
            accepted[n] = True
            met[slot] = 1
            if len(once):
                had[once[n]] = True
            left[owner] -= price
            count[at] += np.uint16(1)
    return pairs


@compiled
def new_pairs(code: U64, row: I64, met: NDArray[np.uint8], out: U64) -> int:
    """List the pairs with an accepted record that were not stored; return their number."""
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
    """Merge the new pairs into the stored ones, in order; pairs without records are dropped.

    Args:
        start, pair, used: state of the stored units after `decide`.
        added: result of `new_pairs`, in order.
        table, code, fresh, seed: the same as for `decide`.
        begins: (u+1,) output, first pair of each unit.
        pairs, counts: output, with room for all.
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


@compiled
def hash_keys(
    data: NDArray[np.uint8], ends: NDArray[np.int64], window: int, out: NDArray[np.uint32]
) -> None:
    """Hash keys with FNV-1a, folded to 32 bits, into ``out`` (k,)."""
    prime, begun = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    for shift in (24, 16, 8, 0):
        begun = (begun ^ np.uint64((window >> shift) & 0xFF)) * prime
    for n in range(len(out)):
        state = begun
        for at in range(ends[n], ends[n + 1]):
            state = (state ^ np.uint64(data[at])) * prime
        out[n] = np.uint32((state >> np.uint64(32)) ^ (state & np.uint64(0xFFFFFFFF)))
