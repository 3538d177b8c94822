"""Quantiles as a mechanism: noise by node, exact answers, what is reported and stored.

Covers: mechanisms/quantile/truth.py, mechanisms/quantile/report.py, mechanisms/quantile/entry.py
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import Batch, Closed, Part, Releases, Rows
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.quantile.mechanism import Quantiles, named, numbered
from hushstream.mechanisms.quantile.settings import QuantileParameters, build
from hushstream.mechanisms.truth import WindowRecords

T = 3
SETTING = Setting(Fraction(2), Fraction(1, 10**6), T)
KEYS = Keys.of([b'["a"]', b'["b"]'])
MADE = build(QuantileParameters(0, 140, (0.5, 0.9), 16), SETTING)


def noise(name: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"n" * 32, charge=bytes(32), mechanism="quantile", config=b"", pipeline="p",
        window=name, nonces=STEADY, test=True,
    )  # fmt: skip


def part(counts: dict[tuple[int, int], int]) -> Part:
    """Records by key and band."""
    rows = sorted(counts)
    sums = np.array([[counts[row], 0] for row in rows], np.int64)
    lane = np.array([band for _, band in rows], np.uint8)
    return Part(KEYS.take(np.array([key for key, _ in rows])), lane, sums, np.zeros(0, np.int64))


def released(counts: dict[tuple[int, int], int], t: int = 1) -> tuple[Rows, Releases]:
    return MADE.release(Closed(MADE.traits.rows(KEYS), part(counts), t), noise())


def test_names_of_nodes_are_distinct() -> None:
    names = numbered(Keys.of([b"a", b"a\0", b"", b"a\0\1"]), 256).tolist()
    assert len(set(names)) == 4 * 256 and names[256 + 3] == b"a\0\0\3"
    assert len(numbered(Keys.of([]), 4)) == 0


def test_quantiles_have_names() -> None:
    assert [named(Fraction(str(q))) for q in (0.5, 0.05, 0.999)] == ["p50", "p5", "p99_9"]
    assert [one.name for one in MADE.traits.outputs] == ["p50", "p90", "count", "below", "above"]


def test_every_node_of_every_level_and_key_has_noise_of_its_own() -> None:
    """Noise of different nodes is uncorrelated, and has the declared variance at each level."""
    made = build(QuantileParameters(0, 1, bands=64), SETTING)
    many = Keys.of(map(b"%d".__mod__, range(400)))
    nodes = made._nodes(np.zeros((400, 64), np.int64), many, 2, noise())
    flat = np.concatenate([level / level.std() for level in nodes], axis=1)
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert [level.shape[1] for level in nodes] == [64, 16, 4, 1]
    assert np.abs(correlation).max() < 0.28  # 5.6 deviations, with 400 independent pairs
    for level, variance in zip(nodes, made.tree(2).variances, strict=True):
        assert level.var() == pytest.approx(variance, rel=5 * (2 / level.size) ** 0.5)
        assert abs(level.mean()) < 5 * (variance / level.size) ** 0.5


def test_released_counts_are_as_noisy_as_they_say() -> None:
    """Over 2,000 keys mean and variance are within five deviations of the stated ones."""
    many = Keys.of([b"%d" % i for i in range(2000)])
    counts = np.tile(np.arange(16), (2000, 1)) * 100
    value, variance = MADE._values(counts, many, T, noise())
    exact = [counts[0].sum(), 0, 1500]
    for column, true in enumerate(exact, 2):
        off, stated = value[:, column] - true, variance[0, column]
        assert abs(off.mean()) < 5 * (stated / 2000) ** 0.5
        assert off.var() == pytest.approx(stated, rel=5 * (2 / 2000) ** 0.5)
    assert (MADE.error(T)[2:] ** 2).tolist() == pytest.approx(variance[0, 2:5].tolist())


def test_without_noise_quantiles_and_counts_are_exact() -> None:
    counts = 10**6 * np.array([[3, *[0] * 4, 10, 0, 0, 10, *[0] * 6, 2]])  # far above the noise
    value, _ = MADE._values(counts, KEYS[:1], 1, zero)
    median, ninth, count, below, above = value[0, :5].tolist()
    assert (count, below, above) == (25 * 10**6, 3 * 10**6, 2 * 10**6)
    assert 400 <= median <= 500 and 700 <= ninth <= 800  # steps of 0.1
    assert value.shape == (1, 9)  # both ends of each quantile


def test_a_hidden_key_tells_nothing() -> None:
    rows, out = released({(0, 3): 1, (1, 3): 10_000})
    assert out.key.tolist() == [KEYS[1]] and len(rows.key) == 2


def test_a_key_without_records_never_appears() -> None:
    """Nor does a key with as many deletions as records, or more, whatever the noise."""
    low = replace(MADE, threshold=(-(10**12),) * T)
    for count, appears in ((1, True), (0, False), (-1, False), (-50, False)):
        closed = Closed(low.traits.rows(KEYS[:1]), part({(0, 3): count}), 1)
        assert (len(low.release(closed, noise())[1].key) > 0) == appears


def test_keys_are_chosen_by_the_count_that_is_released() -> None:
    """Of 300 keys at the threshold those appear that the root's noise lifts over it."""
    many = Keys.of(map(b"%03d".__mod__, range(300)))
    steps = MADE.processes[-1].at(noise(), many, 1, np.zeros(300, np.int64))
    count = MADE.threshold[0] // 256
    sums = np.array([[count, 0]] * 300, np.int64)
    arrived = Part(many, np.full(300, 3, np.uint8), sums, np.zeros(0, np.int64))
    _, out = MADE.release(Closed(MADE.traits.rows(many), arrived, 1), noise())
    lifted = many[np.flatnonzero(count * 256 + steps >= MADE.threshold[0])]
    assert out.key.tolist() == lifted.tolist() and 50 < len(lifted) < 250


