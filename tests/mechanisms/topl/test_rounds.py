"""Surveys in two rounds: published steps of each group, counted reports, and the range."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hushstream.client import Budget, Client, ReportStore, Survey, parse, published_threshold
from hushstream.client.survey import NARROW, RANGE, VALUE
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.columns import Releases, Rows
from hushstream.mechanisms.contract import UNIT, Setting
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.topl.estimate import Buckets, mean
from hushstream.mechanisms.topl.fit import simulate, worst_variance
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL
from hushstream.mechanisms.topl.rounds import GUARD, edges, found_range, step_of
from hushstream.mechanisms.topl.settings import ToPLParameters, build

HALF = Fraction(1, 2)
SURVEY = Survey(Fraction(1), Fraction(100), "s", 1, HALF, buckets=32, levels=16, rounds=2)
GRID = Fraction(1, 10**6)


class Said(NamedTuple):
    """One report."""

    group: int
    theta: int
    code: int


@cache
def users_of(survey: Survey, group: int, number: int) -> list[str]:
    found = (str(i) for i in range(100 * number) if survey.group(str(i)) == group)
    return [user for user, _ in zip(found, range(number), strict=False)]


def fed(
    batches: Sequence[Sequence[Said]], mechanism: ToPL, encoded: bool = True
) -> tuple[list[Releases], Memory]:
    """One trigger per batch; each report is from a new user of its group."""
    memory, out, number = Memory(mechanism, ZeroNoise()), [], 0
    survey = mechanism.survey
    names = {g: list(users_of(survey, g, 60)) for g in {one.group for b in batches for one in b}}
    for t, batch in enumerate(batches, 1):
        table = np.array(batch, np.int64).reshape(-1, 3).T
        users = np.array([names[one.group].pop() for one in batch], object)
        each = [np.zeros(len(batch)), *table, np.full(len(batch), survey.number), users]
        coded = mechanism.encode(dict(zip(INPUTS, each, strict=True)))
        assert coded.keep.all() == encoded
        rows = np.flatnonzero(coded.keep)
        ones, unit = np.ones(len(rows), np.int8), np.arange(number, number + len(rows))
        number += len(rows)
        memory.absorb(Trace(ones * t, unit, coded.keys, coded.key[rows], coded.value[rows], ones))
        out.append(memory.trigger())
    return out, memory


def step(release: Releases, name: str) -> int:
    return int(release.public[name][0]) if name in release.public else 0


def test_each_group_has_its_share_and_one_round_has_no_narrow_group() -> None:
    survey = Survey(Fraction(1), Fraction(1), "s", share=Fraction(1, 5), rounds=2)
    groups = [survey.group(str(i)) for i in range(20_000)]
    for group, share in ((RANGE, 0.1), (NARROW, 0.1), (VALUE, 0.8)):
        assert groups.count(group) == pytest.approx(20_000 * share, rel=0.1)
    single = Survey(Fraction(1), Fraction(1), "s", share=Fraction(1, 5))
    for i, group in enumerate(groups):  # both halves together are the range group of one round
        assert (single.group(str(i)) == VALUE) == (group == VALUE)
    assert NARROW not in map(single.group, map(str, range(2000)))


# Releases


@cache
def crowd(survey: Survey, number: int) -> tuple[np.ndarray, np.ndarray]:
    users = np.array([f"user {i}" for i in range(number)], object)
    return users, np.array([survey.group(user) for user in users])


def survey_run(survey: Survey, value: np.ndarray, seed: int = 0) -> tuple[ToPL, list[Releases]]:
    """Each group reports at the trigger after its step is published, the value group at two."""
    mechanism = ToPL(survey, GRID, horizon=4, warmup=1)
    draw = np.random.default_rng(seed)
    memory = Memory(mechanism, ZeroNoise())
    users, group = crowd(survey, len(value))
    late = draw.random(len(value)) < 0.5
    trigger = np.select([group == RANGE, group == NARROW, late], [1, 2, 3], 4)
    out: list[Releases] = []
    for t in range(1, 5):
        now = np.flatnonzero(trigger == t)
        told = 0 if t == 1 else step(out[-1], "range" if t == 2 else "theta")
        words = draw.integers(0, 1 << 64, (len(now), 3), dtype=np.uint64)
        code = simulate(survey, value[now], group[now], told or survey.buckets, words)
        many = np.ones(len(now), np.int64)
        each = [many, group[now], many * told, code, many * survey.number, users[now]]
        coded = mechanism.encode(dict(zip(INPUTS, each, strict=True)))
        assert coded.keep.all()
        ones = np.ones(len(now), np.int8)
        memory.absorb(Trace(ones * t, now, coded.keys, coded.key, coded.value, ones))
        out.append(memory.trigger())
    return mechanism, out


@pytest.mark.parametrize("times", [20, 2000])
def test_a_loose_range_is_found_where_one_round_loses_it(times: int) -> None:
    """Exponential values; the best threshold is about five times their mean."""
    value = np.minimum(np.random.default_rng(1).exponential(40, 60_000), 40 * times)
    survey = Survey(Fraction(1), Fraction(40 * times), "s", share=Fraction(1, 5), rounds=2)
    _, releases = survey_run(survey, value)
    assert [step(r, "range") > 0 for r in releases] == [True] * 4
    assert [step(r, "theta") > 0 for r in releases] == [False, True, True, True]
    assert ["distribution" in r.public for r in releases] == [False, True, False, True]
    theta = float(survey.threshold(step(releases[1], "theta")))
    assert 2 * 40 < theta < 9 * 40
    assert theta <= float(survey.threshold(step(releases[1], "range"))) < 20 * 40
    assert len(releases[0].key) == 0  # an octave determines no mean
    last = releases[-1]
    clipped = np.minimum(value, theta).mean()
    assert last.value[0, 0] / 1e6 == pytest.approx(
        clipped, abs=5 * last.variance[0, 0] ** 0.5 / 1e6
    )
    assert last.value[0, 0] / 1e6 == pytest.approx(value.mean(), rel=0.1)
    single = Survey(Fraction(1), survey.bound, "s", share=Fraction(1, 5))
    if times > 1000:  # its smallest threshold is a 512th of the range: four times the mean
        assert float(single.threshold(1)) > 3 * 40


@pytest.mark.thorough
def test_variance_covers_the_error() -> None:
    survey = Survey(Fraction(1), Fraction(100), "s", 1, HALF, buckets=64, levels=64, rounds=2)
    value = np.random.default_rng(2).gamma(3, 4, 3000)
    scores = []
    for seed in range(60):
        _, releases = survey_run(survey, value, seed)
        last, theta = releases[-1], float(survey.threshold(step(releases[-1], "theta")))
        miss = last.value[0, 0] / 1e6 - np.minimum(value, theta).mean()
        scores.append(miss / (last.variance[0, 0] ** 0.5 / 1e6))
    assert 0.5 < np.std(scores) < 1.25 and abs(np.mean(scores)) < 0.6


def test_the_mean_is_that_of_values_and_narrow_reports_by_their_precision() -> None:
    groups, codes = [RANGE, NARROW, NARROW, VALUE], [3, 4, 7, 2]
    seen = Buckets(*np.array([groups, [0, 20, 20, 9], codes, [50, 2, 1, 5]]))
    near, far = SURVEY.threshold(20), SURVEY.threshold(9)
    wave = SURVEY.square_wave
    over = under = Fraction(0)
    for code, number in ((4, 2), (7, 1)):
        level = (1 + wave.decode(code)) * Fraction(wave.inputs - 1, 2)
        weight = number / (worst_variance(wave) * near**2)
        over += weight * near * (level + Fraction(1, 2)) / wave.inputs
        under += weight
    weight = 5 / (worst_variance(SURVEY.hybrid) * far**2)
    over, under = over + weight * SURVEY.estimate(2, 9), under + weight
    found, variance = mean(SURVEY, seen)
    assert found == over / under and variance == pytest.approx(float(1 / under / 4))


def test_range_and_theta_rest_on_their_own_groups_alone() -> None:
    mechanism = ToPL(SURVEY, GRID, horizon=4)
    wide = [Said(RANGE, 0, code) for code in range(20)]
    told = step(fed([wide], mechanism)[0][0], "range")
    near = [Said(NARROW, told, 3), Said(NARROW, told, 5)]
    plain = fed([wide, near, [], []], mechanism)[0]
    theta = step(plain[1], "theta")
    noisy = fed(
        [
            [*wide, Said(NARROW, told, 31), Said(VALUE, 5, 0)],  # before the range was published
            [*near, Said(VALUE, theta, 0)],
            [Said(RANGE, 0, 3)] * 9,
            [Said(NARROW, told, 30)] * 9,
        ],
        mechanism,
    )[0]
    assert [step(r, "range") for r in plain] == [step(r, "range") for r in noisy] == [told] * 4
    assert [step(r, "theta") for r in plain] == [step(r, "theta") for r in noisy]
    assert (noisy[1].value == plain[1].value).all()


def test_an_early_or_foreign_step_counts_for_nothing() -> None:
    mechanism = ToPL(SURVEY, GRID, horizon=4)
    wide = [Said(RANGE, 0, code) for code in range(20)]
    told = step(fed([wide], mechanism)[0][0], "range")
    other = told % 32 + 1
    near = [Said(NARROW, told, 5)] * 8
    plain, memory = fed([wide, near, []], mechanism)
    theta = step(plain[-1], "theta")
    for code in (0, 30):
        lies = [Said(NARROW, other, code)] * 20
        early = [Said(NARROW, told, code)] * 20
        found, held = fed([wide + early, near + lies, []], mechanism)
        assert [r.value.tolist() for r in found] == [r.value.tolist() for r in plain]
        assert step(found[-1], "theta") == theta
        assert len(held.row_tables[0].rows.key) == len(memory.row_tables[0].rows.key)


def test_one_round_knows_no_narrow_report() -> None:
    single = Survey(Fraction(1), Fraction(100), "s", buckets=32, levels=16, share=Fraction(1, 2))
    each = [np.zeros(1), np.full(1, NARROW), np.full(1, 3), np.zeros(1), np.full(1, single.number)]
    users = np.array(users_of(SURVEY, NARROW, 1), object)
    coded = ToPL(single).encode(dict(zip(INPUTS, [*each, users], strict=True)))
    assert not coded.keep.any()


@pytest.mark.parametrize(("theta", "code"), [(0, 0), (33, 0), (3, SURVEY.square_wave.outputs)])
def test_impossible_narrow_reports_are_dropped(theta: int, code: int) -> None:
    fed([[Said(NARROW, theta, code)]], ToPL(SURVEY), encoded=False)


@pytest.mark.parametrize(("after", "what"), [(1, "range"), (2, "threshold")])
def test_a_lost_step_stops_the_release(after: int, what: str) -> None:
    memory = Memory(ToPL(SURVEY, horizon=5), ZeroNoise())
    for _ in range(after):
        memory.trigger()
    kept = memory.row_tables[0].rows
    left = np.arange(len(kept.key)) != (len(kept.key) - 1 if what == "range" else 0)
    memory.row_tables[0] = RowTable(memory.mechanism.traits)
    memory.row_tables[0].store(Rows(kept.key[left], kept.state[left], kept.due[left]))
    with pytest.raises(ContractError, match=what):
        memory.trigger()


def test_without_reports_the_whole_range_is_kept() -> None:
    releases, _ = fed([[], [], [], []], ToPL(SURVEY, horizon=4))
    assert [step(r, "range") for r in releases] == [32] * 4
    assert [step(r, "theta") for r in releases] == [0, 32, 32, 32]


def test_reports_of_real_clients_are_understood() -> None:
    """Each group is told by the records that a device would read."""
    survey = Survey(Fraction(4), Fraction(1000), "s", 1, HALF, buckets=64, levels=32, rounds=2)
    mechanism = ToPL(survey, Fraction(1, 100), horizon=3)
    memory, told = Memory(mechanism, ZeroNoise()), None
    with ReportStore(":memory:", Budget(Fraction(1_000_000))) as store:
        client = Client(survey, store)
        for group in (RANGE, NARROW, VALUE):
            users = [f"user-{i}" for i in range(1200) if survey.group(f"user-{i}") == group]
            reports = [parse(client.report(u, 3, 30, told), survey) for u in users]
            assert {(one.group, one.theta) for one in reports} == {(group, told or 0)}
            table = np.array([one[1:] for one in reports]).T
            each = [*table, np.full(len(users), survey.number), np.array(users, object)]
            coded = mechanism.encode(dict(zip((*INPUTS[:5], UNIT), each, strict=True)))
            assert coded.keep.all()
            ones, t = np.ones(len(users), np.int8), memory.t + 1
            memory.absorb(Trace(ones * t, np.arange(len(users)) + 9999 * t, coded.keys, coded.key,
                                coded.value, ones))  # fmt: skip
            last = memory.trigger()
            record = {"public": {name: x.tolist() for name, x in last.public.items()}}
            told = published_threshold(record, survey, group=NARROW if group == RANGE else VALUE)
    assert last.value[0, 0] / 100 == pytest.approx(30, abs=6 * last.variance[0, 0] ** 0.5 / 100)
    assert last.variance[0, 0] ** 0.5 / 100 < 2


# Liars of the narrow group


def reach(survey: Survey, group: int) -> float:
    made = survey.hybrid if group == VALUE else survey.square_wave
    return max(abs(float(made.decode(code))) for code in range(made.outputs))


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2", "4"])
@pytest.mark.parametrize("false", [0, -1])
def test_a_false_narrow_report_moves_less_than_a_false_value_report(
    epsilon: str, false: int
) -> None:
    survey = Survey(Fraction(epsilon), Fraction(100), "s", buckets=32, levels=32, rounds=2)
    within, theta = 20, 16
    for group, told in ((NARROW, within), (VALUE, theta)):
        codes = np.full(40, (survey.square_wave if group == NARROW else survey.hybrid).outputs // 3)
        groups, steps = np.repeat([NARROW, VALUE], 20), np.repeat([within, theta], 20)
        plain, _ = mean(survey, Buckets(groups, steps, codes, np.ones(40, np.int64)))
        top = (survey.square_wave if group == NARROW else survey.hybrid.piecewise).outputs - 1
        lied = np.flatnonzero(groups == group)[:5]
        codes = codes.copy()
        codes[lied] = top if false else 0
        moved, _ = mean(survey, Buckets(groups, steps, codes, np.ones(40, np.int64)))
        assert told and plain is not None and moved is not None
        worst = 5 * float(survey.threshold(theta)) * reach(survey, VALUE)
        assert 0 < abs(float(moved - plain)) <= worst / 20


# Rules and settings


def test_steps_are_ends_of_buckets() -> None:
    ends = edges(SURVEY)
    assert (np.diff(ends) > 0).all() and ends[-1] == 1
    assert [step_of(SURVEY, float(end)) for end in ends] == list(range(1, 33))
    assert (step_of(SURVEY, 0.0), step_of(SURVEY, 7.0)) == (1, 32)
    assert step_of(SURVEY, float(ends[4]) * 1.01) == 6


def test_more_mass_above_makes_a_wider_range() -> None:
    survey = Survey(Fraction(2), Fraction(1000), "s", rounds=2)
    draw = np.random.default_rng(3)
    found = []
    for scale in (1, 10, 100):
        words = draw.integers(0, 1 << 64, (5000, 3), dtype=np.uint64)
        who = np.full(5000, RANGE)
        codes = simulate(survey, draw.exponential(scale, 5000), who, 512, words)
        seen = Buckets(who, np.zeros(5000, np.int64), codes, np.ones(5000, np.int64))
        found.append(float(survey.threshold(found_range(survey, seen, True, GUARD))) / scale)
    assert all(4 < one < 16 for one in found)


def test_mass_that_noise_pretends_does_not_widen_the_range() -> None:
    """Values near 3 with B = 30,000: without the guard, noise alone set one range in a few."""
    survey = Survey(Fraction(1, 2), Fraction(30_000), "s", rounds=2)
    found: dict[float, list[float]] = {1: [], GUARD: []}
    for seed in range(12):
        draw = np.random.default_rng([5, seed])
        words = draw.integers(0, 1 << 64, (10_000, 3), dtype=np.uint64)
        who = np.full(10_000, RANGE)
        codes = simulate(survey, draw.exponential(3, 10_000), who, 512, words)
        seen = Buckets(who, 0 * who, codes, np.ones_like(codes))
        for guard, ranges in found.items():
            ranges.append(float(survey.threshold(found_range(survey, seen, True, guard))))
    assert max(found[GUARD]) < 200 and max(found[1]) > 500


def setting(horizon: int) -> Setting:
    return Setting(
        Fraction(2), Fraction(0), horizon, columns=(("x", 0, 120),), grids=(Fraction(1),)
    )


@pytest.mark.parametrize(
    ("horizon", "more", "rounds", "share"),
    [(2, {}, 1, "1/10"), (3, {}, 2, "1/5"), (4, {"warmup": 2}, 1, "1/10"),
     (5, {"warmup": 2}, 2, "1/5"), (9, {"buckets": 40}, 1, "1/10"), (9, {"rounds": 1}, 1, "1/10"),
     (9, {"share": "1/3"}, 2, "1/3")],
)  # fmt: skip
def test_two_rounds_where_the_window_has_room(
    horizon: int, more: dict[str, object], rounds: int, share: str
) -> None:
    made = build(ToPLParameters(**more), setting(horizon))  # type: ignore[arg-type]
    assert (made.survey.rounds, made.survey.share) == (rounds, Fraction(share))
    assert np.isfinite([made.error(t) for t in range(1, horizon + 1)]).all()


@pytest.mark.parametrize("more", [{"rounds": 3}, {"rounds": 2}, {"rounds": 2, "buckets": 40}])
def test_what_does_not_fit_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=r"rounds|buckets"):
        build(ToPLParameters(**more), setting(2))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="warmup"):
        build(ToPLParameters(rounds=2, warmup=2), setting(4))
    with pytest.raises(ParameterError, match="guard"):
        build(ToPLParameters(guard=0), setting(4))
