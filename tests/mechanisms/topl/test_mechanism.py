"""The aggregator: bounds, thresholds, estimates, and what it refuses.

Covers: mechanisms/topl/estimate.py, mechanisms/topl/settings.py, mechanisms/topl/units.py
Covers: mechanisms/topl/groups.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hushstream.client import Budget, Client, ReportStore, Survey, parse
from hushstream.client.survey import RANGE, VALUE
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import Batch, Releases
from hushstream.mechanisms.contract import UNIT, Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.topl.estimate import CHOSEN
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.mechanism import ToPL
from hushstream.mechanisms.topl.settings import ToPLParameters, build
from hypothesis import given, settings
from hypothesis import strategies as st

TOLD = Keys.of_codes(np.array([CHOSEN], np.uint64)).tolist()[0]
SURVEY = Survey(Fraction(1), Fraction(100), "s", reports=2, buckets=32, levels=16)


@cache
def somebody(survey: Survey, group: int) -> str:
    """A user whom the survey's hash puts into a group; anybody if there is no such group."""
    return next((u for u in map(str, range(5000)) if survey.group(u) == group), "nobody")


def columns(
    rows: Sequence[tuple[int, int, int, int]], survey: Survey = SURVEY
) -> dict[str, np.ndarray]:
    """Reports (slot, group, theta, code) as columns, each from a user of its group."""
    table = np.array(rows, np.int64).reshape(-1, 4).T
    users = np.array([somebody(survey, group) for group in table[1].tolist()], object)
    every = [*table, np.full(len(rows), survey.number), users]
    return dict(zip(ToPL.inputs, every, strict=True))


def batch_of(mechanism: ToPL, given_: dict[str, np.ndarray], unit: np.ndarray) -> Batch:
    coded = mechanism.encode(given_)
    rows = np.flatnonzero(coded.keep)
    status = np.zeros(len(coded.keys), np.int32)
    ones = np.ones(len(rows), np.int8)
    return Batch(coded.keys, coded.key[rows], unit[rows], coded.value[rows], ones, status)


def feed(
    mechanism: ToPL, given_: dict[str, np.ndarray], unit: np.ndarray, trigger: np.ndarray
) -> list[Releases]:
    coded = mechanism.encode(given_)
    rows = np.flatnonzero(coded.keep)
    trace = Trace(
        trigger[rows],
        unit[rows],
        coded.keys,
        coded.key[rows],
        coded.value[rows],
        np.ones(len(rows), np.int8),
    )
    return list(run(Memory(mechanism, ZeroNoise()), trace))


# Bounds


def test_a_retry_counts_once_and_excess_not_at_all() -> None:
    mechanism = ToPL(SURVEY)
    rows = [
        (7, RANGE, 0, 3),
        (7, RANGE, 0, 3),
        (7, RANGE, 0, 4),
        (8, RANGE, 0, 5),
        (9, RANGE, 0, 6),
    ]
    given_ = columns(rows)
    units, part = mechanism.absorb(
        mechanism.init_units(1), batch_of(mechanism, given_, np.zeros(5, np.intp))
    )
    assert part.key.codes().tolist() == [3, 5] and part.sums[:, 0].tolist() == [1, 1]
    assert units.left.tolist() == [0] and units.pair.tolist() == [7, 8]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=40),
    st.integers(1, 7),
)
def test_cutting_a_batch_anywhere_changes_nothing(
    events: list[tuple[int, int, int]], size: int
) -> None:
    mechanism = ToPL(SURVEY)
    given_ = columns([(slot, RANGE, 0, code) for _, slot, code in events])
    unit = np.array([one for one, _, _ in events], np.intp)
    whole, part = mechanism.absorb(mechanism.init_units(4), batch_of(mechanism, given_, unit))
    units, total = mechanism.init_units(4), np.zeros(64, np.int64)
    for begin in range(0, len(events), size):
        cut = {name: column[begin : begin + size] for name, column in given_.items()}
        units, one = mechanism.absorb(units, batch_of(mechanism, cut, unit[begin : begin + size]))
        np.add.at(total, one.key.codes().astype(np.intp), one.sums[:, 0])
    for left, right in zip(whole, units, strict=True):
        np.testing.assert_array_equal(left, right)
    expected = np.zeros(64, np.int64)
    np.add.at(expected, part.key.codes().astype(np.intp), part.sums[:, 0])
    np.testing.assert_array_equal(total, expected)
    seen: dict[int, set[int]] = {}
    for one_unit, slot, _ in events:
        mine = seen.setdefault(one_unit, set())
        if len(mine) < 2:
            mine.add(slot)
    assert total.sum() == sum(map(len, seen.values()))


