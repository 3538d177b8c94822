"""The channel published with a threshold: its privacy, exact draws, choice and stated noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import ReportError, Survey, exp_below
from hushstream.client.survey import (
    CHANNELS,
    HYBRID,
    NARROW,
    PIECEWISE,
    RANGE,
    STEP,
    TWO_POINT,
    VALUE,
)
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.topl.channels import expected, least, terms, variances, worst_of
from hushstream.mechanisms.topl.estimate import Buckets, Steps, counted, mean, noise_of, pack
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL
from hushstream.mechanisms.topl.rounds import GUARD, found_range, found_threshold
from hushstream.mechanisms.topl.settings import ToPLParameters, build
from hushstream.mechanisms.topl.spread import difference, division
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from .bench import columns

ALARM = 1e-6
EPSILONS = ("1/1000", "1/2", "61/100", "1", "2", "4", "16")
NAMES = {HYBRID: "hybrid", PIECEWISE: "piecewise", TWO_POINT: "two-point"}
each = pytest.mark.parametrize("channel", NAMES, ids=NAMES.get)


def told(epsilon: str = "2", levels: int = 16, rounds: int = 1) -> Survey:
    return Survey(
        Fraction(epsilon), Fraction(100), "s", 2, Fraction(1, 4), 32, levels, 0, rounds, "told"
    )


# What leaves the device


@each
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_output_of_a_value_is_more_than_e_to_the_epsilon_times_as_likely(
    epsilon: str, channel: int
) -> None:
    """Exactly, for every pair of inputs and every output, from the table of all weights."""
    made = told(epsilon, 9).mixed(channel)
    table = np.array([made.weights(level) for level in range(made.inputs)], object)
    assert (table.sum(axis=1) == made.total).all()
    spoken = table[:, (table > 0).any(axis=0)]
    assert (spoken > 0).all()  # all inputs have the same possible outputs
    bound = exp_below(Fraction(epsilon))
    assert all(Fraction(max(column), min(column)) <= bound for column in spoken.T.tolist())


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.fractions(Fraction(1, 1000), 16), levels=st.integers(2, 40),
    channel=st.sampled_from(list(NAMES)), pair=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    data=st.data(),
)  # fmt: skip
def test_the_ratio_of_any_two_values_is_bounded_after_rounding(
    epsilon: Fraction, levels: int, channel: int, pair: tuple[float, float], data: st.DataObject
) -> None:
    """A value between levels is rounded at random, so its outputs are a mixture of two rows."""
    survey = Survey(epsilon, Fraction(1), "s", levels=levels, channel="told")
    made = survey.mixed(channel)
    output = data.draw(st.sampled_from(list(survey.outputs(channel))))

    def likely(value: float) -> Fraction:
        place = Fraction(value) * levels
        low = min(int(place), levels - 1)
        rows = [made.weights(level)[output] for level in (low, low + 1)]
        return rows[0] + (place - low) * (rows[1] - rows[0])

    first, second = map(likely, pair)
    assert first <= second * exp_below(epsilon) and second <= first * exp_below(epsilon)


@pytest.mark.spread(4)  # of twelve cases, one for each channel
@each
@pytest.mark.parametrize("value", [0.0, 30.0, 61.8, 100.0])
def test_outputs_are_drawn_with_the_probabilities_of_the_table(channel: int, value: float) -> None:
    """The device's code, in 40,000 draws of a seeded generator; false-alarm rate 1e-6."""
    survey, n = told("1", 8), 40_000
    draw = np.random.default_rng([3, channel, int(value)])
    step = 32 + channel * STEP

    def uniform(m: int) -> int:
        return int(draw.integers(m, dtype=np.uint64))

    codes = [survey.perturb_value(value, step, uniform) for _ in range(n)]
    place = value / 100 * 8
    low = min(int(place), 7)
    made = survey.mixed(channel)
    rows = np.array([made.weights(level) for level in (low, low + 1)], object)
    chance = ((1 - place + low) * rows[0] + (place - low) * rows[1]).astype(float) / made.total
    seen = np.bincount(codes, minlength=made.outputs)
    assert set(np.flatnonzero(seen).tolist()) <= set(survey.outputs(channel))
    live = chance > 0
    score = float(((seen[live] - n * chance[live]) ** 2 / (n * chance[live])).sum())
    assert score < chi2.isf(ALARM, int(live.sum()) - 1)


