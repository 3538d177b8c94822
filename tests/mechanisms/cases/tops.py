"""ToPS for the contract suite: late, early and excessive records, deletions, empty slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.pak.mechanism import Pak, RankQuantile
from hushstream.mechanisms.slots.relearning import Exceedance
from hushstream.mechanisms.slots.slots import Slots
from hushstream.mechanisms.tops.mechanism import Tops
from hushstream.mechanisms.tops.settings import TopsParameters

from ..case import Case

SETTING = Setting(
    epsilon=Fraction(2),
    delta=Fraction(1, 10**9),
    horizon=12,
    columns=(("fare", 0, 90),),
    grids=(Fraction(1, 2),),
)
BASE = TopsParameters(
    bound=2, warmup=3, slots_per_trigger=4, slot=10, origin=500, fanout=2, height=3, skip=1
)


def trace_for(slots: Slots, seed: np.random.Generator, n: int = 400) -> Trace:
    """Records of 250 units; a third come too late or too early, a tenth are deletions."""
    trigger = np.sort(seed.integers(1, slots.horizon + 1, n))
    slot = (trigger - 1) * slots.per_trigger + seed.integers(0, slots.per_trigger, n)
    odd = seed.random(n) < 0.33
    slot[odd] = seed.integers(0, slots.slots, int(odd.sum()))
    time = slots.origin + slot * slots.length + seed.integers(0, slots.length, n)
    value = seed.exponential(12.0, n) - 2.0
    coded = slots.encode({"time": time, "value": value})
    sign = np.where(seed.random(n) < 0.1, -1, 1).astype(np.int8)
    return Trace(trigger, seed.integers(0, 250, n), coded.keys, coded.key, coded.value, sign)


def exact_sums(slots: Slots, trace: Trace, theta: int) -> np.ndarray:
    """Sums of min(value, θ) per slot, record by record."""
    out = np.zeros(slots.slots, np.int64)
    used: dict[int, int] = {}
    codes = trace.keys.codes().astype(np.int64)[trace.key]
    for t, unit, code, value, sign in zip(
        trace.trigger.tolist(), trace.unit.tolist(), codes.tolist(), trace.value[:, 0].tolist(),
        trace.sign.tolist(), strict=True,
    ):  # fmt: skip
        if sign < 0 or used.get(unit, 0) == slots.bound:
            continue
        used[unit] = used.get(unit, 0) + 1
        opened = 0 if t <= slots.warmup else (t - 1) * slots.per_trigger
        out[max(code >> 16, opened)] += min(value, theta)
    return out


def in_force(mechanism: Tops | Pak, trace: Trace, first: int) -> list[int]:
    """The noise-free threshold of every slot, by definition; ``first`` until the first new choice.

    Thresholds of later stretches follow from the scores of `Relearning`'s chooser, which are
    computed here again from accepted records alone.
    """
    slots, again = mechanism.slots, mechanism.relearning
    out = [first] * slots.slots
    if again is None:
        return out
    length = again.every * slots.per_trigger
    for begin in range(slots.warmup_slots + length, slots.slots, length):
        closed = slice(begin - length, begin)
        above = [int(over(slots, trace, theta)[closed].sum()) for theta in slots.thresholds]
        chooser = again.chooser
        if isinstance(chooser, Exceedance):
            scores = [-a - p for a, p in zip(above, chooser.penalty, strict=True)]
            found = slots.thresholds[int(np.argmax(scores))]
        else:
            assert isinstance(chooser, RankQuantile)
            place = min(range(len(above)), key=lambda i: abs(above[i] - chooser.rank + 1))
            target = chooser.factor * slots.thresholds[place]
            found = next((x for x in slots.thresholds if x >= target), slots.top)
        out[begin:] = [found] * (slots.slots - begin)
    return out


def over(slots: Slots, trace: Trace, theta: int) -> np.ndarray:
    """Number of accepted records above θ in each slot."""
    return exact_sums(slots, trace, theta + 1) - exact_sums(slots, trace, theta)


def chosen_exactly(mechanism: Tops, trace: Trace) -> int:
    """The threshold without noise, by its definition."""
    slots = mechanism.slots
    scores = [
        -count_above(slots, trace, theta) - penalty
        for theta, penalty in zip(slots.thresholds, mechanism.penalty, strict=True)
    ]
    return slots.thresholds[int(np.argmax(scores))]


def count_above(slots: Slots, trace: Trace, theta: int) -> int:
    """Number of accepted warm-up records above θ."""
    return int(over(slots, trace, theta)[: slots.warmup_slots].sum())


def exact_truth(
    mechanism: Tops | Pak, trace: Trace, releases: Sequence[Releases], first: int
) -> np.ndarray:
    """Sum of each slot, clipped at its threshold; checks that this threshold was released."""
    slots, thetas = mechanism.slots, in_force(mechanism, trace, first)
    told = [t for t, one in enumerate(releases, 1) if "threshold" in one.public]
    for t in told:
        after = thetas[t * slots.per_trigger] if t < slots.horizon else None
        assert releases[t - 1].public["threshold"].tolist() == [after]
    stretches = mechanism.relearning.stretches if mechanism.relearning else 1
    assert len(told) == stretches
    each = {theta: exact_sums(slots, trace, theta) for theta in set(thetas)}
    return np.array([each[theta][slot] for slot, theta in enumerate(thetas)])


def exact(mechanism: Tops, trace: Trace, releases: Sequence[Releases]) -> None:
    """Without noise the outputs of each whole block add up to its exact sum."""
    slots, width = mechanism.slots, mechanism.width
    theta = chosen_exactly(mechanism, trace)
    assert releases[slots.warmup - 1].public["threshold"].tolist() == [theta]
    assert all(len(r.key) == 0 and not r.public for r in releases[: slots.warmup - 1])
    truth = exact_truth(mechanism, trace, releases, theta) * mechanism.steps
    rows = [row for release in releases for row in release.value.tolist()]
    start = 0 if mechanism.warmup else slots.warmup_slots
    assert len(rows) == slots.slots - start
    out, prefix = np.array(rows).T
    if mechanism.warmup:
        blocks = mechanism.warmup.width
        warm = out[: slots.warmup_slots].reshape(-1, blocks).sum(axis=1)
        assert warm.tolist() == truth[: slots.warmup_slots].reshape(-1, blocks).sum(axis=1).tolist()
        start = slots.warmup_slots
        out = out[start:]
    whole = len(out) // width * width
    expected = truth[slots.warmup_slots :][:whole].reshape(-1, width).sum(axis=1)
    assert out[:whole].reshape(-1, width).sum(axis=1).tolist() == expected.tolist()
    np.testing.assert_array_equal(prefix, np.cumsum([row[0] for row in rows]))
    keys = [int.from_bytes(key, "big") for release in releases for key in release.key]
    assert keys == list(range(slots.slots - len(rows), slots.slots))


def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
    """L1 distance of record counts; checks that no value moves further than its bound allows."""
    total = 0
    for one, other in zip(first, second, strict=True):
        rows = dict(zip(one.key.tolist(), one.sums.tolist(), strict=True))
        rest = dict(zip(other.key.tolist(), other.sums.tolist(), strict=True))
        for key in rows.keys() | rest.keys():
            a, b = rows.get(key, [0, 0]), rest.get(key, [0, 0])
            total += abs(a[0] - b[0])
            assert abs(a[1] - b[1]) <= abs(a[0] - b[0]) * SETTING.columns[0][2]
    return float(total)


def case(name: str, parameters: TopsParameters) -> Case:
    mechanism: Tops = find("tops").build(parameters, SETTING)
    return Case(
        name,
        mechanism,
        lambda seed: trace_for(mechanism.slots, seed),
        lambda trace, releases: exact(mechanism, trace, releases),
        distance,
        bound=float(parameters.bound),
    )


CASES = [
    case("tops-blocks", BASE),
    case("tops-slots", replace(BASE, skip=0, publish_warmup=True)),
    case("tops-infinite", replace(BASE, stream="infinite", smoother="mean", expected=3)),
    case("tops-watched", replace(BASE, watch=0.1)),
    case("tops-learnt-anew", replace(BASE, relearn=2, relearn_share=0.25)),
    case("tops-smooth", replace(BASE, smoother="exponential", publish_warmup=True, height=2)),
]
