"""Activity for the contract suite: units with few and many records, and deletions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, log2

import numpy as np
from hushstream.mechanisms.activity.mechanism import Activity
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.unit_profile import STEPS

from ..case import Case

MOST, UNITS = 8, 60
KEYS = tuple(b'["%d"]' % n for n in range(5))
SETTING = Setting(Fraction(1), Fraction(1, 10**6), 1)
MADE: Activity = find("activity").build(find("activity").parameters(MOST), SETTING)


def trace(draw: np.random.Generator) -> Trace:
    """Records of 60 units; three of them send about half."""
    n = 300
    unit = np.where(draw.random(n) < 0.5, draw.integers(0, 3, n), draw.integers(0, UNITS, n))
    sign = np.where(draw.random(n) < 0.1, -1, 1).astype(np.int8)
    key, value = draw.integers(0, len(KEYS), n), np.zeros((n, 0), np.int64)
    return Trace(np.ones(n, np.intp), unit, Keys.of(KEYS), key, value, sign)


def by_hand(events: Trace) -> Counter[tuple[int, int]]:
    """Number of units in each bucket, by the bucket's upper ends."""
    sent: dict[int, Counter[int]] = {}
    rows = zip(events.unit.tolist(), events.key.tolist(), events.sign.tolist(), strict=True)
    for unit, key, sign in rows:
        mine = sent.setdefault(unit, Counter())
        if sign > 0 and mine.total() < MOST:
            mine[key] += 1
    found: Counter[tuple[int, int]] = Counter()
    for mine in filter(Counter.total, sent.values()):
        n, squares = mine.total(), sum(m * m for m in mine.values())
        found[1 << ceil(log2(n)), 1 << ceil(log2(squares / n))] += 1
    return found


def exact(events: Trace, releases: Sequence[Releases]) -> None:
    (release,) = releases
    places = [tuple(one.key.values()) for one in MADE.traits.keys.places(release.key, ())]
    assert len(set(places)) == len(places) == MADE.profile.buckets
    shown = dict(zip(places, release.value[:, 0].tolist(), strict=True))
    assert {at: n for at, n in shown.items() if n} == {
        at: n * STEPS for at, n in by_hand(events).items()
    }


def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
    """Squared L2 distance between the released numbers of units."""
    moved: Counter[bytes] = Counter()
    for parts, way in ((first, 1), (second, -1)):
        for part in parts:
            for key, sums in zip(part.key, part.sums[:, 0].tolist(), strict=True):
                moved[key] += way * sums
    return float(sum(n * n for n in moved.values()))


CASES = (Case("activity", MADE, trace, exact, distance, 1),)
