"""The aggregator: which reports it takes, and what it releases when."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Budget, Client, ReportStore, Survey, parse
from hushstream.client.survey import RANGE, VALUE
from hushstream.errors import ContractError
from hushstream.mechanisms.contract import UNIT
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.tables import RowTable
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL
from hypothesis import given, settings
from hypothesis import strategies as st

from .bench import SURVEY, columns, feed, somebody


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
    for name in INPUTS[:5]:
        spoilt = {**given_, name: np.array([bad])}
        assert not ToPL(SURVEY).encode(spoilt).keep.any()


def test_text_is_refused() -> None:
    given_ = {name: np.array(["1"], object) for name in INPUTS}
    with pytest.raises(ContractError, match="numeric"):
        ToPL(SURVEY).encode(given_)


def test_reports_of_another_survey_are_dropped() -> None:
    """With another epsilon or range the same output would mean something else."""
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
    rows, kept = [(0, VALUE, 32, 3), (0, RANGE, 0, 3)], []  # the first precedes the threshold
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
    """It cannot be chosen again, because the counts now include later range reports."""
    mechanism = ToPL(SURVEY, horizon=3, warmup=1)
    memory = Memory(mechanism, ZeroNoise())
    memory.trigger()
    memory.row_tables[0] = RowTable(mechanism.traits)
    with pytest.raises(ContractError, match="threshold"):
        memory.trigger()


def test_reports_of_real_clients_are_understood() -> None:
    survey = Survey(Fraction(4), Fraction(100), "s", buckets=32, levels=32)
    mechanism = ToPL(survey, Fraction(1, 100), horizon=2)
    memory, theta = Memory(mechanism, ZeroNoise()), None
    with ReportStore(":memory:", Budget(Fraction(1_000_000))) as store:
        client = Client(survey, store)
        for group in (RANGE, VALUE):
            users = [i for i in range(1500) if survey.group(f"user-{i}") == group]
            sent = [client.report(f"user-{i}", 3, 30, theta) for i in users]
            assert ToPL.guarantee.definition == "local"
            assert {json.loads(one)["definition"] for one in sent} == {"local"}
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


def test_rows_are_a_few_bytes() -> None:
    mechanism = ToPL(SURVEY)
    assert mechanism.traits.rows(Keys.of_codes(np.arange(3, dtype=np.uint64))).state.itemsize == 8
