"""ToPS as a whole: noise scales, empty slots, clipping audits, costs, configuration.

Covers: mechanisms/slots/settings.py, mechanisms/tops/blocks.py, mechanisms/tops/settings.py
Covers: mechanisms/slots/steps.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.contract import Cost, Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, InfiniteTree
from hushstream.mechanisms.parts.trees.smoothing import KINDS, Smoother
from hushstream.mechanisms.slots.slots import Entries
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.tops.blocks import BlockMemory as Past
from hushstream.mechanisms.tops.blocks import Blocks, First, pack, unpack
from hushstream.mechanisms.tops.mechanism import Tops
from hushstream.mechanisms.tops.settings import TopsParameters, build
from hypothesis import given, settings
from hypothesis import strategies as st

SETTING = Setting(Fraction(1), Fraction(1, 10**9), 20, columns=(("x", 0, 50),))
SMALL = TopsParameters(warmup=4, fanout=2, height=3, skip=1)


def keyed(window: str) -> KeyedNoise:
    return KeyedNoise(
        b"v" * 32,
        charge=b"c" * 32,
        mechanism="tops",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


def stream(mechanism: Tops, time: list[int], value: list[float]) -> Trace:
    """One record per unit, each arriving with the trigger that closes its slot."""
    n = len(time)
    coded = mechanism.encode({"time": np.array(time), "value": np.array(value)})
    trigger = mechanism.slots.closing(np.array(time))
    return Trace(
        trigger, np.arange(n), coded.keys, coded.key, coded.value, np.ones(n, np.int8)
    )  # fmt: skip


def released(mechanism: Tops, trace: Trace, noise: object) -> tuple[np.ndarray, np.ndarray, int]:
    out = list(run(Memory(mechanism, noise), trace))  # type: ignore[arg-type]
    theta = int(out[mechanism.slots.warmup - 1].public["threshold"][0])
    return (
        np.concatenate([r.value for r in out]), np.concatenate([r.variance for r in out]), theta
    )  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.sampled_from(KINDS),
    st.integers(1, 4),
    st.integers(0, 10**6),
)
def test_blocks_do_not_depend_on_how_slots_are_handed_over(
    sums: list[int], kind: str, piece: int, run_number: int
) -> None:
    """Any cut gives the same outputs; outputs of a block sum to its total."""
    blocks = Blocks(Chunks(2, 2, Fraction(1)), 2, 128, Smoother(kind, 3), First(960))
    noise, values = keyed(str(run_number)), np.array(sums)
    memory, whole = blocks.run(noise, 30, Past(), 0, values)
    parts, past = [], Past()
    for begin in range(0, len(sums), piece):
        past, part = blocks.run(noise, 30, past, begin, values[begin : begin + piece])
        past = unpack(np.array(pack(past, blocks.smoother.memory)))
        parts.append(part)
    assert past == memory
    np.testing.assert_array_equal(np.concatenate([p.value for p in parts]), whole.value)
    np.testing.assert_allclose(np.concatenate([p.variance for p in parts]), whole.variance)
    np.testing.assert_array_equal(whole.value[:, 1], np.cumsum(whole.value[:, 0]))
    _, silent = blocks.run(zero, 30, Past(), 0, values)
    full = len(sums) // 2 * 2
    got = silent.value[:full, 0].reshape(-1, 2).sum(axis=1)
    assert got.tolist() == (values[:full].reshape(-1, 2).sum(axis=1) * 128).tolist()


def test_zero_noise_and_no_skip_gives_the_clipped_values() -> None:
    mechanism = build(replace(SMALL, skip=0), SETTING)
    values = [3, 50, 17, 4, *range(16)]
    out, variance, theta = released(mechanism, stream(mechanism, list(range(20)), values), zero)
    assert out[:, 0].tolist() == [min(x, theta) * mechanism.steps for x in values[4:]]
    assert (variance > 0).all()


def test_online_equals_the_consistent_noisy_tree() -> None:
    """Released values are the consistent estimates of the noisy tree, rounded to the grid."""
    from ...oracles.consistency import offline

    mechanism = build(replace(SMALL, skip=0), SETTING)
    trace = stream(mechanism, list(range(20)), [7.0] * 20)
    noise = keyed("consistent")
    out, _, theta = released(mechanism, trace, noise)
    assert isinstance(mechanism.tree, Chunks)
    for chunk in range(2):
        levels = mechanism.tree.draw(mechanism._timed(noise), theta, chunk * 8)
        truth = [min(7, theta) * 2**level for level in range(3)]
        noisy = [(z + x).tolist() for z, x in zip(levels, truth, strict=True)]
        exact = offline(noisy, 2)[0]
        mine = out[chunk * 8 : chunk * 8 + 8, 0]
        for got, expected in zip(mine.tolist(), exact, strict=True):
            assert abs(Fraction(got, mechanism.steps) - expected) <= Fraction(1, mechanism.steps)


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    "tree,width,smoother",
    [
        (Chunks(2, 2, Fraction(1)), 2, Smoother("recent")),
        (Chunks(2, 3, Fraction(1)), 1, Smoother("recent")),
        (Chunks(2, 2, Fraction(1)), 4, Smoother("moving", 2)),
        (Chunks(2, 3, Fraction(1)), 2, Smoother("mean")),
        (Chunks(2, 3, Fraction(1)), 2, Smoother("exponential", 3)),
        (InfiniteTree(2, Fraction(1)), 2, Smoother("recent")),
    ],
)
def test_stated_variances_are_the_measured_ones(
    tree: Chunks | InfiniteTree, width: int, smoother: Smoother
) -> None:
    """The test accepts σ and rejects ⅔σ and 1.5σ."""
    blocks, empty = Blocks(tree, width, 64 * width, smoother, First()), np.zeros(16, np.int64)
    silent = blocks.run(zero, 20, Past(), 0, empty)[1].value
    drawn = [blocks.run(keyed(str(i)), 20, Past(), 0, empty)[1] for i in range(400)]
    variance = drawn[0].variance
    use = variance > 0
    squares = np.mean([(one.value - silent) ** 2.0 for one in drawn], axis=0)
    ratio = float((squares[use] / variance[use]).mean())
    assert 0.82 < ratio < 1.22
    assert not 0.82 < ratio * 9 / 4 < 1.22 and not 0.82 < ratio * 4 / 9 < 1.22
    assert (squares[~use] == 0).all()


def fixed(mechanism: Tops, theta: int) -> Tops:
    """The mechanism with a penalty that leaves only one threshold."""
    penalty = tuple(0 if x == theta else 10**6 for x in mechanism.slots.thresholds)
    return replace(mechanism, penalty=penalty)


def test_releases_appear_without_any_data() -> None:
    mechanism = build(SMALL, SETTING)
    nobody = stream(mechanism, [0], [1.0]).where(np.zeros(0, np.intp))
    out = list(run(Memory(mechanism, keyed("empty")), nobody))
    assert [len(release.key) for release in out] == [0] * 4 + [1] * 16
    assert all(release.value.any() for release in out[6:])


def test_threshold_zero_still_emits() -> None:
    mechanism = build(SMALL, SETTING)
    slots = replace(mechanism.slots, thresholds=(0, *mechanism.slots.thresholds))
    penalty = (0, *([10**6] * len(mechanism.penalty)))
    mechanism = replace(mechanism, slots=slots, penalty=penalty)
    out, variance, theta = released(
        mechanism, stream(mechanism, list(range(20)), [9.0] * 20), keyed("zero")
    )
    assert theta == 0 and len(out) == 16 and not out.any() and not variance.any()
    assert (mechanism.error(3) > 0).all()


def test_one_record_moves_what_is_noised_by_at_most_theta() -> None:
    """Neighbours by one record, hostile values included; a version that clips only above leaks."""
    mechanism = fixed(build(replace(SMALL, skip=0), SETTING), 10)
    base = stream(mechanism, [5, 6, 9], [4.0, 30.0, 2.0])
    exact, _, theta = released(mechanism, base, zero)
    for value in (-1e6, -1.0, 0.0, 7.0, 1e9):
        more = stream(mechanism, [5, 6, 9, 12], [4.0, 30.0, 2.0, value])
        moved, _, _ = released(mechanism, more, zero)
        total = np.abs((moved - exact)[:, 0]).sum() / mechanism.steps
        assert total <= theta
        only_above = min(value, theta)
        assert (abs(only_above) > theta) == (value == -1e6)


def test_cost_counts_records_wherever_they_lie() -> None:
    setting = replace(SETTING, epsilon=Fraction(3))
    for parameters in (
        replace(SMALL, bound=4),
        replace(SMALL, bound=4, publish_warmup=True, threshold_share=0.25),
        replace(SMALL, bound=4, stream="infinite"),
    ):
        mechanism = build(parameters, setting)
        cost = mechanism.cost()
        assert cost.epsilon == 3 and cost.mu2 == 0 and 0 < cost.delta < Fraction(1, 2**80)
        warm = mechanism.threshold_epsilon
        warm += mechanism.warmup.chunks.epsilon if mechanism.warmup else mechanism.sum_epsilon
        assert 4 * warm == 3 and 4 * mechanism.tree.epsilon == 3
    assert Cost() != cost


def test_noise_of_the_warmup_sum_has_its_law() -> None:
    """DLap(10θ/ε) by Kolmogorov's distance, with a false alarm for at most 1 of 1,000 keys.

    Two thirds and one and a half times the scale are rejected.
    """
    mechanism, runs = fixed(build(SMALL, SETTING), 10), 1500
    assert mechanism.sum_epsilon == Fraction(1, 10)
    trace = stream(mechanism, [0, 1, 1, 3, 9], [4.0, 30.0, 7.0, 2.0, 11.0])
    nothing = Entries(*[np.zeros(0, np.int64)] * 4)
    drawn = [
        mechanism._warm_sum(nothing, 10, mechanism.sum_epsilon, keyed(f"sum {i}"))
        for i in range(runs)
    ]
    for i in range(3):  # releases use exactly these draws
        made = Memory(mechanism, keyed(f"sum {i}"))
        out = next(one for one in run(made, trace) if one.public)
        assert out.public["threshold"].tolist() == [10]
        assert out.public["warmup_sum"].tolist() == [4 + 10 + 7 + 2 + drawn[i]]
    assert laplace_gap(drawn, 100.0) < 1.95 / runs**0.5
    assert laplace_gap(drawn, 67.0) > 1.95 / runs**0.5 < laplace_gap(drawn, 150.0)


def laplace_gap(drawn: list[int], scale: float) -> float:
    """Largest distance of the drawn distribution function from that of DLap(scale)."""
    a, z = np.exp(-1 / scale), np.arange(min(drawn) - 1, max(drawn) + 2)
    law = np.where(z < 0, a ** -np.minimum(z, 0.0), 1 + a - a ** (np.maximum(z, 0) + 1.0)) / (1 + a)
    found = np.searchsorted(np.sort(drawn), z, side="right") / len(drawn)
    return float(np.abs(found - law).max())


@pytest.mark.parametrize("publish", [False, True])
def test_the_first_block_is_predicted_from_what_was_released(publish: bool) -> None:
    """w·S/m + (1-w)·a, floored to output steps, never below 0; from released numbers alone."""
    mechanism = build(replace(SMALL, publish_warmup=publish, expected=3), SETTING)
    trace = stream(mechanism, list(range(20)), [9.0] * 20)
    usual, shown = Fraction(3, 4), set()
    for i in range(12):
        out = list(run(Memory(mechanism, keyed(f"first {i}")), trace))
        theta = int(out[3].public["threshold"][0])
        if publish:
            assert "warmup_sum" not in out[3].public and mechanism.warmup is not None
            told = Fraction(int(out[3].value[-1, 1]), mechanism.steps)
            loud = mechanism.warmup.chunks.variance(1024, 0, 4 // mechanism.warmup.width)
            noise = loud / 1024**2
        else:
            told, noise = Fraction(int(out[3].public["warmup_sum"][0])), 2 * 10.0**2
        weight = float(usual**2) / (float(usual**2) + noise / 4**2)
        expected = weight * float(told) / 4 + (1 - weight) * float(usual) * theta
        assert out[4].value[0, 0] / mechanism.steps == pytest.approx(max(expected, 0), abs=0.02)
        shown.add(int(out[4].value[0, 0]))
    assert len(shown) > 6


@pytest.mark.parametrize("publish", [False, True])
def test_the_first_block_states_the_noise_of_its_prediction(publish: bool) -> None:
    """For slots and running totals; noise of a published warm-up is in prediction and total."""
    given = replace(SMALL, skip=2, warmup=8, publish_warmup=publish, expected=12)
    setting = replace(SETTING, epsilon=Fraction(40))
    mechanism = fixed(build(given, setting), 10)
    times = [slot for slot in range(20) for _ in range(12)]
    trace = stream(mechanism, times, [9.0] * len(times))

    def opened(noise: object) -> list[Releases]:
        return list(islice(run(Memory(mechanism, noise), trace), 8, 12))  # type: ignore[arg-type]

    exact = np.concatenate([one.value for one in opened(zero)])
    drawn = [opened(keyed(f"opens {i}")) for i in range(150)]
    stated = np.concatenate([one.variance for one in drawn[0]])
    values = [np.concatenate([one.value for one in every]) for every in drawn]
    found = np.mean([(one - exact) ** 2.0 for one in values], axis=0)
    assert (stated > 0).all() and mechanism.width == len(stated) == 4
    np.testing.assert_allclose(found / stated, 1, atol=0.4)
    narrow = replace(mechanism, expected=10**9)  # a weight of 1
    assert narrow._first(10).variance > mechanism._first(10).variance > 0


def test_a_state_without_a_prediction_is_refused() -> None:
    mechanism = build(SMALL, SETTING)
    made = Memory(mechanism, keyed("earlier"))
    for _ in range(4):
        out = made.trigger()
    assert "warmup_sum" in out.public
    with pytest.raises(ContractError, match="earlier version"):
        mechanism._each(np.zeros(mechanism._packed, np.int64))
    with pytest.raises(ParameterError, match="sum_epsilon"):
        replace(mechanism, sum_epsilon=None)


@pytest.mark.thorough
def test_a_watch_counts_what_the_threshold_cuts() -> None:
    """The count has its own share of ε; without noise it is exact at every later trigger."""
    mechanism = fixed(build(replace(SMALL, watch=0.2), SETTING), 10)
    assert mechanism.watch == Fraction(1, 5) and mechanism.tree.epsilon == Fraction(4, 5)
    assert mechanism.cost().epsilon == 1
    values = [9.0] * 12 + [40.0] * 8
    trace = stream(mechanism, list(range(20)), values)
    out = list(run(Memory(mechanism, zero), trace))
    assert [one.public.get("clipped", [None])[0] for one in out[4:]] == [0] * 8 + [1] * 8
    drawn = []
    for i in range(60):
        made = list(run(Memory(mechanism, keyed(f"watch {i}")), trace))
        drawn += [int(one.public["clipped"][0]) - (t >= 8) for t, one in enumerate(made[4:])]
    assert np.mean(np.square(drawn)) == pytest.approx(2 * 5**2, rel=0.25)
    assert len(set(drawn[:16])) > 3  # each trigger has a draw of its own
    plain = build(SMALL, SETTING)
    assert plain.watch is None and plain.tree.epsilon == 1
    for wrong in (1.0, 0.0004):  # the latter would round to nothing
        with pytest.raises(ParameterError, match=f"watch = {wrong}"):
            build(replace(SMALL, watch=wrong), SETTING)


def test_settings_that_clash_are_named() -> None:
    for parameters, setting, name in (
        (replace(SMALL, skip=3), SETTING, "skip"),
        (replace(SMALL, stream="river"), SETTING, "stream"),
        (replace(SMALL, smoother="none"), SETTING, "smoother"),
        (replace(SMALL, excess=-1.0), SETTING, "excess"),
        (replace(SMALL, publish_warmup=True, threshold_share=1.0), SETTING, "threshold_share"),
        (SMALL, replace(SETTING, delta=Fraction(0)), "delta"),
        (SMALL, replace(SETTING, columns=(("x", -5, 50),)), "columns"),
        (SMALL, replace(SETTING, columns=()), "columns"),
        (SMALL, replace(SETTING, keys=(b"a",)), "keys"),
        (replace(SMALL, warmup=20), SETTING, "horizon"),
    ):
        with pytest.raises(ParameterError, match=name):
            build(parameters, setting)


def test_lost_state_stops_the_stream() -> None:
    mechanism = build(SMALL, SETTING)
    made = Memory(mechanism, keyed("lost"))
    for _ in range(5):
        made.trigger()
    made.row_tables[0] = RowTable(mechanism.traits)
    with pytest.raises(ContractError, match="missing"):
        made.trigger()
    assert len(mechanism.traits.rows(Keys.of([])).key) == 0