def test_state_of_a_key_takes_two_kilobytes() -> None:
    assert build(QuantileParameters(0, 1), SETTING).traits.row_dtype.itemsize <= 2100


def test_a_trigger_beyond_the_horizon_is_refused() -> None:
    with pytest.raises(ContractError):
        released({(0, 1): 1}, T + 1)


def test_what_is_no_number_is_dropped() -> None:
    found = MADE.encode({"value": np.array([np.nan, 10.0, -np.inf, np.inf])})
    assert found.keep.tolist() == [False, True, True, True]
    assert MADE.bands.place(found.value[1:, 0]).tolist() == [2, 0, 15]


def batch(records: list[tuple[int, int, int]], made: Quantiles = MADE) -> Batch:
    """Records of one unit: key, value in steps, sign."""
    key, value, sign = (np.array(column) for column in zip(*records, strict=True))
    status, unit = np.zeros(2, np.int32), np.zeros(len(key), np.intp)
    return Batch(KEYS, key.astype(np.intp), unit, value[:, None], sign.astype(np.int8), status)


@pytest.mark.thorough
def test_no_stream_of_three_records_costs_more_than_is_declared() -> None:
    """All streams of one unit over two triggers, two keys, three values and both signs."""
    made = build(QuantileParameters(0, 140, (0.5,), 16, budget=5), SETTING)
    C = made.counter.factor.C.astype(float)
    kinds = list(itertools.product((0, 1), (0, 1), (-5, 205, 215), (1, -1)))
    most = 0.0
    for stream in itertools.product(kinds, repeat=3):
        units, moved = made.traits.units(1), Counter[tuple[int, int, int, int]]()
        for t in (0, 1):
            mine = [(key, value, sign) for when, key, value, sign in stream if when == t]
            if mine:
                units, sums = made.absorb(units, batch(mine, made))
                for key, lane, one in zip(sums.key, sums.lane, sums.sums, strict=True):
                    for level in range(len(made.processes)):
                        moved[KEYS.tolist().index(key), level, lane // 4**level, t] += int(one[0])
        most = max(most, loss(made, C, moved))
    assert 0.8 * float(made.cost().mu2) < most <= float(made.cost().mu2)


def loss(made: Quantiles, C: np.ndarray, moved: Counter[tuple[int, int, int, int]]) -> float:
    """Σ over nodes of ‖C d‖²/σ²."""
    total = 0.0
    for key, level, node in {place[:3] for place in moved}:
        d = np.array([moved[key, level, node, t] for t in range(T)], float)
        variance = float(made.processes[level].variance)
        total += float(((C @ d) ** 2).sum()) / variance
    return total


def test_exact_answers_follow_from_the_records() -> None:
    steps = np.array([100, 200, 300, -1, 1401, 500], np.int64)
    key, sign = np.array([0, 0, 0, 0, 0, 1], np.intp), np.array([1, 1, 1, 1, 1, -1], np.int8)
    seen = WindowRecords(KEYS, key, steps[:, None], sign, np.zeros(len(key), np.int64))
    truth = MADE.truth(seen, [])
    a, b = KEYS.tolist()
    assert truth.held == {a: 5, b: -1} and truth.every
    assert (truth.values["p50"][a], truth.values["p90"][a]) == (20.0, 140.0)
    assert (truth.values["below"][a], truth.values["above"][a]) == (1, 1)
    assert np.isnan(truth.values["p50"][b])


def test_the_plan_says_ranks_and_thresholds() -> None:
    body = MADE.plan()["quantile"]
    assert body["at"] == [0.5, 0.9] and body["widest"] == 10 and len(body["rank_stddev"]) == T
    assert body["threshold"][-1] == float(MADE.key_threshold(T) or 0)
    said = dict(MADE.plan_rows("user"))
    assert said["bands"].startswith("14 from 0 to 140") and "chance that a key appears" in said
    listed = build(QuantileParameters(0, 1), replace(SETTING, keys=(b"a",)))
    assert listed.key_threshold(1) is None
    assert "threshold of a key" not in dict(listed.plan_rows("u"))
