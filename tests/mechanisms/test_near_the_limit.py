"""Releases near 2^63: equal to those of unbounded integers, cut after the noise is added."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.columns import Closed, Part, Releases, merge
from hushstream.mechanisms.contract import Setting, Traits
from hushstream.mechanisms.factorization.prefix_noise import STEPS, Process
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build as histogram
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.pak.settings import PakParameters
from hushstream.mechanisms.pak.settings import build as pak
from hushstream.mechanisms.slots.slots import ROW, Slots
from hushstream.mechanisms.sums import HELD, LARGEST, hold
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.tops.settings import TopsParameters
from hushstream.mechanisms.tops.settings import build as tops
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ..oracles.slots import join

TOP = (1 << 31) - 1
FLOODS = st.sampled_from([0, 1, 3 << 31, (1 << 32) + 3, 1 << 32, 1 << 33, 1 << 45, 1 << 20])
SETTING = Setting(Fraction(1), Fraction(1, 10**6), 7, columns=(("x", 0, 1 << 29),))


def keyed() -> KeyedNoise:
    return KeyedNoise(b"l" * 32, charge=b"c" * 32, mechanism="m", config=b"", pipeline="p",
                      window="w", nonces=STEADY)  # fmt: skip


def part(slot: int, bucket: int, records: int, value: int) -> Part:
    """``records`` records of one value in a slot, or as many as ten parts hold."""
    parts = []
    while records or not parts:
        some = min(records, (1 << 62) // max(value, 1))
        sums = np.array([[some, some * value]], np.int64)
        key = join(np.array([slot]), np.array([bucket]))
        parts.append(Part(key, np.zeros(1, np.uint8), sums, np.zeros(0, np.int64)))
        records = min(records - some, 9 * some)
    return merge(parts)


@given(st.lists(FLOODS, min_size=1, max_size=5), st.sampled_from([1, 7, TOP - 1, TOP]))
def test_a_slot_holds_any_number_of_records(floods, theta) -> None:
    """Early and late records all count; one more record moves the sum by at most θ.

    2^32 + 3 records of the largest value once stopped a release permanently.
    """

    def released(counts: list[int]) -> int:
        slots = Slots((1, 7, TOP - 1, TOP), horizon=9, warmup=1)
        rows = RowTable(Traits(horizon=1, outputs=(), row_dtype=ROW, bound=1))
        for t, count in enumerate(counts, 2):
            arrived = part(8, 3, count, TOP)
            after, entries, _ = slots.close(Closed(rows.load(arrived, t), arrived, t))
            assert not len(entries.slot)
            rows.store(after)
        last = part(4, 3, 1, TOP)
        _, entries, _ = slots.close(Closed(rows.load(last, 9), last, 9))
        return int(slots.per_slot(entries, theta, 9)[0])

    once = released(floods)
    if max(floods) <= 1 << 33:  # else not all of them were sent
        assert once == min((sum(floods) + 1) * theta, LARGEST)
    more = released([floods[0] + 1, *floods[1:]])
    assert 0 <= more - once <= theta


def stream(mechanism: Any, floods: list[int], value: int) -> Iterator[Releases]:
    """Releases of a window with ``floods[t]`` records of one value in slot t."""
    rows = RowTable(mechanism.traits)
    bucket = len(mechanism.slots.thresholds) - 1
    for t in range(1, mechanism.traits.horizon + 1):
        arrived = part(t - 1, bucket, floods[t - 1], value)
        after, out = mechanism.release(Closed(rows.load(arrived, t), arrived, t), keyed())
        rows.store(after)
        yield out


MANY = st.lists(st.sampled_from([0, 1, 1 << 20, 1 << 32, 1 << 33, 3 << 33, 1 << 34]),
                min_size=6, max_size=6)  # fmt: skip


@settings(max_examples=20)
@given(MANY, st.sampled_from(["tree", "matrix", "hierarchy"]))
def test_prefix_sums_are_those_of_unbounded_integers(floods, counter) -> None:
    mechanism = pak(PakParameters(threshold="top", counter=counter, publish_warmup=False), SETTING)
    step, top = mechanism.counter.steps, 1 << 29
    quiet = [one.value[0, 1] for one in stream(mechanism, [0] * 7, top) if len(one.key)]
    found = [one.value[0, 1] for one in stream(mechanism, [0, *floods], top) if len(one.key)]
    exact = accumulate(n * top * step for n in floods)
    assert found == [hold(int(z) + x) for z, x in zip(quiet, exact, strict=True)]


@settings(max_examples=20)
@given(MANY, st.sampled_from(["recent", "mean"]), st.booleans())
def test_what_lies_beyond_63_bits_is_all_alike(floods, smoother, publish) -> None:
    """Cut and exact sums release the same, so nothing shows how far a slot is beyond the limit."""
    made = tops(TopsParameters(smoother=smoother, publish_warmup=publish, skip=0), SETTING)
    floods = [1 << 34, *floods]

    def rows(counts: list[int]) -> list[Any]:
        return [one.value.tolist() for one in stream(made, counts, 1 << 29)]

    found = rows(floods)
    assert found == rows([n if n <= 1 << 33 else 4 * n for n in floods])
    for t, count in enumerate(floods):
        if count > 1 << 33 and t:
            assert found[t][0][0] == HELD and found[t][0][1] > 1 << 61


@settings(max_examples=60)
@given(
    st.sampled_from([0, 1 << 54, 1 << 61, HELD, LARGEST, -LARGEST, -HELD, 12345]),
    st.integers(-5, 5), st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 30), 1 << 30),
    st.booleans(), st.booleans(), st.sampled_from(["threshold", "rounds"]),
)  # fmt: skip
@example(LARGEST, -1, -(1 << 39), -(1 << 29), True, False, "threshold")
@example(-LARGEST, 1, 1 << 39, 1 << 29, True, True, "threshold")
@example(-HELD, -1, 1 << 39, 1 << 29, True, False, "threshold")
def test_a_released_sum_is_a_function_of_sum_and_noise_together(
    near, off, noise, moved, debias, count, selection
) -> None:
    """A unit's addition and noise of the same size look the same, wherever the sum is."""
    given = {"debias": debias, "adaptive_weight": 0.0} if selection == "threshold" else {}
    setting = Setting(Fraction(3), Fraction(1, 10**6), 3, columns=(("x", -5, 1 << 30),),
                      grids=(Fraction(1),), count=count or selection == "rounds")  # fmt: skip
    mechanism = histogram(HistogramParameters(selection=selection, **given), setting)

    def release(exact: int, steps: int) -> Any:
        exact = (exact + (1 << 63)) % (1 << 64) - (1 << 63)
        column = mechanism.quantities[-1].lanes[0].purpose

        def at(self: Process, *given: Any) -> Any:
            return np.full(len(given[1]), steps if self.purpose == column else 7, np.int64)

        key = Keys.of([b"k"])
        lanes = [0, 1] if selection == "rounds" else [0]
        sums = np.array([[1 << 12, 0], [1 << 12, 0]][: len(lanes)], np.int64)
        arrived = Part(Keys.of([b"k"] * len(lanes)), np.array(lanes, np.uint8), sums,
                       np.zeros(mechanism.traits.totals, np.int64))  # fmt: skip
        rows = mechanism.traits.rows(key)
        held = rows.state["total" if selection == "rounds" else "sums"]
        held[..., 1] = exact
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Process, "at", at)
            _, out = mechanism.release(Closed(rows, arrived, 1), keyed())
        assert len(out.key) == 1
        return out.value.tolist(), out.variance.tolist()

    exact = near + off
    once = release(exact, noise)
    assert release(exact - moved, noise + moved * STEPS) == once
    assert max(abs(one) for one in once[0][0]) <= HELD
