"""The private number of records beside a map: which records it counts, and what it corrects."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.catalogue import find
from hushstream.mechanisms.columns import empty_units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.parts.bounds.record_total import PrivateTotal
from hushstream.mechanisms.phdstream.mechanism import PHDStream
from hushstream.mechanisms.spatial.domain import Domain

LINE = Domain.unit(1, 3)
KINDS = ("phdstream", "privhp")


def made(kind: str, horizon: int = 3, epsilon: int = 400, **given: Any) -> Any:
    entry = find(kind)
    parameters = entry.parameters(domain=LINE, debias=True, **given)
    return entry.build(parameters, Setting(Fraction(epsilon), Fraction(0), horizon))


def trace(units: list[tuple[int, int, int]]) -> Trace:
    """(trigger, unit, records), all in one cell."""
    rows = [(t, u) for t, u, many in units for _ in range(many)]
    t, unit = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    keys = Keys.of_codes(LINE.place(np.full((1, 1), 0.3)))
    one = np.ones(len(rows), np.int8)
    return Trace(t, unit, keys, np.zeros(len(rows), np.intp), np.empty((len(rows), 0), int), one)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_scaled_up_to_the_number_of_records(kind: str) -> None:
    """The map counts 2 records of each unit; four units send 7, one sends more than the cap."""
    mechanism = made(kind, bound=2, debias_cap=10)
    events = trace([(1, 0, 7), (1, 1, 7), (2, 2, 4), (2, 3, 7), (3, 2, 3), (3, 4, 25)])
    released = list(run(Memory(mechanism, ZeroNoise()), events, 5))
    grid = float(mechanism.traits.outputs[0].grid)
    counted = [int(one.public["counted"][0]) for one in released]
    records = [int(one.public["records"][0]) for one in released]
    assert counted == [4, 8, 10]
    assert records == [14, 25, 38]
    totals = [float(one.value[:, 0].sum() * grid) for one in released]
    assert totals == pytest.approx(records, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_noise_hides_corrects_nothing(kind: str) -> None:
    mechanism = made(kind, epsilon=1, bound=2, debias_cap=10)
    events = trace([(1, 0, 7), (1, 1, 7)])
    *_, last = run(Memory(mechanism, ZeroNoise()), events)
    assert last.public["records"] == [14]
    assert last.value[:, 0].sum() * float(mechanism.traits.outputs[0].grid) == 4


def test_what_is_held_back_counts_at_the_first_release() -> None:
    mechanism = made("phdstream", bound=1, first=2)
    events = trace([(1, 0, 5), (2, 1, 4), (3, 2, 3)])
    released = list(run(Memory(mechanism, ZeroNoise()), events))
    assert "records" not in released[0].public
    assert [int(one.public["records"][0]) for one in released[1:]] == [9, 12]


def test_a_factor_is_never_beyond_what_the_cap_allows() -> None:
    total = PrivateTotal(2, 10, Fraction(1000))
    value = np.array([[300], [100]], np.int64)
    for records, factor in ((50, 1.0), (400, 1.0), (800, 2.0), (10**6, 5.0)):
        shown = total.corrected(value, np.ones((2, 1)), 1, records, 1)
        assert shown.value.tolist() == (value * factor).tolist()
        assert (shown.variance >= factor**2).all()


def test_the_scale_of_a_draw_is_the_cap_over_epsilon() -> None:
    total = PrivateTotal(1, 30, Fraction(1, 5))
    assert total.scale == 150
    assert total.variance(4) == 4 * 2 * 150**2


@pytest.mark.parametrize("kind", KINDS)
def test_map_and_number_together_cost_epsilon(kind: str) -> None:
    for given in ({}, {"debias_share": 0.5, "bound": 3}):
        mechanism = made(kind, epsilon=1, **given)
        spent = mechanism.cost().epsilon
        assert Fraction(99, 100) < spent <= 1
        assert mechanism.total.epsilon == Fraction(given.get("debias_share", Fraction(1, 10)))


def test_what_units_have_left_fits_the_widest_row() -> None:
    total = PrivateTotal(3, 7, Fraction(1))
    assert total.fresh == 3 + 4 * 7
    assert empty_units(2, 1, total.fresh).left.tolist() == [31, 31]
    with pytest.raises(ParameterError, match="debias_cap"):
        PrivateTotal(1 << 16, 1 << 16, Fraction(1))


@pytest.mark.parametrize(
    "given",
    [
        {"bound": 5, "debias_cap": 4},
        {"debias_share": 0},
        {"debias_share": 1},
        {"deletions": True, "bound": 2},
        {"lifetime": 2, "bound": 2},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="debias"):
        made("phdstream", **given)


def test_a_map_without_it_has_no_totals() -> None:
    entry = find("phdstream")
    mechanism = entry.build(entry.parameters(), Setting(Fraction(1), Fraction(0), 2))
    assert isinstance(mechanism, PHDStream)
    assert mechanism.traits.totals == 0
    assert mechanism.total is None
