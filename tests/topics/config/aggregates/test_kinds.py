"""Aggregates: what they need, what they become, and adding one with a single class.

Covers: topics/config/aggregates/contract.py, topics/config/aggregates/distinct.py
Covers: topics/config/aggregates/numbers.py, topics/config/aggregates/partial.py
Covers: topics/config/aggregates/spread.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
import pytest
from hushstream.agents.stages.aggregate.release_records import Writer
from hushstream.errors import ConfigError
from hushstream.formats.events.fields import NumericField
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.entry import Objection
from hushstream.mechanisms.keys import Keys
from hushstream.topics.config.aggregates.contract import Estimate
from hushstream.topics.config.aggregates.distinct import Distinct
from hushstream.topics.config.aggregates.kinds import Aggregate, counted_in
from hushstream.topics.config.aggregates.numbers import Mean, Sum
from hushstream.topics.config.aggregates.partial import Count
from hushstream.topics.config.aggregates.spread import Stddev, Variance
from hushstream.topics.config.pipelines import pipeline as config_pipeline
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import compile_query
from hypothesis import given
from hypothesis import strategies as st

from ....support import deployment, trigger

ZERO, FIFTY = Fraction(0), Fraction(50)
SUM, MEAN = Sum("sum", "trip.fare", ZERO, FIFTY), Mean("mean", "trip.fare", ZERO, FIFTY)
FARE = NumericField("trip.fare", ZERO, FIFTY, Fraction(1))


def estimate(value: int, stddev: float = 1.0) -> Estimate:
    return Estimate(Fraction(value), stddev)


def test_each_kind_is_one_class() -> None:
    assert get_args(Aggregate) == (Count, Sum, Mean, Variance, Stddev, Distinct)
    assert [one.label for one in (Count(), SUM, MEAN)] == [
        "count", "sum_trip_fare", "mean_trip_fare",
    ]  # fmt: skip
    assert [one.columns for one in (Count(), SUM, MEAN)] == [(), (FARE,), (FARE,)]
    assert MEAN.parts == (*Count().parts, *SUM.parts) == ("count", "sum:trip.fare")
    assert Count(name="n").label == "n"


@given(st.integers(-100, 10**6), st.integers(-(10**9), 10**9), st.floats(0.1, 1e3))
def test_a_mean_is_the_quotient_and_has_the_error_of_the_delta_method(n, total, spread) -> None:
    found = MEAN.finish([estimate(n, 2.0), estimate(total, spread)])
    if n <= 0:
        assert found is None
        return
    assert found is not None and found.within == (ZERO, FIFTY)
    assert math.isclose(found.value, min(max(total / n, 0), 50), abs_tol=1e-6)
    # Independent noise a and b in (total + a) / (n + b), to first order.
    square = (spread / n) ** 2 + (2.0 * total / n**2) ** 2
    assert math.isclose(found.stddev, math.sqrt(square), rel_tol=1e-9)


ENDS = st.fractions(-1000, 1000, max_denominator=1000)


@given(st.integers(-5, 300), st.integers(-(10**7), 10**7), ENDS, ENDS)
def test_a_mean_lies_in_the_clipping_interval_whatever_the_noise(n, total, one, other) -> None:
    low, high = sorted([one, other])
    found = Mean("mean", "n", low, high).finish([estimate(n, 3.0), estimate(total, 9.0)])
    assert found is None if n <= 0 else found is not None and low <= found.value <= high


ROWS = st.lists(st.tuples(st.integers(-40, 400), st.integers(-9000, 9000)), min_size=1, max_size=5)
ASKED = {
    "by hand": 'aggregate = [{ kind = "mean", field = "n", low = -3.5, high = 9, grid = 0.5 }]',
    "sign": 'sign = "s"\n'
    'aggregate = [{ kind = "mean", field = "n", low = -3.5, high = 9, grid = 0.5 }]',
    "display": 'aggregate = [{ kind = "mean", field = "n", low = -3.5, high = 9, grid = 0.5 }]\n'
    'release = { display = "non-negative" }',
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("asked", sorted(ASKED))
@given(rows=ROWS)
def test_a_released_mean_and_its_interval_lie_in_the_clipping_interval(asked, rows) -> None:
    """With deletions the exact quotient may leave it, and so may the interval."""
    p = deployment(more=ASKED[asked]).pipelines[0]
    low, high = -3.5, 9.0
    keys = Keys.of(json.dumps([str(i)]).encode() for i in range(len(rows)))
    spread = np.full((len(rows), 2), 40.0)
    released = Releases(keys, np.array(rows), spread, np.ones(len(rows), np.int32), {})
    for (n, total), out in zip(rows, Writer(p, trigger(p, 2, [0]), 0).rows(released), strict=True):
        value = json.loads(out.value or b"")["values"]["mean_n"]
        assert (value is None) == (n <= 0)
        if value is None:
            continue
        assert low <= value["value"] <= high
        assert value["low"] <= value["value"] <= value["high"]
        assert asked == "sign" or (low <= value["low"] and value["high"] <= high)
        quotient = total * 0.5 / n
        if low <= quotient <= high:
            assert math.isclose(value["value"], quotient, abs_tol=2e-6)


def test_the_mean_of_a_query_lies_in_the_range_that_it_is_clipped_to() -> None:
    """`AVG(CLIP(x, low, high))` is the aggregate ``mean`` with these ends."""
    query = (
        "SELECT page, AVG(CLIP(n, -3, 9)) AS m FROM visits "
        "GROUP BY page, TUMBLE(time, INTERVAL '1' DAY)"
    )
    source = QuerySource("visits", "visits", ("user",), "time")
    (mean,) = compile_query(query, [source], {})["aggregate"]
    found = Mean("mean", mean["field"], Fraction(mean["low"]), Fraction(mean["high"]))
    for total, end in ((-900, -3), (900, 9), (40, 4)):
        one = found.finish([estimate(10, 3.0), estimate(total, 9.0)])
        assert one is not None and one.value == end


def test_counts_and_sums_are_as_released() -> None:
    one = estimate(7, 3.0)
    assert Count().finish([one]) == SUM.finish([one]) == one


@dataclass(frozen=True)
class Excess:
    """A new aggregate: the sum of a field less the number of records."""

    kind: Literal["excess"]
    field: str
    high: Fraction
    name: str | None = None

    @property
    def label(self) -> str:
        return self.name or f"excess_{self.field}"

    @property
    def columns(self) -> tuple[NumericField, ...]:
        return (NumericField(self.field, Fraction(1), self.high, Fraction(1)),)

    @property
    def parts(self) -> tuple[str, ...]:
        return ("sum:" + self.field, "count")

    def objections(self) -> Iterator[Objection]:
        if self.high <= 1:
            yield "high", "must exceed 1"

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        total, count = parts
        return Estimate(total.value - count.value, math.hypot(total.stddev, count.stddev))


@dataclass(frozen=True)
class Greatest(Excess):
    """An aggregate of a column that none of our mechanisms releases."""

    kind: Literal["greatest"]  # type: ignore[assignment]

    @property
    def parts(self) -> tuple[str, ...]:
        return ("count", "greatest:" + self.field)


@pytest.fixture
def _more_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_pipeline, "Aggregate", Aggregate | Excess | Greatest)


@pytest.mark.usefixtures("_more_kinds")
def test_a_new_aggregate_is_one_class() -> None:
    """Read, checked, compiled and released, with no other edit."""
    p = deployment(more='aggregate = [{ kind = "excess", field = "n", high = 9 }]').pipelines[0]
    assert [o.name for o in p.traits.outputs] == ["count", "sum:n"]
    value, variance = np.array([[10, 35]]), np.array([[9.0, 16.0]])
    released = Releases(Keys.of([b'["a"]']), value, variance, np.ones(1, np.int32), {})
    (out,) = Writer(p, trigger(p, 2, [0]), 0).rows(released)
    values = json.loads(out.value or b"")["values"]
    assert list(values) == ["excess_n"]
    assert (values["excess_n"]["value"], values["excess_n"]["stddev"]) == (25, 5.0)
    with pytest.raises(ConfigError, match="high: must exceed 1"):
        deployment(more='aggregate = [{ kind = "excess", field = "n", high = 1 }]')


@pytest.mark.usefixtures("_more_kinds")
def test_an_aggregate_of_a_column_that_is_not_released_is_refused() -> None:
    said = "'p': aggregate 'excess_n' needs 'greatest:n', which histogram does not release"
    with pytest.raises(ConfigError, match=said):
        deployment(more='aggregate = [{ kind = "greatest", field = "n", high = 9 }]')


def test_two_sums_of_one_field_under_two_names_are_both_released() -> None:
    """Both use one column of the mechanism, which is paid for once."""
    both = [f'{{ kind = "sum", field = "n", low = 0, high = 9, name = "{n}" }}' for n in "ab"]
    p = deployment(more=f"aggregate = [{', '.join(both)}]").pipelines[0]
    one = deployment(more=f"aggregate = [{both[0]}]").pipelines[0]
    assert [o.name for o in p.traits.outputs] == ["sum:n"]
    assert p.mechanism.cost() == one.mechanism.cost()
    released = Releases(
        Keys.of([b'["x"]']), np.array([[35]]), np.array([[16.0]]), np.ones(1, np.int32), {}
    )
    (out,) = Writer(p, trigger(p, 2, [0]), 0).rows(released)
    values = json.loads(out.value or b"")["values"]
    assert {name: (v["value"], v["stddev"]) for name, v in values.items()} == {
        "a": (35, 4.0), "b": (35, 4.0),
    }  # fmt: skip


def test_an_unknown_kind_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match='"median" must be one of "count", "sum", "mean"'):
        deployment(more='aggregate = [{ kind = "median" }]')


X = '{ kind = "distinct", field = "x" }'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (f'aggregate = [{{ kind = "count" }}, {X}]', "stands alone: .* share a"),
        (f'aggregate = [{X}]\nsign = "gone"', "leave out sign, and drop deletions with where"),
        ('aggregate = [{ kind = "distinct", field = "page" }]', "'page' is a column of key"),
    ],
)
def test_distinct_values_are_refused_where_they_have_no_meaning(more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        deployment(more=more)


def test_distinct_values_may_be_of_a_derived_column() -> None:
    more = f"aggregate = [{X}]\nderive = {{ x = {{ field = 'n', bucket = 5 }} }}"
    p = deployment(more=more).pipelines[0]
    assert p.traits.pairs and p.key_names == ("page",)
    assert p.fields.key == ("page", "x") and set(p.fields.derived) == {"x"}
    assert counted_in(p.aggregates) == "x"
    assert p.aggregates[0].label == "distinct_x"


@pytest.mark.parametrize(
    ("low", "high", "grid", "message"),
    [
        ("0", "1", "1e400", "grid: must lie between 1e-100 and 1e+100"),
        ("0", "7e-322", "7e-324", "grid: must lie between 1e-100 and 1e+100"),
        ("0", "1e-330", "1e-331", "grid: must lie between 1e-100 and 1e+100"),
        ("1e900", "1", "1", "low: is more than 2147483648 grid steps from 0"),
        ("0", "1e900", "1", "high: is more than 2147483648 grid steps from 0"),
        ("2", "1", "1", "high: 1 must exceed low = 2"),
        ("0", "1.5", "1", "high: 1.5 is not a multiple of grid = 1"),
    ],
)
def test_a_clipping_interval_that_doubles_cannot_count_is_refused(
    low: str, high: str, grid: str, message: str
) -> None:
    column = Sum("sum", "a", Fraction(low), Fraction(high), Fraction(grid))
    assert message in [": ".join(one)[: len(message)] for one in column.objections()]


@pytest.mark.parametrize("grid", ["1e-100", "0.01", "1e100"])
def test_values_on_the_finest_and_the_coarsest_grid_are_counted_in_its_steps(grid: str) -> None:
    step = Fraction(grid)
    column = Sum("sum", "a", Fraction(0), 2**31 * step, step)
    assert list(column.objections()) == []
    values = [float(step * n) for n in (0, 1, 7, 2**31 - 1, 2**31)]
    assert np.rint(np.array(values) / float(step)).tolist() == [0, 1, 7, 2**31 - 1, 2**31]


SPREAD = 'aggregate = [{ kind = "variance", field = "n", low = -3.5, high = 9, grid = 0.5 }, '
SPREAD += '{ kind = "stddev", field = "n", low = -3.5, high = 9, grid = 0.5 }]'


SOME = SPREAD.replace(" }", ', where = [{ field = "n", above = -9 }] }')


@pytest.mark.spread(3)
@pytest.mark.parametrize("data", ["skewed", "constant", "ends", "spread"])
@pytest.mark.parametrize(("n", "some"), [(300, False), (3000, False), (3000, True)])
def test_intervals_of_variance_and_deviation_cover_the_truth(data: str, n: int, some: bool) -> None:
    """95 % intervals cover in 92 to 98.5 % of releases; more only if the truth is at an end."""
    p = deployment(more=SOME if some else SPREAD).pipelines[0]
    random = np.random.default_rng(7)
    raw = {
        "skewed": np.clip(random.exponential(1.5, n) - 3.5, -3.5, 9), "constant": np.full(n, 2.0),
        "ends": np.where(np.arange(n) % 3, -3.5, 9), "spread": random.uniform(-3, 8, n),
    }[data]  # fmt: skip
    u = np.rint(raw / 0.5).astype(np.int64) - 5  # around the middle of [-7, 18] steps
    count, total, squares = n, int(u.sum()), int((u**2 - 169).sum())
    truth = float(np.var(np.rint(raw / 0.5) * 0.5))
    names = [output.name for output in p.traits.outputs]
    parts = ["sum", "sum", "square", "centred"]  # with a condition: sum and count
    assert [one.split(":")[0] for one in names] == [parts[0] if some else "count", *parts[1:]]
    runs = 600
    spread = np.array([4.0, 1.0, 4.0 * 169, 4.0 * 13])
    exact = np.array([count, 0, squares, total])
    noisy = np.rint(exact + random.normal(0, spread, (runs, 4))).astype(np.int64)
    keys = Keys.of(json.dumps([str(i)]).encode() for i in range(runs))
    variance = np.broadcast_to(spread**2, (runs, 4))
    if some:
        noisy, variance = noisy[:, [1, 0, 2, 3]], variance[:, [1, 0, 2, 3]]
    released = Releases(keys, noisy, variance, np.ones(runs, np.int32), {})
    found = [
        json.loads(o.value or b"")["values"]
        for o in Writer(p, trigger(p, 2, [0]), 0).rows(released)
    ]
    for name, exactly in (("variance_n", truth), ("stddev_n", math.sqrt(truth))):
        inside = np.mean([one[name]["low"] <= exactly <= one[name]["high"] for one in found])
        assert inside >= 0.92
        assert inside <= 0.985 or data in ("constant", "ends")  # no value is beyond the ends
    assert abs(np.mean([one["variance_n"]["value"] for one in found]) - truth) < 0.1 * 39.1 * 40 / n
    assert min(one["variance_n"]["value"] for one in found) >= 0


def test_a_variance_of_too_few_records_is_null_and_a_negative_one_0() -> None:
    given = "v", ZERO, FIFTY
    both = Variance("variance", *given), Variance("variance", *given, sample=True)
    one = [estimate(1), estimate(-625), estimate(0)]
    assert [v.finish(one) is None for v in both] == [False, True]
    assert Stddev("stddev", *given, sample=True).finish(one) is None
    assert both[0].finish([estimate(0), estimate(-5), estimate(0)]) is None
    low = both[0].finish([estimate(10), estimate(-6250), estimate(100)])
    assert low is not None and low.value == 0 and low.stddev > 0
    four = [estimate(4), estimate(4 * (25 - 625)), estimate(0)]  # four values, each 5 from 25
    assert [v.finish(four).value for v in both] == [25, Fraction(25 * (4 / 3))]  # type: ignore[union-attr]
    root = Stddev("stddev", *given).finish(four)
    assert root is not None and root.value == 5 and root.square == both[0].finish(four)


def test_a_small_mean_keeps_its_value() -> None:
    mean = Mean(kind="mean", field="x", low=Fraction(0), high=Fraction(1, 10**6))
    made = mean.finish([Estimate(Fraction(10**6), 5.0), Estimate(Fraction(33, 100), 6e-6)])
    assert made is not None and float(made.value) == pytest.approx(3.3e-7, rel=1e-3)
