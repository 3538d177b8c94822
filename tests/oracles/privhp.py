"""PrivHP, record by record and node by node."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.privhp.layout import SumLayout


def keyed(window: str | int = "w", mechanism: str = "privhp") -> KeyedNoise:
    return KeyedNoise(
        b"k" * 32,
        charge=b"c" * 32,
        mechanism=mechanism,
        config=b"f",
        pipeline="p",
        window=str(window),
        nonces=STEADY,
    )


def accepted(trace: Trace, bound: int, deletions: bool) -> list[tuple[int, int, int]]:
    """(trigger, finest code, sign) of every record that counts, in log order."""
    left: dict[int, int] = defaultdict(lambda: bound)
    live: Counter[tuple[int, int]] = Counter()
    codes = trace.keys.codes()[trace.key].tolist()
    out = []
    for t, unit, code, sign in zip(
        trace.trigger.tolist(), trace.unit.tolist(), codes, trace.sign.tolist(), strict=True
    ):
        dead = sign < 0 and not (deletions and live[unit, code] > 0)
        if left[unit] == 0 or dead:
            continue
        left[unit] -= 1
        live[unit, code] += sign
        out.append((t, code, sign))
    return out


def node_counts(events: list[tuple[int, int, int]], t: int) -> Counter[int]:
    """Records below every node after trigger ``t``."""
    counts: Counter[int] = Counter()
    for trigger, code, sign in events:
        while trigger <= t and code:
            counts[code] += sign
            code >>= 1
    return counts


def split(parent: Fraction, left: Fraction, right: Fraction) -> tuple[Fraction, Fraction]:
    """Consistent children by the stated rule, without rounding."""
    left, right = max(left, Fraction(0)), max(right, Fraction(0))
    excess = left + right - parent
    if left - excess / 2 < 0:
        return Fraction(0), parent
    if right - excess / 2 < 0:
        return parent, Fraction(0)
    return left - excess / 2, right - excess / 2


def tree(shape: SumLayout, table: np.ndarray, keep: int) -> dict[int, int]:
    """Leaves of the pruned tree, node by node, with single queries of the sketches."""
    level_nodes = {1: max(0, int(table[0]))}
    leaves: dict[int, int] = {}
    for level in range(shape.depth + 1):
        refined = set(level_nodes) if level < shape.exact else set()
        if shape.exact <= level < shape.depth:
            ranked = sorted((-count, code) for code, count in level_nodes.items() if count > 0)
            refined = {code for _, code in ranked[:keep]}
        if level == shape.depth:
            refined = set()
        leaves |= {code: count for code, count in level_nodes.items() if code not in refined}
        level_nodes = _next(shape, table, level + 1, {c: level_nodes[c] for c in refined})
    return leaves


def _next(
    shape: SumLayout, table: np.ndarray, level: int, parents: dict[int, int]
) -> dict[int, int]:
    children = {}
    for code, count in parents.items():
        looks = [_look(shape, table, level, 2 * code + side) for side in (0, 1)]
        left, _ = split(Fraction(count), Fraction(looks[0]), Fraction(looks[1]))
        children[2 * code] = round(left)  # half to even
        # The right child rounds in the opposite direction, so that both add up.
        excess = max(looks[0], 0) + max(looks[1], 0) - count
        if 0 < left < count and excess % 2:
            children[2 * code] = max(looks[0], 0) - round(Fraction(excess, 2))
        children[2 * code + 1] = count - children[2 * code]
    return children


def _look(shape: SumLayout, table: np.ndarray, level: int, code: int) -> int:
    sums = shape.part(table, level)
    if level <= shape.exact:
        return int(sums[code - 2**level])
    return int(shape.sketch.estimate(sums, np.array([code], np.uint64))[0])
