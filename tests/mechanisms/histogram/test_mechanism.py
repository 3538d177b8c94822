"""The histogram beyond its contract: feedback, noise of each lane, columns, debiasing, plan.

Covers: mechanisms/histogram/debias.py, mechanisms/histogram/quantities.py
Covers: mechanisms/histogram/report.py, mechanisms/histogram/rows.py
Covers: mechanisms/histogram/settings.py
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.columns import Batch, Closed, empty_part
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.debias import Raw, put_raw, take_raw
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.report import plan
from hushstream.mechanisms.histogram.rounds import Rounds, _newly_counted
from hushstream.mechanisms.histogram.rows import rows_of
from hushstream.mechanisms.histogram.settings import HistogramParameters, build
from hushstream.mechanisms.in_memory import Memory, Trace, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero

EPSILON, DELTA = Fraction(3), Fraction(1, 10**6)


def made(horizon: int = 6, columns: Any = (), keys: Any = None, count: bool = True,
         **parameters: Any) -> Histogram:  # fmt: skip
    setting = Setting(
        EPSILON, DELTA, horizon, columns=columns, grids=(Fraction(1),) * len(columns), keys=keys,
        count=count,
    )  # fmt: skip
    mechanism = build(HistogramParameters(**parameters), setting)
    assert isinstance(mechanism, Histogram)
    return mechanism


def keyed(window: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"h" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


def trace(rows: list[tuple[int, int, int]], keys: Keys, values: Any = None) -> Trace:
    """(trigger, unit, key) rows."""
    trigger, unit, key = (np.array(column) for column in zip(*rows, strict=True))
    value = np.zeros((len(rows), 0), np.int64) if values is None else np.array(values)
    sign = np.ones(len(rows), np.int8)
    return Trace(trigger.astype(np.intp), unit, keys, key.astype(np.intp), value, sign)


CODES = Keys.of_codes(np.arange(4000, dtype=np.uint64))


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_lanes_follow_what_was_released_d_triggers_ago(delay: int) -> None:
    mechanism = made(8, delay=delay, adaptive_weight=0.5)
    crowd = [(t, 100 * t + i, 0) for t in range(1, 9) for i in range(90)]
    memory = Memory(mechanism, zero, delay=delay)
    released = list(run(memory, trace(crowd, CODES[:1])))
    first = next(t for t, one in enumerate(released, 1) if len(one.key))
    assert all(one.key.tolist() == CODES[:1].tolist() for one in released[first - 1 :])
    assert [int(one.value[0, 0]) for one in released[first - 1 :]] == [
        90 * t for t in range(first, 9)
    ]
    kept = memory.row_tables[0].rows
    cell = kept.cell[kept.key.tolist().index(CODES[0])]
    assert cell["sums"][:, 0].tolist() == [90 * (first + delay), 90 * (8 - first - delay)]
    assert cell["first"] == first and released[-1].status.tolist() == [first]


@pytest.mark.parametrize(
    "factorization", ["terminal", "final", "blt", "normalized", "honaker", "tree"]
)
def test_noise_has_the_stated_variance_at_every_trigger(factorization: str) -> None:
    """Accepted at σ; two thirds or one and a half of it are rejected."""
    mechanism = made(6, keys=tuple(CODES.tolist()), factorization=factorization, budget=400)
    memory = Memory(mechanism, keyed(factorization))
    memory.row_tables[0].store(mechanism.init_rows(CODES))
    for t in range(1, 7):
        out = memory.trigger()
        assert out.key.tolist() == CODES.tolist()
        ratio = float((out.value[:, 0].astype(float) ** 2).mean() / out.variance[0, 0])
        assert 0.9 < ratio < 1.1  # 4.5 standard errors
        assert not 0.9 < ratio * (3 / 2) ** 2 < 1.1 and not 0.9 < ratio * (2 / 3) ** 2 < 1.1
        np.testing.assert_allclose(mechanism.error(t) ** 2, out.variance[0])


@pytest.mark.parametrize("t", [1, 4, 6])
def test_noise_passes_its_quantile_as_often_as_it_should(t: int) -> None:
    """Thresholds rest on it; within four standard errors, and not far below."""
    process = made(6, budget=100, factorization="toeplitz").selector
    keys = Keys.of_codes(np.arange(9000, dtype=np.uint64))
    noise = process.at(keyed(f"quantile {t}"), keys, t, np.zeros(9000, np.int64)) / 256
    passed = float((noise >= float(process.quantile(t, Fraction(1, 10)))).mean())
    assert passed == pytest.approx(0.1, abs=0.013)


def test_a_process_without_data_so_far_adds_no_noise_that_is_known() -> None:
    mechanism = made(6, adaptive_weight=0.5, budget=100)
    lane = mechanism.quantities[0].lanes[1]
    since = np.repeat([0, 2, 5], 3000)
    keys = Keys.of_codes(np.arange(9000, dtype=np.uint64))
    noise = lane.at(keyed(), keys, 6, since) / 256
    stated = lane.variance_at(6, since)
    assert stated[0] > stated[4000] > stated[7000] > 0
    for group in np.split(np.arange(9000), 3):
        assert 0.88 < float((noise[group] ** 2).mean() / stated[group[0]]) < 1.12


def test_prediction_is_the_noise_that_is_used_later() -> None:
    mechanism = made(6)
    process, keys = mechanism.quantities[0].lanes[0], CODES[:50]
    ahead = process.ahead(keyed(), keys, 2)
    since = np.zeros(50, np.int64)
    for t in range(2, 7):
        np.testing.assert_array_equal(ahead[:, t - 2], process.at(keyed(), keys, t, since))


class Loud:
    """Noise that carries every count over any threshold: only the gate hides anything then."""

    guarantee = "none"

    def gauss(self, purpose: str, key: Keys, index: Any, variance: Any, first: Any) -> Any:
        return np.full((len(key), len(index)), 1 << 40)

    laplace = bits = gauss


@pytest.mark.parametrize("gate", [1, 2, 5])
def test_no_noise_opens_the_gate(gate: int) -> None:
    mechanism = made(3, budget=12, adaptive_weight=0, factorization="tree", min_users=gate)
    memory = Memory(mechanism, Loud())
    rows = [(1, unit, 0) for unit in range(gate)] + [(1, unit, 1) for unit in range(gate - 1)]
    memory.absorb(trace(rows, CODES[:2]))
    lowered = trace([(1, 50, 2), (1, 50, 2)], CODES[:3])  # a key that was there and is gone
    memory.absorb(lowered._replace(sign=np.array([1, -1], np.int8)))
    assert memory.trigger().key.tolist() == CODES[:1].tolist()


def test_one_unit_is_one_unit_where_keys_need_several() -> None:
    mechanism = made(3, budget=40, adaptive_weight=0.5, min_users=3)
    batch = Batch(
        CODES[:1], np.zeros(9, np.intp), np.zeros(9, np.intp), np.zeros((9, 0), np.int64),
        np.ones(9, np.int8), np.zeros(1, np.int32),
    )  # fmt: skip
    units, part = mechanism.absorb(mechanism.init_units(1), batch)
    assert part.sums.tolist() == [[1]]
    _, part = mechanism.absorb(units, batch)
    assert part.sums.tolist() == []


def test_a_key_appears_later_without_any_new_data() -> None:
    """Empty-key prediction: some keys cross at triggers at which nothing arrives."""
    mechanism = made(6, budget=1)
    most = mechanism.threshold[0] // 256 - 3
    rows = [(1, 100 * k + i, k) for k in range(300) for i in range(min(most, 100))]
    released = list(run(Memory(mechanism, keyed()), trace(rows, CODES[:300])))
    counts = [len(one.key) for one in released]
    assert counts[0] > 0 and counts[-1] > counts[1] > counts[0]


def test_a_refused_record_leaves_no_key_behind() -> None:
    mechanism = made(6, budget=1)
    rows = [(1, 7, 0), (1, 7, 1), (1, 7, 1)]
    memory = Memory(mechanism, keyed())
    memory.absorb(trace(rows, CODES[:2]))
    memory.trigger()
    assert memory.row_tables[0].rows.key.tolist() == [CODES[0]]


def test_keys_outside_a_public_list_are_dropped_and_cost_nothing() -> None:
    mechanism = made(6, keys=(CODES[0],), budget=1)
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    memory.absorb(trace([(1, 7, 1), (1, 7, 0)], CODES[:2]))
    out = memory.trigger()
    assert out.key.tolist() == [CODES[0]] and out.value.tolist() == [[1]]


def test_a_deletion_costs_like_a_record_and_counts_minus_one() -> None:
    mechanism = made(6, keys=(CODES[0],), budget=4)
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    events = trace([(1, 1, 0), (1, 2, 0), (1, 2, 0)], CODES[:1])
    memory.absorb(events._replace(sign=np.array([1, 1, -1], np.int8)))
    assert memory.trigger().value.tolist() == [[1]]
    assert memory.unit_tables[0].units.left.tolist() == [3, 0]


def test_sums_are_clipped_centred_and_shifted_back() -> None:
    columns = (("fare", -20, 181), ("tip", 3, 3))
    mechanism = made(6, columns=columns, keys=(CODES[0],), budget=9)
    assert [column.middle for column in mechanism.summed] == [80, 3]
    assert [column.reach() for column in mechanism.summed] == [101, 1]
    memory = Memory(mechanism, zero)
    seed(memory, CODES[:1])
    memory.absorb(trace([(1, 1, 0), (1, 2, 0)], CODES[:1], [[-500, 9], [90, 0]]))
    out = memory.trigger()
    assert out.value.tolist() == [[2, 70, 6]]
    assert out.variance[0, 1] > 80**2 * out.variance[0, 0]
    assert [output.name for output in mechanism.outputs] == ["count", "sum:fare", "sum:tip"]


@pytest.mark.parametrize("selection", ["threshold", "rounds"])
def test_a_value_beyond_its_clip_range_moves_a_sum_no_further_than_its_end(selection: str) -> None:
    setting = Setting(EPSILON, DELTA, 4, columns=(("fare", 0, 100),), grids=(Fraction(1),))
    mechanism = build(HistogramParameters(selection=selection), setting)
    value = np.array([[10**6], [-(10**6)], [30]])
    batch = Batch(
        CODES[:3], np.arange(3), np.arange(3), value, np.ones(3, np.int8), np.zeros(3, np.int32)
    )
    _, part = mechanism.absorb(mechanism.init_units(3), batch)
    assert part.sums[:3, 1].tolist() == [50, -50, -20]


def test_a_unit_is_counted_once_per_round_whatever_steps_its_records_come_in() -> None:
    setting = Setting(EPSILON, DELTA, 4)
    mechanism = build(HistogramParameters(selection="rounds", budget=9), setting)
    units, counted = mechanism.init_units(1), []
    for status in (0, 0, 1, 1, 0):
        batch = Batch(
            CODES[:1], np.zeros(1, np.intp), np.zeros(1, np.intp), np.zeros((1, 0), np.int64),
            np.ones(1, np.int8), np.full(1, status, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        counted.append(int(part.sums[part.lane > 0, 0].sum()))
    assert counted == [1, 0, 1, 0, 0]


def test_sums_alone_spend_nothing_on_a_count() -> None:
    columns = (("fare", 0, 100),)
    alone = made(6, columns=columns, keys=(CODES[0],), count=False)
    assert len(alone.quantities) == 1 and alone.summed[0].middle == 0
    assert [output.name for output in alone.outputs] == ["sum:fare"]


@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"budget": 1}, {"bound": "records", "budget": 5}, {"debias": True},
        {"min_users": 4}, {"aggregate": "keys"}, {"factorization": "tree"},
        {"selection": "rounds"},
    ],
    ids=str,
)  # fmt: skip
def test_the_cost_fits_into_the_budget_and_wastes_little(parameters: dict[str, Any]) -> None:
    setting = Setting(EPSILON, DELTA, 31, columns=(("fare", 0, 9),), grids=(Fraction(1),))
    cost = build(HistogramParameters(**parameters), setting).cost()
    spent, _ = accounting.total([cost], DELTA)
    assert EPSILON * Fraction(999, 1000) < spent <= EPSILON


def test_the_papers_noise_is_what_its_theorem_asks_for() -> None:
    """σ² = C·H(T)/(2ρ): C = 1, T = 8 and ρ = ½ give 4, as each unit of μ² = 2ρ."""
    mechanism = build(
        HistogramParameters(selection="rounds", budget=1, factorization="tree"),
        Setting(EPSILON, DELTA, 8),
    )
    assert isinstance(mechanism, Rounds)
    factor = mechanism.selector.factor
    variance = mechanism.selector.variance / 4**factor.bits
    rho = mechanism.loss.mu2 / 2 / 2  # half of it selects
    assert float(variance * 2 * rho) == pytest.approx(4, rel=1e-9)


@pytest.mark.parametrize("signs", [[-1, 1], [1, -1, 1], [-1, -1, 1, 1]])
def test_rounds_with_deletions_do_not_depend_on_where_a_slice_ends(signs: list[int]) -> None:
    mechanism = build(HistogramParameters(selection="rounds"), Setting(EPSILON, DELTA, 4))

    def absorb(units: Any, some: list[int]) -> Any:
        rows = np.zeros(len(some), np.intp)
        value, sign = np.zeros((len(some), 0), np.int64), np.array(some, np.int8)
        return mechanism.absorb(
            units, Batch(Keys.of([b"k"]), rows, rows, value, sign, np.zeros(1, np.int32))
        )

    whole, part = absorb(mechanism.init_units(1), signs)
    units, sums = mechanism.init_units(1), np.zeros_like(part.sums)
    for sign in signs:
        units, one = absorb(units, [sign])
        sums += one.sums
    assert part.sums.tolist() == sums.tolist() == [[sum(signs)], [1]]
    assert units.used.tolist() == whole.used.tolist()


def test_rounds_count_a_pair_again_only_when_its_round_has_advanced() -> None:
    slot = np.array([0, 0, 1, 0, 1, 0], np.intp)
    status = np.array([0, 0, 2, 1, 1, 3], np.int64)
    last = np.array([0, 2], np.uint16)
    assert _newly_counted(slot, status, last).tolist() == [True, False, True, True, False, True]
    assert _newly_counted(slot[:0], status[:0], last).tolist() == []


def test_debiasing_finds_the_rate_at_which_records_are_cut_off() -> None:
    mechanism = made(4, debias=True, budget=1, adaptive_weight=0, debias_cap=4)
    rows = [(t, 100_000 * k + i, k) for k in range(2) for t in (1, 2, 3, 4) for i in range(9_000)]
    rows.sort()
    released = list(run(Memory(mechanism, keyed()), trace(rows, CODES[:2])))
    # Every unit sends four records of one key and may add one: a quarter is accepted.
    assert released[-1].value[:, 0] == pytest.approx([36_000, 36_000], rel=0.02)
    plain = made(4, budget=1, adaptive_weight=0)
    assert list(run(Memory(plain, zero), trace(rows, CODES[:2])))[-1].value.max() == 9_000


@pytest.mark.parametrize("step", [1, 3, 12])
def test_no_unit_moves_the_counters_of_debiasing_by_more_than_its_cap(step: int) -> None:
    """Their noise is for so many arrived records of a unit, whatever steps it sends them in."""
    mechanism = made(4, debias=True, debias_cap=5, budget=3, adaptive_weight=0)
    units, arrived = mechanism.init_units(2), np.zeros(2, np.int64)
    for _ in range(0, 12, step):
        sent = np.repeat([0, 1], [step, step])
        batch = Batch(
            CODES[:1], np.zeros(2 * step, np.intp), sent, np.zeros((2 * step, 0), np.int64),
            np.ones(2 * step, np.int8), np.zeros(1, np.int32),
        )  # fmt: skip
        units, part = mechanism.absorb(units, batch)
        arrived += part.totals[:2]
    assert arrived.tolist() == [10, 0]


def test_raw_counters_are_taken_apart_and_put_back() -> None:
    mechanism = made(4, debias=True)
    units = mechanism.init_units(3)
    batch = Batch(
        CODES[:2], np.array([0, 1, 1]), np.array([0, 0, 2]), np.zeros((3, 0), np.int64),
        np.ones(3, np.int8), np.zeros(2, np.int32),
    )  # fmt: skip
    units, _ = mechanism.absorb(units, batch)
    raw = take_raw(units)
    assert raw.counted.tolist() == [2, 0, 1] and len(raw.units.pair) == 3
    for one, other in zip(put_raw(raw), units, strict=True):
        np.testing.assert_array_equal(one, other)
    empty = take_raw(put_raw(Raw(raw.units, np.zeros(3, np.int64))))
    assert empty.counted.sum() == 0


def test_the_plan_is_public_plain_and_right() -> None:
    mechanism = made(31, budget=1)
    told = json.loads(json.dumps(plan(mechanism)))
    assert told["users_50"] == told["threshold"][-1] < told["users_95"]
    assert told["noise_stddev"][-1][0] == pytest.approx(mechanism.error(31)[0])
    least = round(told["users_50"])
    appeared = []
    for count in (least, round(told["users_95"])):
        rows = [(31, 1000 * k + i, k) for k in range(400) for i in range(count)]
        *_, last = run(Memory(mechanism, keyed()), trace(rows, CODES[:400]))
        appeared.append(len(last.key) / 400)
    assert 0.4 < appeared[0] < 0.62 and 0.91 < appeared[1] < 0.985


@pytest.mark.parametrize(
    "parameters", [{"selection": "rounds"}, {"aggregate": "keys"}, {"bound": "records"}], ids=str
)
def test_every_kind_has_a_plan(parameters: dict[str, Any]) -> None:
    mechanism = build(HistogramParameters(**parameters), Setting(EPSILON, DELTA, 5))
    told = json.loads(json.dumps(plan(mechanism)))
    assert len(told["threshold"]) == len(told["noise_stddev"]) == 5
    assert 1 <= told["users_50"] < told["users_95"] and told["bound"]["budget"] > 0


def test_a_public_list_has_a_plan_without_thresholds() -> None:
    assert "threshold" not in plan(made(keys=(b"a",)))


def test_released_noise_differs_between_columns_lanes_and_keys() -> None:
    mechanism = made(4, columns=(("fare", 0, 9),), adaptive_weight=0.3)
    draws = [
        process.at(keyed(), CODES[:100], 4, np.zeros(100, np.int64)) * scale
        for quantity in mechanism.quantities
        for process in quantity.lanes
        for scale in (1.0,)
    ]
    table = np.corrcoef(np.array(draws))
    assert np.abs(table - np.eye(len(draws))).max() < 0.4


def test_calls_out_of_order_are_refused() -> None:
    mechanism = made(4)
    closed = Closed(mechanism.init_rows(CODES[:0]), empty_part(0), 5)
    with pytest.raises(ContractError):
        mechanism.release(closed, zero)
    with pytest.raises(ContractError):
        rows_of(CODES[:2], CODES[:3])
    with pytest.raises(ContractError):
        mechanism.encode({})
    assert rows_of(Keys.of([b"b", b"a"]), Keys.of([b"a"])).tolist() == [1]


@pytest.mark.parametrize(
    "parameters,setting",
    [
        ({"bound": "none"}, {}),
        ({"budget": 0.5}, {}),
        ({"budget": -1}, {}),
        ({"bound": "records", "budget": 1.5}, {}),
        ({"bound": "records", "adaptive_weight": 0.5}, {}),
        ({"bound": "per-key", "budget": 4}, {}),
        ({"bound": "records", "budget": 4, "min_users": 2}, {}),
        ({"adaptive_weight": 1.5}, {}),
        ({"adaptive_weight": 0.1234567}, {}),
        ({"factorization": "dense"}, {}),
        ({"min_users": 0}, {}),
        ({"delay": -1}, {}),
        ({"debias": True}, {"keys": (b"a",)}),
        ({"min_users": 2}, {"keys": (b"a",)}),
        ({"aggregate": "keys"}, {"keys": (b"a",)}),
        ({"aggregate": "sum"}, {}),
        ({"selection": "rounds"}, {"keys": (b"a",)}),
        ({"selection": "rounds", "budget": 1.5}, {}),
        ({"selection": "rounds", "delay": 101}, {}),
        ({"threshold_delta_share": 1.0}, {}),
        ({}, {"count": False}),
        ({}, {"epsilon": Fraction(0)}),
        ({}, {"horizon": 0}),
        ({}, {"columns": (("v", 5, 1),), "grids": (Fraction(1),)}),
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(
    parameters: dict[str, Any], setting: dict[str, Any]
) -> None:
    base = Setting(EPSILON, DELTA, 6)
    with pytest.raises(ParameterError):
        build(HistogramParameters(**parameters), replace(base, **setting))


def test_a_changed_noise_changes_the_release_and_nothing_else_does() -> None:
    mechanism = made(4, budget=1)
    louder = replace(
        mechanism,
        quantities=tuple(
            one._replace(lanes=tuple(replace(p, purpose="other") for p in one.lanes))
            for one in mechanism.quantities
        ),
    )
    rows = [(1, i, 0) for i in range(500)]
    first, again, other = (
        next(iter(run(Memory(m, keyed()), trace(rows, CODES[:1]))))
        for m in (mechanism, mechanism, louder)
    )
    assert first.value.tolist() == again.value.tolist() != other.value.tolist()


def test_a_plan_of_rounds_says_what_their_noise_follows() -> None:
    mechanism = build(
        HistogramParameters(selection="rounds", budget=2, min_users=5), Setting(EPSILON, DELTA, 4)
    )
    rows = dict(mechanism.plan_rows("user"))
    body = mechanism.plan()["histogram"]
    assert "2 records of a user" in rows["contribution bound"]
    assert "new units (user)" in rows["rounds"]
    first, last = (float(mechanism.error(t)[0]) for t in (1, 4))
    assert f"±{first:.6g} at a key's first … ±{last:.6g} at its 4th" in rows["noise over releases"]
    assert f"{body['threshold'][-1]:.4g} after the last" in rows["threshold of new units"]
    assert rows["  and at least"] == "5 units"
    assert "1 trigger later" in rows["feedback"]
    assert f"50 % at {math.ceil(body['users_50'])}" in rows["chance that a key appears"]
