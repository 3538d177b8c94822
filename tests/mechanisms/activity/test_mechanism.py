"""Activity: rows, one release per window, exact answers, the profile read from released rows."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.activity.mechanism import Activity
from hushstream.mechanisms.columns import Closed, empty_part
from hushstream.mechanisms.in_memory import Memory
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.parts.unit_profile import STEPS, profile_of
from hushstream.mechanisms.truth import WindowRecords
from hypothesis import given
from hypothesis import strategies as st

from ..cases.activity import KEYS, MADE, MOST, by_hand, trace

NOISELESS = ZeroNoise()


def test_a_row_names_the_upper_ends_of_its_bucket() -> None:
    keys = Keys.of_codes(np.arange(MADE.profile.buckets, dtype=np.uint64))
    places = [one.key for one in MADE.traits.keys.places(keys, ())]
    steps = [1 << n for n in range(MOST.bit_length())]
    assert places == [
        {"records": r, "repeats": c} for r, c in product(steps, steps) if c <= r
    ]  # a record cannot repeat more often than the unit has records


def test_a_window_is_released_once() -> None:
    first = Closed(MADE.traits.rows(Keys.of([])), empty_part(0), 1)
    rows, _ = MADE.release(first, NOISELESS)
    with pytest.raises(ContractError, match="released before"):
        MADE.release(first._replace(rows=rows), NOISELESS)
    with pytest.raises(ContractError, match="trigger 1 alone"):
        MADE.release(first._replace(t=2), NOISELESS)


@given(st.integers(0, 1000))
def test_a_unit_moves_one_bucket_by_one(seed: int) -> None:
    events = trace(np.random.default_rng(seed))
    less = events.where(np.flatnonzero(events.unit != 1))

    def shown(some: object) -> np.ndarray:
        memory = Memory(MADE, NOISELESS)
        memory.absorb(some)  # type: ignore[arg-type]
        return memory.trigger().value[:, 0]

    assert Counter(np.abs(shown(events) - shown(less)).tolist())[STEPS] == 1
    assert np.abs(shown(events) - shown(less)).sum() == STEPS


def test_the_variance_is_what_the_cost_pays_for() -> None:
    assert MADE.cost().mu2 == Fraction(STEPS**2) / MADE.variance
    assert MADE.error(1) == pytest.approx(float(MADE.variance) ** 0.5)


def test_the_truth_is_what_would_be_released_without_noise() -> None:
    events = trace(np.random.default_rng(3))
    seen = WindowRecords(events.keys, events.key, events.value, events.sign, events.unit)
    truth = MADE.truth(seen, [])
    names = Keys.of(sorted(truth.held))
    places = [tuple(one.key.values()) for one in MADE.traits.keys.places(names, ())]
    held = dict(zip(places, (truth.held[key] for key in names), strict=True))
    assert {at: n for at, n in held.items() if n} == by_hand(events)
    assert truth.values["units"] == {key: float(n) for key, n in truth.held.items()}
    none = WindowRecords(Keys.of(KEYS), *(events.where(np.arange(0))[i] for i in (3, 4, 5, 1)))
    assert set(MADE.truth(none, []).held.values()) == {0}


def test_released_rows_are_read_back() -> None:
    keys = Keys.of_codes(np.arange(MADE.profile.buckets, dtype=np.uint64))
    steps = np.arange(MADE.profile.buckets) * 37 - 100
    ends = [(one.key["records"], one.key["repeats"]) for one in MADE.traits.keys.places(keys, ())]
    shown = dict(zip(ends, (steps / STEPS).tolist(), strict=True))
    assert profile_of(shown, MOST).tolist() == steps.tolist()
    for wrong in (dict(list(shown.items())[1:]), shown | {(2 * MOST, 1): 0.0}):
        with pytest.raises(ContractError, match="one number for each bucket"):
            profile_of(wrong, MOST)


def test_it_is_a_mechanism_of_one_shard() -> None:
    assert (MADE.traits.routing, MADE.traits.load, MADE.traits.counting) == ("single", "all", False)
    assert isinstance(MADE, Activity) and MADE.bounds("user")["budget"] == MOST