@each
def test_simulated_devices_draw_what_devices_draw(channel: int) -> None:
    survey, n = told("1", 8), 60_000
    words = np.random.default_rng([4, channel]).integers(0, 1 << 64, (n, 3), dtype=np.uint64)
    codes = simulate(survey, np.full(n, 50.0), np.full(n, VALUE), 32 + channel * STEP, words)
    made = survey.mixed(channel)
    chance = np.array(made.weights(4), float) / made.total
    seen, live = np.bincount(codes, minlength=made.outputs), chance > 0
    assert not seen[~live].any()
    score = float(((seen[live] - n * chance[live]) ** 2 / (n * chance[live])).sum())
    assert score < chi2.isf(ALARM, int(live.sum()) - 1)


@each
def test_estimates_are_unbiased_with_the_variance_of_the_terms(channel: int) -> None:
    survey = told("2", 12)
    made, (a, b) = survey.mixed(channel), terms(survey)[channel]
    for level in range(13):
        said = sum((w * made.decode(j) for j, w in enumerate(made.weights(level))), Fraction(0))
        value = Fraction(level, 6) - 1
        assert said / made.total == value
        assert float(made.variance(level)) == pytest.approx(a + b * float(value) ** 2, rel=1e-9)
        assert made.variance(level) <= worst_of(survey, VALUE, 1 + channel * STEP)


def test_an_older_survey_knows_no_channel_and_has_the_text_it_had() -> None:
    plain = Survey(Fraction(2), Fraction(100), "s")
    assert "channel" not in plain.to_json() and '"channel":"told"' in told().to_json()
    assert Survey.from_json(told().to_json()) == told()
    for step in (0, 513, STEP, STEP + 3, 2 * STEP + 3):
        with pytest.raises(ReportError, match="theta"):
            plain.perturb_value(3, step)
    for step in (STEP, 3 * STEP + 3, 33 + STEP, -STEP + 3):
        with pytest.raises(ReportError, match="theta"):
            told().perturb_value(3, step)
    with pytest.raises(ReportError, match="no channel"):
        told(rounds=2).perturb_narrow(3, 3 + STEP)
    with pytest.raises(ReportError, match="channel"):
        Survey(Fraction(2), Fraction(100), "s", channel="piecewise")


# What the aggregator takes


def test_a_report_has_a_key_for_each_channel() -> None:
    group = np.full(CHANNELS, VALUE)
    steps = np.arange(CHANNELS) * STEP + 4096
    codes = pack(group, steps, np.full(CHANNELS, (1 << 14) - 1))
    assert len(set(codes.tolist())) == CHANNELS and (codes < 1 << 32).all()


@pytest.mark.parametrize(
    ("step", "code", "fits"),
    [
        (7, 0, True), (7 + STEP, 0, True), (7 + 2 * STEP, 0, False), (7 + 3 * STEP, 0, False),
        (7, -1, True), (7 + STEP, -1, False), (7 + 2 * STEP, -1, True), (STEP, 0, False),
        (33 + STEP, 0, False), (7 + (1 << 20), 0, False),
    ],
)  # fmt: skip
def test_a_report_that_its_channel_cannot_have_made_is_dropped(
    step: int, code: int, fits: bool
) -> None:
    survey = told()
    row = (0, VALUE, step, code % survey.hybrid.outputs)
    assert ToPL(survey).encode(columns([row], survey)).keep.tolist() == [fits]
    plain = Survey(Fraction(2), Fraction(100), "s", 2, Fraction(1, 4), 32, 16)
    assert ToPL(plain).encode(columns([row], plain)).keep.tolist() == [fits and step < STEP]


def test_a_report_of_the_range_or_narrow_group_names_no_channel() -> None:
    survey = told(rounds=2)
    rows = [(0, NARROW, 7 + STEP, 0), (0, RANGE, STEP, 0), (0, NARROW, 7, 0)]
    assert ToPL(survey).encode(columns(rows, survey)).keep.tolist() == [False, False, True]


def test_reports_by_another_channel_than_the_published_one_do_not_count() -> None:
    steps = np.array([7, 7 + STEP, 7 + 2 * STEP, 8 + STEP])
    seen = Buckets(np.full(4, VALUE), steps, np.zeros(4, np.int64), np.ones(4, np.int64))
    assert counted(seen, Steps(7 + STEP)).theta.tolist() == [7 + STEP]


