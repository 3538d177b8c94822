"""ToPL for the contract suite: hostile, repeated and excessive reports among honest ones.

All surveys here use the Hybrid channel. The judge covers others (`tests/judge/topl.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hushstream.client.survey import RANGE, VALUE, Survey
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import UNIT, Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.topl import mechanism as topl
from hushstream.mechanisms.topl import settings as topl_plan
from hushstream.mechanisms.topl.fit import choose_threshold, fit, worst_variance

from ..case import Case

SETTING = Setting(
    epsilon=Fraction(3),
    delta=Fraction(0),
    horizon=5,
    columns=(("minutes", 0, 120),),
    grids=(Fraction(1, 4),),
)
MECHANISM: topl.ToPL = find("topl").build(
    topl_plan.ToPLParameters(
        reports=3, buckets=16, levels=8, warmup=2, share="1/4", rounds=1, channel="hybrid"
    ),
    SETTING,
)


def trace(generator: np.random.Generator) -> Trace:
    """Reports of 60 units about 6 slots in 5 micro-batches; some repeated, some impossible.

    Every report names a random group, and often a theta that was not published.
    """
    n = 600
    unit = generator.integers(0, 60, n)
    group = generator.integers(1, 3, n)
    theta = generator.choice([1, 1, 1, 2, 16], n)  # with so few reports the published theta is 1
    columns = {
        "slot": generator.integers(0, 6, n),
        "group": group,
        "theta": np.where(group == RANGE, 0, theta),
        "code": generator.integers(0, 24, n),
        "survey": np.where(generator.random(n) < 0.05, 1, MECHANISM.survey.number),
        UNIT: unit.astype(object),
    }
    coded = MECHANISM.encode(columns)
    rows = np.flatnonzero(coded.keep)
    return Trace(
        trigger=np.sort(generator.integers(1, SETTING.horizon + 1, n))[rows],
        unit=unit[rows],
        keys=coded.keys,
        key=coded.key[rows],
        value=coded.value[rows],
        sign=np.where(generator.random(n) < 0.1, -1, 1).astype(np.int8)[rows],
    )


Bucket = tuple[int, int, int]  # group, theta, code


def accepted(events: Trace) -> list[Counter[Bucket]]:
    """Reports by bucket and micro-batch, record by record."""
    slots: dict[int, set[int]] = {}
    out: list[Counter[Bucket]] = [Counter() for _ in range(SETTING.horizon)]
    codes = events.keys.codes().astype(np.int64)[events.key].tolist()
    for t, unit, code, sign in zip(
        events.trigger.tolist(), events.unit.tolist(), codes, events.sign.tolist(), strict=True
    ):
        mine = slots.setdefault(unit, set())
        if sign < 0 or code >> 32 in mine or len(mine) == 3:
            continue
        mine.add(code >> 32)
        group = VALUE if code >> 31 & 1 else RANGE
        out[t - 1][group, code >> 18 & 0x1FFF, code & 0x3FFFF] += 1
    return out


def mean(survey: Survey, counts: Counter[Bucket]) -> Fraction | None:
    """The inverse-variance weighted mean, computed report by report."""
    over, under = Fraction(0), Fraction(0)
    for (group, theta, code), number in counts.items():
        if group == RANGE:
            wave = survey.square_wave
            level = (1 + wave.decode(code)) * Fraction(wave.inputs - 1, 2)
            said = survey.bound * (level + Fraction(1, 2)) / wave.inputs
            spread = worst_variance(wave) * survey.bound**2
        else:
            said = survey.estimate(code, theta)
            spread = worst_variance(survey.hybrid) * survey.threshold(theta) ** 2
        over += number * said / spread
        under += number / spread
    return over / under if under else None


def exact(events: Trace, releases: Sequence[Releases]) -> None:
    """Every release, recomputed from single reports."""
    survey, so_far, theta = MECHANISM.survey, Counter[Bucket](), 0
    for t, (every, release) in enumerate(zip(accepted(events), releases, strict=True), 1):
        now = Counter({b: k for b, k in every.items() if b[0] == RANGE or b[1] == theta})
        so_far += now
        whole, part = mean(survey, so_far), mean(survey, now) or Fraction(0)
        assert whole is not None
        expected = [round(whole * 4), round(part * sum(now.values()) * 4)]
        assert release.value.tolist() == [expected]
        if t == MECHANISM.warmup:
            theta, density = chosen(so_far)
            np.testing.assert_array_equal(release.public["distribution"], density)
        assert ("theta" in release.public) == (t >= MECHANISM.warmup)
        assert t < MECHANISM.warmup or release.public["theta"].tolist() == [theta]


def chosen(so_far: Counter[Bucket]) -> tuple[int, np.ndarray]:
    """Threshold and distribution in parts per million, from the range group."""
    survey = MECHANISM.survey
    counts = np.zeros(survey.square_wave.outputs, np.int64)
    for (group, _, code), number in so_far.items():
        counts[code] += number * (group == RANGE)
    density = fit(counts, survey.square_wave).density
    theta = choose_threshold(density, float(worst_variance(survey.hybrid)), 3.0 * counts.sum())
    return theta, np.rint(density * 1e6)


def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
    """L1 distance of report counts over all micro-batches."""
    total = 0
    for one, other in zip(first, second, strict=True):
        difference: Counter[bytes] = Counter()
        for part, sign in ((one, 1), (other, -1)):
            for key, number in zip(part.key.tolist(), part.sums[:, 0].tolist(), strict=True):
                difference[key] += sign * number
        total += sum(map(abs, difference.values()))
    return float(total)


CASES = [Case("topl", MECHANISM, trace, exact, distance, bound=3.0, noisy=False)]