# Hostile reports


@pytest.mark.parametrize(
    "row",
    [
        (-1, RANGE, 0, 0),
        (1 << 32, RANGE, 0, 0),
        (0, 0, 0, 0),
        (0, 3, 0, 0),
        (0, RANGE, 1, 0),
        (0, RANGE, 0, SURVEY.square_wave.outputs),
        (0, RANGE, 0, -1),
        (0, VALUE, 0, 0),
        (0, VALUE, 33, 0),
        (0, VALUE, 1, SURVEY.hybrid.outputs),
        (0, VALUE, 1 << 20, 0),
    ],
)
def test_impossible_reports_are_dropped(row: tuple[int, int, int, int]) -> None:
    coded = ToPL(SURVEY).encode(columns([row, (0, RANGE, 0, 0)]))
    assert coded.keep.tolist() == [False, True]
    assert coded.key.max() < len(coded.keys)


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_whole_are_dropped(bad: float) -> None:
    given_ = columns([(0, RANGE, 0, 0)])
    assert ToPL(SURVEY).encode(given_).keep.all()
    for name in ToPL.inputs[:5]:
        spoilt = {**given_, name: np.array([bad])}
        assert not ToPL(SURVEY).encode(spoilt).keep.any()


def test_text_is_refused() -> None:
    given_ = {name: np.array(["1"], object) for name in ToPL.inputs}
    with pytest.raises(ContractError, match="numeric"):
        ToPL(SURVEY).encode(given_)


def test_reports_of_another_survey_are_dropped() -> None:
    """Another epsilon or range, and the same output would mean something else."""
    rows = [(0, RANGE, 0, 0)]
    for name, value in {"epsilon": 2, "bound": 99, "salt": "t", "reports": 3, "period": 7}.items():
        other = replace(SURVEY, **{name: value})  # type: ignore[arg-type]
        assert not ToPL(SURVEY).encode(columns(rows, other)).keep.any()
        assert ToPL(other).encode(columns(rows, other)).keep.all()


@settings(max_examples=40, deadline=None)
@given(slot=st.integers(0, (1 << 32) - 1), theta=st.integers(1, 4096), code=st.integers(0, 20_000))
def test_every_possible_report_has_a_key_of_its_own(slot: int, theta: int, code: int) -> None:
    survey = Survey(Fraction(1, 1000), Fraction(1), "s", buckets=4096, levels=4096)
    mechanism = ToPL(survey)
    assert survey.hybrid.outputs < 1 << 18 and survey.square_wave.outputs < 1 << 18
    code %= survey.hybrid.outputs
    rows = [(slot, VALUE, theta, code), (slot, RANGE, 0, code % survey.square_wave.outputs)]
    coded = mechanism.encode(columns(rows, survey))
    assert coded.keep.all() and len(coded.keys) == 2
    packed = coded.keys.codes()[coded.key].tolist()
    assert packed[0] == slot << 32 | 1 << 31 | theta << 18 | code


# Releases