# Which channel


@pytest.mark.parametrize(
    ("epsilon", "place", "channel"),
    [("4", (0.4, 0.6), PIECEWISE), ("1", (0.4, 0.6), PIECEWISE), ("2", (0.0, 0.02), TWO_POINT),
     ("1/2", (0.4, 0.6), TWO_POINT), ("1/2", (0.0, 0.02), TWO_POINT)],
)  # fmt: skip
def test_the_channel_of_least_variance_is_chosen(
    epsilon: str, place: tuple[float, float], channel: int
) -> None:
    d = 200
    density = np.zeros(d)
    density[int(place[0] * d) : int(place[1] * d)] = 1
    variance, chosen = least(told(epsilon), density / density.sum())
    assert int(chosen[-1]) == channel
    assert variance[-1] <= float(variances(told(epsilon))[VALUE])


def test_expected_variances_are_those_of_simulated_reports() -> None:
    density = np.random.default_rng(5).dirichlet(np.full(32, 0.3))
    survey = told("2", 64)
    theta, square = 20, 0.0
    for place, chance in enumerate(density):
        square += chance * (min((place + 0.5) / theta, 1) * 2 - 1) ** 2
    each = [expected(survey, theta + channel * STEP, square) for channel in range(CHANNELS)]
    variance, channel = least(survey, density)
    assert variance[theta - 1] == pytest.approx(min(each)) and channel[theta - 1] == np.argmin(each)


def reports(survey: Survey, value: np.ndarray, group: int, step: int, seed: int) -> Buckets:
    words = np.random.default_rng(seed).integers(0, 1 << 64, (len(value), 3), dtype=np.uint64)
    who = np.full(len(value), group)
    codes = simulate(survey, value, who, step or survey.buckets, words)
    return Buckets(who, np.full(len(value), step), codes, np.ones_like(codes))


def test_a_range_near_b_is_b_and_so_is_a_threshold_that_gains_little() -> None:
    """For exponential values up to B, a cut costs more than the reports can show."""
    found: dict[str, list[int]] = {"told": [], "hybrid": []}
    for channel, steps in found.items():
        survey = Survey(Fraction(1, 2), Fraction(100), "s", rounds=2, channel=channel)
        for seed in range(6):
            draw = np.random.default_rng([7, seed])
            value = np.minimum(draw.exponential(33, 20_000), 100)
            wide = reports(survey, value[:10_000], RANGE, 0, seed)
            within = found_range(survey, wide, True, GUARD)
            assert within == 512 or channel == "hybrid"
            near = reports(survey, value[10_000:], NARROW, within, 99 + seed)
            density = np.full(512, 1 / 512)
            steps.append(found_threshold(survey, near, density, within))
    assert {step % STEP for step in found["told"]} == {512}
    assert min(found["hybrid"]) < 512


# What is stated


