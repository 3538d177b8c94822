"""Labels of keyed noise: any difference between two labels, or nonces, separates their draws."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.contract import Noise
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, encode, zero
from hushstream.mechanisms.noise import keyed as module
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from .test_keyed import I64, INDEX, KEYS, NOISE, ONE, SECRET, at


def decode(blob: bytes) -> list[bytes]:
    count, at, fields = int.from_bytes(blob[:8]), 8, []
    for _ in range(count):
        end = at + 8 + int.from_bytes(blob[at : at + 8])
        fields.append(blob[at + 8 : end])
        at = end
    assert at == len(blob)
    return fields


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_encoding_can_be_undone_hence_is_injective(fields: list[bytes]) -> None:
    assert decode(encode(fields)) == fields


texts = st.text("ab|\x00é", max_size=3)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "charge": st.binary(min_size=32, max_size=32),
    "mechanism": texts,
    "config": st.binary(max_size=2),
    "pipeline": texts,
    "window": texts,
    "test": st.booleans(),
    "kind": st.sampled_from(["gauss", "laplace", "bits"]),
    "purpose": texts,
    "scale": st.fractions(min_value=Fraction(1, 9), max_value=99, max_denominator=12),
    "nonce": st.binary(min_size=16, max_size=16),
}
labels = st.fixed_dictionaries(FIELDS)


@given(labels, labels, st.sets(st.sampled_from(sorted(FIELDS)), max_size=3))
@settings(max_examples=300)
def test_labels_differ_iff_a_field_differs(a: dict, other: dict, changed: set[str]) -> None:
    b = a | {name: other[name] for name in changed}
    assert (_label(a) == _label(b)) == (a == b)


def _label(fields: dict) -> bytes:
    bound = dict(fields)
    call = [bound.pop(name) for name in ("kind", "purpose", "scale", "nonce")]
    return KeyedNoise(SECRET, **bound, nonces=STEADY)._label(*call)


OTHERS: dict[str, dict[str, object]] = {
    "secret": {"secret": SECRET[::-1]},
    "charge": {"charge": b"c" * 31 + b"d"},
    "mechanism": {"mechanism": "histogran"},
    "config": {"config": b"hasi"},
    "pipeline": {"pipeline": "trip"},
    "window": {"window": "w2"},
    "test": {"test": True},
    "nonce": {"nonces": ((1, b"n" * 16),)},
}


def uncorrelated(a: I64, b: I64) -> None:
    assert abs(stats.pearsonr(a, b).statistic) < 5 / len(a) ** 0.5
    same = (a == b).mean()  # two independent draws of variance 10⁴ agree once in 354 times
    assert same < 0.005


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("kind", ["gauss", "laplace"])
def test_each_bound_field_separates_the_noise(changes: dict[str, object], kind: str) -> None:
    index, other = np.arange(20_000), replace(NOISE, **changes)
    scale, begun = Fraction(10**4), at(index)
    first, second = (getattr(n, kind)("p", ONE, index, scale, begun) for n in (NOISE, other))
    uncorrelated(first.ravel(), second.ravel())
    assert (NOISE.bits("p", ONE, index, at(index)) != other.bits("p", ONE, index, at(index))).all()


def test_purpose_key_and_kind_separate_the_noise() -> None:
    index, variance = np.arange(20_000), Fraction(10**4)
    base = NOISE.gauss("p", ONE, index, variance, at(index)).ravel()
    uncorrelated(base, NOISE.gauss("q", ONE, index, variance, at(index)).ravel())
    uncorrelated(base, NOISE.gauss("p", Keys.of([b"ond"]), index, variance, at(index)).ravel())
    uncorrelated(base, NOISE.gauss("p", Keys.of([b"one\0"]), index, variance, at(index)).ravel())
    narrow = NOISE.gauss("p", ONE, index, Fraction(100), at(index)).ravel()
    laplace = NOISE.laplace("p", ONE, index, Fraction(100), at(index)).ravel()  # from one table too
    assert abs(stats.pearsonr(narrow, laplace).statistic) < 5 / len(index) ** 0.5
    uncorrelated(base, NOISE.gauss("p", ONE, index + 20_000, variance, at(index + 20_000)).ravel())
    uncorrelated(base[1:], base[:-1])


def test_two_scales_never_share_a_draw() -> None:
    """One uniform at two scales gives draws in the ratio σ₁/σ₂, which reveals the exact answer."""
    index = np.arange(20_000)
    fine = NOISE.gauss("p", ONE, index, Fraction(10**4), at(index)).ravel()
    for variance in (Fraction(10**4 + 1), Fraction(10**8), Fraction(10**5, 3)):
        uncorrelated(fine, NOISE.gauss("p", ONE, index, variance, at(index)).ravel())
    wide = NOISE.laplace("p", ONE, index, Fraction(150), at(index)).ravel()
    uncorrelated(wide, NOISE.laplace("p", ONE, index, Fraction(151), at(index)).ravel())


def test_sampler_version_separates_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.arange(20_000)
    before = NOISE.gauss("p", ONE, index, Fraction(10**4), at(index)).ravel()
    monkeypatch.setattr(module, "SAMPLER_VERSION", "next")
    uncorrelated(before, NOISE.gauss("p", ONE, index, Fraction(10**4), at(index)).ravel())


def test_all_keys_and_indexes_have_draws_of_their_own() -> None:
    words = NOISE.bits("p", KEYS, INDEX, at(INDEX))
    assert words.shape == (5, 6, 2)
    assert len(np.unique(words)) == words.size


def test_a_window_may_be_named_in_bytes() -> None:
    text, raw = replace(NOISE, window="é"), replace(NOISE, window="é".encode())
    np.testing.assert_array_equal(
        text.bits("p", KEYS, INDEX, at(INDEX)), raw.bits("p", KEYS, INDEX, at(INDEX))
    )


# --- nonces -------------------------------------------------------------------------------------

TWO = replace(NOISE, nonces=((1, b"a" * 16), (4, b"b" * 16)))
ALONE = [replace(NOISE, nonces=((1, bytes([one]) * 16),)) for one in b"ab"]


@pytest.mark.parametrize("kind", ["gauss", "laplace", "bits"])
def test_each_draw_has_the_nonce_in_force_where_it_is_used_first(kind: str) -> None:
    def draw(noise: KeyedNoise, first: I64) -> NDArray[np.generic]:
        scale = () if kind == "bits" else (Fraction(50),)
        drawn: NDArray[np.generic] = getattr(noise, kind)("p", KEYS, INDEX, *scale, first)
        return drawn

    before, after = (draw(noise, at(INDEX)) for noise in ALONE)
    late = np.array([True, False, True, False, False, True])
    mixed = draw(TWO, np.where(late, 4, 3))
    np.testing.assert_array_equal(mixed[:, late], after[:, late])
    np.testing.assert_array_equal(mixed[:, ~late], before[:, ~late])
    late = np.array([False, True, True, False, True])
    mixed = draw(TWO, np.where(late, 9, 1)[:, None])
    np.testing.assert_array_equal(mixed[late], after[late])
    np.testing.assert_array_equal(mixed[~late], before[~late])
    np.testing.assert_array_equal(draw(TWO, at(INDEX, 3)), before)
    np.testing.assert_array_equal(draw(TWO, at(INDEX, 4)), after)
    np.testing.assert_array_equal(draw(TWO, at(INDEX, 10**9)), after)


@pytest.mark.parametrize(
    "nonces",
    [(), ((2, bytes(16)),), ((1, bytes(16)), (1, b"b" * 16)), ((1, bytes(15)),),
     ((1, bytes(16)), (3, b"b" * 16), (2, b"c" * 16))],
)  # fmt: skip
def test_nonces_hold_from_the_first_trigger_on_and_are_in_order(nonces: tuple) -> None:
    with pytest.raises(ParameterError, match="nonces"):
        replace(NOISE, nonces=nonces)


@pytest.mark.parametrize("source", [NOISE, zero], ids=["keyed", "zero"])
@pytest.mark.parametrize(
    "first", [at(INDEX, 0), at(INDEX)[:3], at(INDEX)[None], at(INDEX).astype(np.int32),
              np.ones((3, 1), np.int64)],
)  # fmt: skip
def test_first_triggers_fit_the_draws(source: Noise, first: I64) -> None:
    with pytest.raises(ContractError, match=r"first|trigger"):
        source.gauss("p", KEYS, INDEX, Fraction(1), first)