@cache
def crowd(survey: Survey, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) users and their groups."""
    users = np.array([f"user {i}" for i in range(n)], object)
    return users, np.array([survey.group(user) for user in users], np.int64)


def survey_run(
    survey: Survey,
    value: np.ndarray,
    seed: int = 0,
    warmup: int = 2,
    horizon: int = 6,
    told: int | None = None,
) -> tuple[ToPL, list[Releases]]:
    """Range reports up to the warm-up, then everybody with the released threshold, or ``told``."""
    n = len(value)
    generator = np.random.default_rng(seed)
    mechanism = ToPL(survey, Fraction(1, 1000), horizon, warmup, expected=n // horizon)
    memory = Memory(mechanism, ZeroNoise())
    users, group = crowd(survey, n)
    trigger = np.where(
        group == RANGE,
        generator.integers(1, horizon + 1, n),
        generator.integers(warmup + 1, horizon + 1, n),
    )
    out, theta = [], survey.buckets
    for t in range(1, horizon + 1):
        now = np.flatnonzero(trigger == t)
        words = generator.integers(0, 1 << 64, (len(now), 3), dtype=np.uint64)
        code = simulate(survey, value[now], group[now], theta, words)
        step = np.where(group[now] == RANGE, 0, theta)
        slot, own = np.zeros(len(now)), np.full(len(now), survey.number)
        each = [slot, group[now], step, code, own, users[now]]
        coded = mechanism.encode(dict(zip(ToPL.inputs, each, strict=True)))
        batch = Trace(
            np.full(len(now), t),
            now,
            coded.keys,
            coded.key,
            coded.value,
            np.ones(len(now), np.int8),
        )
        memory.absorb(batch)
        out.append(memory.trigger())
        if told and t == warmup:  # as if the range group had said so
            kept = memory.row_tables[0].rows
            kept.cell["count"][kept.key.tolist().index(TOLD)] = told
            memory.row_tables[0].store(kept)
        theta = int(out[-1].public.get("theta", [theta])[0]) if t != warmup or not told else told
    return mechanism, out


def test_mean_sum_and_threshold_of_a_skewed_stream() -> None:
    value = np.minimum(np.random.default_rng(1).exponential(40, 60_000), 3000)
    survey = Survey(Fraction(1), Fraction(3000), "s")
    mechanism, releases = survey_run(survey, value)
    theta = int(releases[-1].public["theta"][0])
    assert (
        all(r.public["theta"][0] == theta for r in releases[1:])
        and "theta" not in releases[0].public
    )
    assert float(survey.threshold(theta)) < 1500
    mean = releases[-1].value[0, 0] / 1000
    clipped = np.minimum(value, float(survey.threshold(theta))).mean()
    assert mean == pytest.approx(clipped, abs=5 * releases[-1].variance[0, 0] ** 0.5 / 1000)
    assert mean == pytest.approx(value.mean(), rel=0.2)
    # the forecast is for the whole range, hence far above
    assert releases[-1].variance[0, 0] ** 0.5 < mechanism.error(6)[0] / 2
    assert {"distribution"} <= releases[1].public.keys() & releases[5].public.keys()
    assert "distribution" not in releases[2].public
    assert abs(int(releases[5].public["distribution"].sum()) - 1_000_000) <= survey.buckets


@pytest.mark.thorough
def test_the_forecast_error_is_reached_by_the_worst_case() -> None:
    """Everybody in the middle of the whole range, where the two-point channel is noisiest."""
    survey = Survey(Fraction(1, 2), Fraction(100), "s", buckets=32, levels=32)
    misses = []
    for seed in range(150):
        mechanism, releases = survey_run(
            survey, np.full(3000, 50.0), seed, warmup=1, horizon=2, told=32
        )
        assert releases[1].public["theta"][0] == 32
        misses.append(releases[-1].value[0, 0] / 1000 - 50)
    # all value reports come after the warm-up, in one trigger
    forecast = replace(mechanism, expected=3000).error(2)[0] / 1000
    # a standard deviation of 150 draws is within 18 % (three sigma); group sizes vary a little
    assert 0.8 * forecast < np.std(misses) < 1.2 * forecast


@pytest.mark.thorough
def test_variance_covers_the_error_of_mean_and_sum() -> None:
    survey = Survey(Fraction(1), Fraction(100), "s", buckets=64, levels=64)
    value = np.random.default_rng(2).gamma(3, 4, 4000)
    scores = []
    for seed in range(80):
        _, releases = survey_run(survey, value, seed, warmup=1, horizon=2)
        last = releases[-1]
        theta = float(survey.threshold(int(last.public["theta"][0])))
        truth = np.minimum(value, theta).mean()
        scores.append((last.value[0, 0] / 1000 - truth) / (last.variance[0, 0] ** 0.5 / 1000))
    assert 0.6 < np.std(scores) < 1.2
    assert abs(np.mean(scores)) < 0.5


def test_threshold_and_distribution_come_from_the_range_group_alone() -> None:
    mechanism = ToPL(SURVEY, horizon=2, warmup=1)
    generator = np.random.default_rng(3)
    n = 400
    group = np.tile([RANGE, VALUE], n // 2)

    def public(shift: int) -> dict[str, np.ndarray]:
        code = generator.permutation(n) % 20
        code[::2] = np.arange(n // 2) % 20
        given_ = {
            "slot": np.zeros(n),
            "group": group,
            "theta": np.where(group == RANGE, 0, 1 + shift),
            "code": (code + shift * (group == VALUE)) % SURVEY.hybrid.outputs,
            "survey": np.full(n, SURVEY.number),
            UNIT: np.array([somebody(SURVEY, one) for one in group.tolist()], object),
        }
        return feed(mechanism, given_, np.arange(n), np.ones(n, np.intp))[0].public

    first = public(0)
    for shift in (1, 5, 17):
        other = public(shift)
        for name in ("theta", "distribution"):
            np.testing.assert_array_equal(first[name], other[name])


def test_no_reports_give_an_empty_release_with_the_whole_range() -> None:
    mechanism = ToPL(SURVEY, horizon=3, warmup=2)
    releases = feed(mechanism, columns([]), np.empty(0, np.int64), np.empty(0, np.intp))
    assert [len(r.key) for r in releases] == [0, 0, 0]
    assert [r.public.get("theta", np.zeros(1)).tolist() for r in releases] == [[0], [32], [32]]


def test_an_empty_micro_batch_still_releases() -> None:
    mechanism = ToPL(SURVEY, horizon=2, warmup=1)
    given_ = columns([(0, VALUE, 5, 3), (0, RANGE, 0, 3)])
    releases = feed(mechanism, given_, np.arange(2), np.ones(2, np.intp))
    assert [len(r.key) for r in releases] == [1, 1]
    assert releases[1].value[0, 1] == 0 and releases[1].variance[0, 1] == 0
    assert releases[1].value[0, 0] == releases[0].value[0, 0]


def test_a_report_that_is_left_out_has_used_up_its_slot_and_leaves_no_state() -> None:
    mechanism = ToPL(SURVEY, horizon=2)
    memory = Memory(mechanism, ZeroNoise())
    rows, kept = [(0, VALUE, 32, 3), (0, RANGE, 0, 3)], []  # the first: before the threshold
    for t in (1, 2):
        coded = mechanism.encode(columns(rows))
        ones = np.ones(2, np.int8)
        at = np.full(2, t)
        memory.absorb(Trace(at, np.arange(2), coded.keys, coded.key, coded.value, ones))
        last = memory.trigger()
        theta = int(last.public["theta"][0])
        rows = [(0, VALUE, theta, 5), (1, VALUE, theta % 32 + 1, 5)]
        kept.append(len(memory.row_tables[0].rows.key))
    assert last.value[0, 1] == 0 and kept == [2, 2]  # the range report and theta


def test_a_lost_threshold_stops_the_release() -> None:
    """It cannot be chosen anew: later reports of the range group are in the counts by then."""
    mechanism = ToPL(SURVEY, horizon=3, warmup=1)
    memory = Memory(mechanism, ZeroNoise())
    memory.trigger()
    memory.row_tables[0] = RowTable(mechanism)
    with pytest.raises(ContractError, match="threshold"):
        memory.trigger()


def test_estimates_are_held_within_64_bits() -> None:
    survey = Survey(Fraction(1, 1000), Fraction(1 << 62), "s", buckets=2, levels=2)
    given_ = columns([(0, VALUE, 2, survey.hybrid.outputs - 1)], survey)
    at = np.full(1, 2, np.intp)
    last = feed(ToPL(survey, horizon=2), given_, np.zeros(1, np.int64), at)[-1]
    assert last.value[0, 0] == (1 << 63) - 1


def test_sums_of_micro_batches_add_up_over_a_range() -> None:
    value = np.random.default_rng(4).gamma(3, 12, 50_000)
    survey = Survey(Fraction(2), Fraction(1440), "s")
    _, releases = survey_run(survey, value)
    total = sum(r.value[0, 1] for r in releases[2:]) / 1000
    sigma = sum(r.variance[0, 1] for r in releases[2:]) ** 0.5 / 1000
    truth = value.mean() * len(value) * (0.9 + 0.1 * 4 / 6)  # reports of triggers 3 to 6
    assert total == pytest.approx(truth, abs=5 * sigma + 0.05 * truth)


def test_reports_of_real_clients_are_understood() -> None:
    survey = Survey(Fraction(4), Fraction(100), "s", buckets=32, levels=32)
    mechanism = ToPL(survey, Fraction(1, 100), horizon=2)
    memory, theta = Memory(mechanism, ZeroNoise()), None
    with ReportStore(":memory:", Budget(Fraction(1_000_000))) as store:
        client = Client(survey, store)
        for group in (RANGE, VALUE):
            users = [i for i in range(1500) if survey.group(f"user-{i}") == group]
            sent = [client.report(f"user-{i}", 3, 30, theta) for i in users]
            assert all(json.loads(one)["definition"] == ToPL.definition == "local" for one in sent)
            reports = [parse(one, survey) for one in sent]
            given_ = columns([tuple(report[1:]) for report in reports], survey)
            given_[UNIT] = np.array([report.user for report in reports], object)
            coded = mechanism.encode(given_)
            assert coded.keep.all()
            ones = np.ones(len(users), np.int8)
            at = np.full(len(users), memory.t + 1)
            memory.absorb(Trace(at, np.array(users), coded.keys, coded.key, coded.value, ones))
            last = memory.trigger()
            theta = int(last.public["theta"][0])
    assert last.value[0, 1] / 100 == pytest.approx(30 * len(users), rel=0.2)
    assert last.value[0, 0] / 100 == pytest.approx(30, abs=6 * last.variance[0, 0] ** 0.5 / 100)
    assert last.variance[0, 0] ** 0.5 / 100 < 1.5


# Parameters and cost

SETTING = Setting(
    Fraction(2), Fraction(0), 4, columns=(("minutes", 0, 120),), grids=(Fraction(1, 4),)
)


def test_every_report_gets_its_part_of_epsilon() -> None:
    mechanism = build(ToPLParameters(reports=4, warmup=2), SETTING)
    assert mechanism.survey.epsilon == Fraction(1, 2)
    assert mechanism.survey.bound == 30 and mechanism.grid == Fraction(1, 4)
    assert mechanism.cost().epsilon == 2 and mechanism.cost().mu2 == mechanism.cost().delta == 0


def test_errors_shrink_with_reports() -> None:
    mechanism = build(ToPLParameters(warmup=2), SETTING)
    means = [mechanism.error(t)[0] for t in range(1, 5)]
    assert means == sorted(means, reverse=True) and means[2] < means[1] / 2
    sums = [mechanism.error(t)[1] for t in range(1, 5)]
    assert sums[0] == sums[1] > sums[2] == sums[3]


@pytest.mark.parametrize(
    "parameters,setting,name",
    [
        ({"warmup": 5}, {}, "warmup"),
        ({"warmup": 0}, {}, "warmup"),
        ({"expected": 0}, {}, "expected"),
        ({"reports": 0}, {}, "reports"),
        ({"share": "1/0"}, {}, "share"),
        ({"share": "half"}, {}, "share"),
        ({"share": 1}, {}, "share"),
        ({"buckets": 1}, {}, "buckets"),
        ({}, {"epsilon": Fraction(17)}, "epsilon"),
        ({}, {"keys": (b"a",)}, "keys"),
        ({}, {"columns": ()}, "columns"),
        ({}, {"columns": (("minutes", -1, 120),)}, "columns"),
    ],
)
def test_parameters_that_clash_are_named(
    parameters: dict[str, object], setting: dict[str, object], name: str
) -> None:
    with pytest.raises(ParameterError, match=name):
        build(ToPLParameters(**parameters), replace(SETTING, **setting))  # type: ignore[arg-type]


def test_rows_are_a_few_bytes() -> None:
    mechanism = ToPL(SURVEY)
    assert mechanism.init_rows(Keys.of_codes(np.arange(3, dtype=np.uint64))).cell.itemsize == 8