@pytest.mark.parametrize("channel", [PIECEWISE, TWO_POINT])
@pytest.mark.parametrize("epsilon", ["1", "2", "4"])
def test_the_noise_that_is_stated_is_that_of_the_channel(epsilon: str, channel: int) -> None:
    """Two-point answers cannot show how much values differ, so their stated noise is larger."""
    survey, n = told(epsilon, 512), 200_000
    value = np.repeat([0.0, 10.0, 60.0], [n // 2, n // 4, n // 4])
    step = 32 + channel * STEP
    seen = reports(survey, value, VALUE, step, 8)
    v = np.repeat([-1.0, -0.8, 0.2], [2, 1, 1])
    a, b = terms(survey)[channel]
    exact = a + b * float((v**2).mean() if channel == PIECEWISE else v.mean() ** 2)
    assert float(noise_of(survey, VALUE, step, seen)) == pytest.approx(exact, rel=0.02)
    assert float(noise_of(survey, VALUE, step, seen)) <= float(worst_of(survey, VALUE, step))


@pytest.mark.parametrize("channel", [PIECEWISE, TWO_POINT])
def test_few_reports_state_nearly_the_worst_noise(channel: int) -> None:
    survey, step = told("4"), 9 + channel * STEP
    code = survey.outputs(channel)[0]
    one = Buckets(*(np.array([x]) for x in (VALUE, step, code, 1)))
    assert noise_of(survey, VALUE, step, one) >= worst_of(survey, VALUE, step) / 2
    none = one.where(one.reports > 1)
    assert noise_of(survey, VALUE, step, none) == worst_of(survey, VALUE, step)


@pytest.mark.spread(3)
@pytest.mark.parametrize("channel", list(NAMES), ids=NAMES.get)
@pytest.mark.parametrize("epsilon", ["1/2", "2", "6"])
@pytest.mark.parametrize("law", ["spread", "mostly zero"])
def test_errors_are_as_large_as_stated(epsilon: str, channel: int, law: str) -> None:
    """A random fifth sends range reports, the others value reports; the mean is over all users."""
    survey = Survey(
        Fraction(epsilon), Fraction(100), "s", 1, Fraction(1, 5), 64, 64, channel="told"
    )
    kinds = np.array([0.0, 50.0, 100.0] if law == "spread" else [0.0] * 9 + [100.0])
    runs, step, scores = 80, 64 + channel * STEP, []
    for seed in range(runs):
        draw = np.random.default_rng([9, seed])
        value = draw.choice(kinds, 1000)  # random order, so groups are random as by the hash
        parts = [reports(survey, value[:200], RANGE, 0, seed)]
        parts.append(reports(survey, value[200:], VALUE, step, 500 + seed))
        seen = Buckets(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        said, variance = mean(survey, seen)
        variance += division(survey, seen, difference(survey, seen))
        miss = float(said or 0) - value.mean()
        scores.append(miss / variance**0.5)
    assert float(np.square(scores).sum()) < chi2.isf(ALARM, runs)
    if channel != TWO_POINT:  # not far too large either
        assert float(np.square(scores).sum()) > chi2.ppf(ALARM, runs) / 3


# From the first report to the release


def released(survey: Survey, value: np.ndarray, wrong: int = 0) -> list[Releases]:
    """Two triggers of one round; ``wrong`` is added to the channel that devices are told."""
    mechanism = ToPL(survey, Fraction(1, 100), horizon=2)
    memory, users = Memory(mechanism, ZeroNoise()), [f"user {i}" for i in range(len(value))]
    group, out, step = np.array([survey.group(user) for user in users]), [], 0
    for t, who in ((1, RANGE), (2, VALUE)):
        rows = np.flatnonzero(group == who)
        seen = reports(survey, value[rows], who, step, t)
        many = np.ones(len(rows), np.int64)
        names = np.array(users, object)[rows]
        table = [many, seen.group, seen.theta, seen.code, many * survey.number, names]
        coded = mechanism.encode(dict(zip(INPUTS, table, strict=True)))
        assert coded.keep.all()
        ones = np.ones(len(rows), np.int8)
        memory.absorb(Trace(ones * t, rows, coded.keys, coded.key, coded.value, ones))
        out.append(memory.trigger())
        channel = (int(out[-1].public.get("channel", [0])[0]) + wrong) % CHANNELS
        step = int(out[-1].public["theta"][0]) + channel * STEP
    return out


@pytest.mark.parametrize(("spot", "channel"), [(50.0, PIECEWISE), (100.0, TWO_POINT)])
def test_threshold_and_channel_are_published_and_reports_by_it_count(
    spot: float, channel: int
) -> None:
    survey = told("4", 64)
    value = np.where(np.arange(4000) % 2, spot, 100 - spot)
    first, last = released(survey, value)
    assert first.public["channel"].tolist() == last.public["channel"].tolist() == [channel]
    assert value.max() <= float(survey.threshold(int(first.public["theta"][0])))
    assert last.value[0, 0] / 100 == pytest.approx(
        value.mean(), abs=5 * last.variance[0, 0] ** 0.5 / 100
    )
    assert last.value[0, 1]  # only this micro-batch has value reports
    for wrong in (1, 2):
        assert released(survey, value, wrong)[1].value[0, 1] == 0


def test_settings_choose_and_the_default_is_told() -> None:
    setting = Setting(
        Fraction(2), Fraction(0), 4, columns=(("x", 0, 120),), grids=(Fraction(1),)
    )  # fmt: skip
    assert build(ToPLParameters(), setting).survey.channel == "told"
    plain = ToPLParameters(channel="hybrid")
    assert build(plain, setting).survey.channel == "hybrid"
    assert "channel" not in plain.pinned() and ToPLParameters().pinned()["channel"] == "told"
