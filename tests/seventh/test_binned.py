"""The mechanism itself: the contract suite, exact counts, its cost."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Part, Releases
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Trace
from hushstream.mechanisms.keys import Keys

from ..mechanisms import test_contract as contract
from ..mechanisms.case import Case
from .binned.entry import BinnedParameters, build

KEYS, T, C = (b'["a"]', b'["b"]', b'["c"]'), 5, 2
SETTING = Setting(Fraction(1), Fraction(1, 10**6), T, keys=KEYS)
MADE = build(BinnedParameters((0, 1, 5, 20), C), SETTING)


def trace(draw: np.random.Generator, n: int = 200) -> Trace:
    """Records of forty units with random bins and keys, some of them deletions."""
    trigger = np.sort(draw.integers(1, T + 1, n)).astype(np.intp)
    sign = np.where(draw.random(n) < 0.1, -1, 1).astype(np.int8)
    key, place = draw.integers(0, len(KEYS), n), draw.integers(0, MADE.bins, (n, 1))
    return Trace(trigger, draw.integers(0, 40, n), Keys.of(KEYS), key, place, sign)


def exact(events: Trace, releases: Sequence[Releases]) -> None:
    """Check each count against the first C insertions of each unit so far."""
    used: Counter[int] = Counter()
    count = np.zeros((len(KEYS), MADE.bins), np.int64)
    for t, release in enumerate(releases, 1):
        for row in np.flatnonzero(events.trigger == t).tolist():
            unit = int(events.unit[row])
            if events.sign[row] > 0 and used[unit] < C:
                used[unit] += 1
                count[events.key[row], events.value[row, 0]] += 1
        assert release.key.tolist() == list(KEYS)
        np.testing.assert_array_equal(release.value, count)


def table(parts: Sequence[Part]) -> Any:
    """(T, keys, bins) counts of each micro-batch."""
    out = np.zeros((T, len(KEYS), MADE.bins), np.int64)
    for t, part in enumerate(parts):
        for key, lane, sums in zip(part.key, part.lane, part.sums, strict=True):
            out[t, KEYS.index(key), lane] += sums[0]
    return out


def distance(first: Sequence[Part], second: Sequence[Part]) -> float:
    """Squared distance of all released counts, which add up over triggers."""
    moved = np.cumsum(table(first) - table(second), axis=0)
    return float((moved**2).sum())


CASE = Case("binned", MADE, trace, exact, distance, T * C**2, Keys.of(KEYS))
CHECKS = [
    one
    for name, one in vars(contract).items()
    if name.startswith("test_") and "case" in inspect.signature(one).parameters
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Callable[..., None]) -> None:
    more = {"bound": 3, "aggregate": 2, "slice_size": 7}
    asked = inspect.signature(check).parameters
    check(case=CASE, **{name: value for name, value in more.items() if name in asked})


def test_the_cost_is_that_of_its_proof() -> None:
    assert MADE.cost().mu2 == T * C**2 / MADE.variance
    with_more = build(BinnedParameters(MADE.edges, 2 * C), SETTING)
    assert float(with_more.variance / MADE.variance) == pytest.approx(4, rel=0.02)


def test_a_value_is_in_the_bin_that_holds_it() -> None:
    values = np.array([-0.1, 0.0, 0.99, 1.0, 19.9, 20.0, np.inf])
    found = MADE.encode({"value": values})
    assert found.keep.tolist() == [False, True, True, True, True, False, False]
    assert found.value[found.keep, 0].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("parameters", "setting", "said"),
    [
        (BinnedParameters((0, 0)), SETTING, "increasing"),
        (BinnedParameters((0,)), SETTING, "2 to 201"),
        (BinnedParameters(), replace(SETTING, keys=None), "public_keys"),
        (BinnedParameters(bound=0), SETTING, "bound"),
        (BinnedParameters(), Setting(Fraction(1), Fraction(0), 1, keys=KEYS), "delta"),
    ],
)
def test_impossible_settings_are_refused(
    parameters: BinnedParameters, setting: Setting, said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        build(parameters, setting)
