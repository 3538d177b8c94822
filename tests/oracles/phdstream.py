"""PHDStream by its definitions, one event and one node at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.phdstream.mechanism import PHDStream

Event = tuple[int, int, int]  # trigger, finest cell, sign


def accepted(mechanism: PHDStream, trace: Trace) -> list[Event]:
    """Events that the contribution bound accepts, one by one."""
    left: Counter[int] = Counter()
    live: Counter[tuple[int, int]] = Counter()
    codes = trace.keys.codes()
    deletions = mechanism.deletions and not mechanism.lifetime
    most = mechanism.bound // 2 if mechanism.lifetime else mechanism.bound
    out = []
    columns = (trace.trigger, trace.unit, codes[trace.key], trace.sign)
    for t, unit, cell, sign in zip(*(column.tolist() for column in columns), strict=True):
        if left[unit] >= most or (sign < 0 and not (deletions and live[unit, cell] > 0)):
            continue
        left[unit] += 1
        live[unit, cell] += sign
        out.append((t, cell, sign))
    return out


def scheduled(mechanism: PHDStream, events: Sequence[Event]) -> list[Event]:
    """Events at the triggers that count them, after hold-back and lifetime."""
    out = []
    for t, cell, sign in events:
        out.append((max(t, mechanism.first), cell, sign))
        if mechanism.lifetime and t + mechanism.lifetime <= mechanism.horizon:
            out.append((max(t + mechanism.lifetime, mechanism.first), cell, -1))
    return out


def live_counts(events: Sequence[Event], t: int) -> int:
    """Insertions less deletions up to trigger t."""
    return sum(sign for when, _, sign in events if when <= t)


def definition(
    mechanism: PHDStream, events: Sequence[Event], trees: Sequence[Sequence[int]]
) -> list[list[Fraction]]:
    """G of the leaves of every tree, with exact counts and equal shares.

    A change at node v adds itself to v and its ancestors, and β^-distance of itself to each
    descendant.
    """
    step, bits = mechanism.domain.step, mechanism.domain.bits
    changes: dict[int, int] = defaultdict(int)
    out = []
    for t, tree in enumerate(trees, 1):
        for when, cell, sign in events:
            if when == t:
                leaf = next(v for v in tree if cell >> (bits + 1 - v.bit_length()) == v)
                changes[leaf] += sign
        out.append(
            [sum((spread(v, w, step) * d for w, d in changes.items()), Fraction(0)) for v in tree]
        )
    return out


def spread(node: int, source: int, step: int) -> Fraction:
    """Amount that a change of 1 at ``source`` adds to ``node``."""
    if source.bit_length() >= node.bit_length():
        return Fraction(int(source >> (source.bit_length() - node.bit_length()) == node))
    down = node.bit_length() - source.bit_length()
    return Fraction(int(node >> down == source), 1 << down)
