"""The contract suite: every registered mechanism must supply cases and pass all checks.

Covers: mechanisms/parts/bounds/stated.py, mechanisms/in_memory.py
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import entries
from hushstream.mechanisms.columns import Part, Releases, merge
from hushstream.mechanisms.contract import Mechanism
from hushstream.mechanisms.in_memory import Memory, Trace, run, seed
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, ZeroNoise
from hypothesis import given, settings
from hypothesis import strategies as st

from . import cases as cases_package
from .case import Case

pytestmark = pytest.mark.spread(3)


def _cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(cases_package.__path__):
        yield from importlib.import_module(f"{cases_package.__name__}.{module.name}").CASES


CASES = list(_cases())
each = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def keyed(window: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"s" * 32,
        charge=b"c" * 32,
        mechanism="m",
        config=b"f",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


def memory(case: Case, **options: object) -> Memory:
    made = Memory(case.mechanism, options.pop("noise", None) or keyed(), **options)  # type: ignore[arg-type]
    if case.public is not None:
        seed(made, case.public)
    return made


def same(first: Sequence[Releases], second: Sequence[Releases]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.key.tolist() == b.key.tolist()
        np.testing.assert_array_equal(a.value, b.value)
        np.testing.assert_array_equal(a.variance, b.variance)
        np.testing.assert_array_equal(a.status, b.status)
        assert a.public.keys() == b.public.keys()
        for name in a.public:
            np.testing.assert_array_equal(a.public[name], b.public[name])


def trace_of(case: Case, number: int = 0) -> Trace:
    return case.trace(np.random.default_rng(number))


def test_every_registered_mechanism_has_a_case() -> None:
    tested = {case.name.split("-")[0] for case in CASES}
    assert set(entries()) <= tested


@each
def test_satisfies_the_protocol_and_is_frozen(case: Case) -> None:
    assert isinstance(case.mechanism, Mechanism)
    with pytest.raises(AttributeError):
        setattr(case.mechanism, fields(case.mechanism)[0].name, 1)  # type: ignore[arg-type]


@each
def test_traits_are_computed_once(case: Case) -> None:
    assert case.mechanism.traits is case.mechanism.traits


@each
@pytest.mark.parametrize(
    "bound,aggregate,slice_size",
    [(2, 1, 7), pytest.param(3, 4, 1, marks=pytest.mark.thorough), (5, 2, 64)],
)
def test_sharding_and_cutting_change_nothing(
    case: Case, bound: int, aggregate: int, slice_size: int
) -> None:
    trace = trace_of(case)
    whole = list(run(memory(case), trace))
    parts = memory(case, bound_shards=bound, aggregate_shards=aggregate)
    same(whole, list(run(parts, trace, slice_size)))


@pytest.mark.spread(2)
@each
def test_full_scan_equals_loading_what_is_due(case: Case) -> None:
    trace = trace_of(case, 1)
    same(list(run(memory(case), trace)), list(run(memory(case, scan=True), trace)))


@each
def test_replay_and_resume_are_bit_identical(case: Case) -> None:
    trace = trace_of(case, 2)
    whole = list(run(memory(case), trace))
    same(whole, list(run(memory(case), trace)))
    half = case.mechanism.traits.horizon // 2
    first = memory(case)
    begun = [release for _, release in zip(range(half), run(first, trace), strict=False)]
    first = copy.deepcopy(first)  # a restart: only the state survives
    first.t = len(begun)
    same(whole, begun + list(run(first, trace)))


@each
def test_functions_are_pure(case: Case) -> None:
    """Arguments are never changed in place."""
    trace = trace_of(case, 3)
    frozen = trace._replace(
        **{name: _locked(getattr(trace, name)) for name in ("value", "sign", "key", "unit")}
    )
    same(list(run(memory(case), trace)), list(run(memory(case), frozen)))


def _locked(array: np.ndarray) -> np.ndarray:
    copied = array.copy()
    copied.flags.writeable = False
    return copied


@each
def test_zero_noise_gives_the_exact_answer(case: Case) -> None:
    trace = trace_of(case, 4)
    case.exact(trace, list(run(memory(case, noise=ZeroNoise()), trace)))


@each
def test_other_labels_give_other_noise(case: Case) -> None:
    trace = trace_of(case, 5)
    first = list(run(memory(case, noise=keyed("a")), trace))
    second = list(run(memory(case, noise=keyed("b")), trace))
    if not case.noisy:
        same(first, second)
        return
    assert any(
        a.key.tolist() != b.key.tolist() or not np.array_equal(a.value, b.value)
        for a, b in zip(first, second, strict=True)
    )


def micro_batches(case: Case, trace: Trace, shards: int) -> list[Part]:
    """Merged parts of each micro-batch, without any release between them."""
    made = memory(case, bound_shards=shards)
    empty = case.mechanism.traits.part()
    out = []
    for t in range(1, case.mechanism.traits.horizon + 1):
        out.append(merge([empty, *made.absorb(trace.where(np.flatnonzero(trace.trigger == t)))]))
        made.t = t  # no release, so that neighbours have equal past outputs
    return out


@pytest.mark.spread(2)
@each
@settings(max_examples=15, deadline=None, derandomize=True)
@given(number=st.integers(0, 10_000), shards=st.integers(1, 3))
def test_one_unit_moves_the_parts_no_further_than_is_paid_for(
    case: Case, number: int, shards: int
) -> None:
    trace = trace_of(case, number)
    gone = int(trace.unit[number % len(trace.unit)])
    without = trace.where(np.flatnonzero(trace.unit != gone))
    moved = case.distance(micro_batches(case, trace, shards), micro_batches(case, without, shards))
    assert moved <= case.bound * (1 + 1e-12)


@each
def test_cost_is_exact_and_positive(case: Case) -> None:
    cost = case.mechanism.cost()
    assert all(isinstance(part, Fraction) for part in cost)
    assert cost.mu2 >= 0 and cost.epsilon >= 0 and 0 <= cost.delta < 1
    assert cost.mu2 + cost.epsilon > 0


@each
def test_error_is_finite_and_positive(case: Case) -> None:
    for t in range(1, case.mechanism.traits.horizon + 1):
        error = case.mechanism.error(t)
        assert error.shape == (len(case.mechanism.traits.outputs),)
        assert bool((error > 0).all()) and bool(np.isfinite(error).all())
    assert 1 <= case.mechanism.traits.foremost <= case.mechanism.traits.horizon


@each
def test_rows_have_fixed_width(case: Case) -> None:
    rows = case.mechanism.traits.rows(Keys.of([b"a" * 8, b"b" * 8]))
    assert rows.state.dtype == case.mechanism.traits.row_dtype
    assert not case.mechanism.traits.row_dtype.hasobject
