"""A run over a workload releases the same as a run over its trace, for every kind of workload."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.planning.play import Run, Workload, numbered, play
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.stated_shape import Shape

ENDS = (90, 90, 250, 300)
SETTING = Setting(
    Fraction(8), Fraction(1, 1000), 4, columns=(("x", -3, 9),), grids=(Fraction(1, 2),)
)


def keyed(name: str) -> KeyedNoise:
    return KeyedNoise(
        b"s" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="p",
        window=name,
        nonces=STEADY,
    )


def drawn(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    n = ENDS[-1]
    sign = np.where(rng.random(n) < 0.1, -1, 1).astype(np.int8)
    return Workload(
        rng.integers(0, 60, n).astype(np.int32), rng.integers(0, 12, n).astype(np.int32), 60, 12,
        rng.integers(-3, 10, (n, 1)), sign, ENDS,
    )  # fmt: skip


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("delay", [0, 1])
def test_it_releases_what_the_runner_of_the_contract_does(listed: bool, delay: int) -> None:
    work = drawn(1)
    setting = replace(SETTING, keys=tuple(numbered(np.arange(12)))) if listed else SETTING
    mechanism = build(HistogramParameters(delay=delay, budget=20), setting)
    mine = Run(mechanism, work, keyed("w"), delay)
    assert work.sign is not None and work.value is not None
    trigger = 1 + np.searchsorted(np.array(ENDS), np.arange(len(work.unit)), side="right")
    trace = Trace(
        trigger, work.unit.astype(np.int64), numbered(np.arange(12)), work.key.astype(np.intp),
        work.value, work.sign,
    )  # fmt: skip
    theirs = run(Memory(mechanism, keyed("w"), delay=delay), trace)  # type: ignore[arg-type]
    released = 0
    for part, other in zip(work.micro_batches(4), theirs, strict=True):
        out = mine.step(part)
        seen = dict(zip(out.key.tolist(), out.value.tolist(), strict=True))
        expected = dict(zip(other.key.tolist(), other.value.tolist(), strict=True))
        # A listed key without data has no row in the other runner yet.
        assert {k: v for k, v in seen.items() if k in expected} == expected
        assert listed or seen.keys() == expected.keys()
        released += len(expected)
    assert released > 6


def test_windows_of_an_epoch_share_what_a_unit_has_left() -> None:
    work = drawn(5)._replace(value=None, sign=None)
    setting = replace(SETTING, columns=(), grids=(), windows=2)
    mechanism = build(HistogramParameters(bound="records", budget=3, delay=0), setting)
    first = Run(mechanism, work, zero)
    play(first)
    second = Run(mechanism, work._replace(window=1), zero, units=first.units)
    play(second)
    each = np.bincount(work.unit, minlength=60)
    assert first.accepted == np.minimum(each, 3).sum()
    assert first.accepted + second.accepted == np.minimum(2 * each, 3).sum()


def test_errors_vanish_without_noise_and_bound() -> None:
    work = drawn(2)
    loose = HistogramParameters(bound="records", budget=1000)
    setting = replace(SETTING, keys=tuple(numbered(np.arange(12))))
    errors = play(Run(build(loose, setting), work, zero))
    assert errors.last.tolist() == errors.mean.tolist() == [0.0, 0.0]
    assert errors.released == 12
    assert work.sign is not None and work.value is not None
    weight = work.sign.astype(np.int64)
    truth = [np.bincount(work.key, weight * x) for x in (1, work.value[:, 0])]
    assert errors.size.tolist() == [float(np.abs(one).sum()) for one in truth]


def test_a_key_that_is_not_public_counts_as_nothing() -> None:
    work = drawn(3)._replace(sign=None)
    shy = build(HistogramParameters(bound="records", budget=9), replace(SETTING, delta=Fraction(
        1, 10**9), epsilon=Fraction(1, 100)))  # fmt: skip
    errors = play(Run(shy, work, zero))
    assert errors.released == 0 and errors.last.tolist() == errors.size.tolist()
    at_ends = [np.abs(work.exact(shy, slice(0, end))).sum(axis=0) for end in ENDS]
    assert errors.mean.tolist() == np.mean(at_ends, axis=0).tolist()


def test_keys_alone_are_exact_where_public() -> None:
    work = drawn(4)._replace(value=None, sign=None)
    setting = replace(SETTING, columns=(), grids=())
    mechanism = build(HistogramParameters(aggregate="keys", budget=4), setting)
    errors = play(Run(mechanism, work, zero))
    assert errors.last.shape == (1,) and 0 < errors.released <= 12
    assert errors.last[0] == 0 or errors.released < 12


def test_values_that_are_missing_are_no_zeros() -> None:
    mechanism = build(HistogramParameters(), SETTING)
    with pytest.raises(ContractError, match="values"):
        drawn(5)._replace(value=None).exact(mechanism, slice(0, 9))


@pytest.mark.parametrize("repeat", [0.0, 0.9])
def test_a_stated_shape_is_what_it_says(repeat: float) -> None:
    shape = Shape(users=2000, records=11_800, keys=300, zipf=1.2, repeat=repeat)
    work = shape.workload()
    each = np.bincount(work.unit, minlength=2000)
    assert len(work.unit) == 11_800 and each.min() >= 1 and (work.users, work.keys) == (2000, 300)
    assert 25 < np.percentile(each, 99) < 40  # a heavy tail, like the published one (32)
    counts = work.truth()
    weight = np.arange(1.0, 301) ** -1.2
    assert counts[0] == pytest.approx(11_800 * weight[0] / weight.sum(), rel=0.05 + 0.1 * repeat)
    pairs = len(np.unique(work.unit.astype(np.int64) * 300 + work.key))
    assert (pairs < 4000) == (repeat > 0.5)
    assert all((a == b).all() for a, b in zip(work[:2], shape.workload()[:2], strict=True))
    assert abs(work.unit[:5900].mean() - 1000) < 40  # shuffled


def test_one_record_each() -> None:
    work = Shape(users=500, records=500, keys=7).workload()
    assert sorted(work.unit.tolist()) == list(range(500))
