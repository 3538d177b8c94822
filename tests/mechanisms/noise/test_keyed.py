"""Keyed noise: labels, distributions through the whole path, and agreement with OpenDP.

All draws are functions of fixed labels, so every statistic below is one fixed number: a test can
fail only when the sampler changes. OpenDP draws from the system; its tests have a false-alarm rate
of 10⁻⁹.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.contract import Noise
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import (
    DELTA_PER_DRAW,
    STEADY,
    KeyedNoise,
    ZeroNoise,
    derive,
    encode,
    fingerprint,
    statistical_distance,
    zero,
)
from hushstream.mechanisms.noise import _grid as grid
from hushstream.mechanisms.noise import keyed as module
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ...oracles.noise import gaussian_law

I64 = NDArray[np.int64]
SECRET = bytes(range(32))
NOISE = KeyedNoise(
    SECRET,
    charge=b"c" * 32,
    mechanism="histogram",
    config=b"hash",
    pipeline="trips",
    window="w1",
    nonces=STEADY,
)
KEYS = Keys.of([b"", b"a", b"ab", b"a key that fills more than a block", b"12345678"])
INDEX = np.array([0, 1, 7, -1, 2**63 - 1, -(2**63)], np.int64)
ONE = Keys.of([b"one"])


def at(index: NDArray[np.generic], trigger: int = 1) -> I64:
    """First triggers of draws that all cover content from ``trigger`` on."""
    return np.full(len(index), trigger, np.int64)


def many(kind: str, parameter: Fraction | int, count: int = 200_000) -> I64:
    """Draws of one key under a window of its own, so that tests do not share them."""
    noise = replace(NOISE, window=f"{kind} {parameter}")
    draw = {"gauss": noise.gauss, "laplace": noise.laplace}[kind]
    index = np.arange(count)
    return draw("test", ONE, index, Fraction(parameter), at(index)).ravel()


# --- same arguments, same draw ------------------------------------------------------------------

DRAWS: dict[str, Callable[[KeyedNoise, Keys, I64], NDArray[np.generic]]] = {
    "gauss": lambda n, k, i: n.gauss("p", k, i, Fraction(50), at(i)),
    "gauss, two tables": lambda n, k, i: n.gauss("p", k, i, Fraction(10**7), at(i)),
    "gauss, three tables": lambda n, k, i: n.gauss("p", k, i, Fraction(10**10), at(i)),
    "laplace": lambda n, k, i: n.laplace("p", k, i, Fraction(50), at(i)),
    "laplace, three tables": lambda n, k, i: n.laplace("p", k, i, Fraction(10**8), at(i)),
    "bits": lambda n, k, i: n.bits("p", k, i, at(i)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_order_and_company_do_not_matter(draw: Callable[..., NDArray[np.generic]]) -> None:
    whole = draw(NOISE, KEYS, INDEX)
    rows, columns = np.array([3, 0, 3, 4]), np.array([5, 1, 1])
    part = draw(NOISE, KEYS[rows], INDEX[columns])
    np.testing.assert_array_equal(part, whole[rows][:, columns])
    for row in range(len(KEYS)):
        single = draw(NOISE, KEYS[row : row + 1], INDEX[2:3])
        np.testing.assert_array_equal(single[0, 0], whole[row, 2])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_chunking_does_not_matter(
    draw: Callable[..., NDArray[np.generic]], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = draw(NOISE, KEYS, INDEX)
    monkeypatch.setattr(grid, "CHUNK", chunk)
    np.testing.assert_array_equal(draw(NOISE, KEYS, INDEX), whole)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_nothing_asked_nothing_drawn(draw: Callable[..., NDArray[np.generic]]) -> None:
    assert draw(NOISE, Keys.of([]), INDEX).shape[:2] == (0, 6)
    assert draw(NOISE, KEYS, INDEX[:0]).shape[:2] == (5, 0)


GOLDEN = {  # A change here changes released noise: raise SAMPLER_VERSION with it.
    "gauss": "ca5d916bb3d51b4f08b2f279a6971c09",
    "gauss, two tables": "7757d4ca8e5e4b7ccf990f3e9aa43534",
    "gauss, three tables": "0d9de387f2ff44e208448cd66b6bceb1",
    "laplace": "1792d2278ee98ef5ea4dac0a29c049db",
    "laplace, three tables": "551a5c4d742c3dc7a6c033ce54d361a4",
    "bits": "08e4d14614a8182e952aedc0665e951c",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name: str) -> None:
    keys = Keys.of(f"key {i}".encode() for i in range(40))
    drawn = DRAWS[name](NOISE, keys, np.arange(500))
    little = drawn.astype(drawn.dtype.newbyteorder("<"))
    assert hashlib.sha256(little.tobytes()).hexdigest()[:32] == GOLDEN[name]


def test_golden_draws_are_readable() -> None:
    eight = np.arange(8)
    gauss = [8, -16, 4, 13, -4, 1, 2, 18]
    laplace = [-6, 10, -5, 12, 1, -13, 5, 8]
    assert NOISE.gauss("p", ONE, eight, Fraction(100), at(eight)).tolist() == [gauss]
    assert NOISE.laplace("p", ONE, eight, Fraction(10), at(eight)).tolist() == [laplace]


def test_a_draw_is_the_inverse_distribution_function_of_its_labelled_block() -> None:
    """The path from secret to integer, recomputed with the standard library and decimals."""
    key, index, purpose, variance = b"some key", 5, "p", Fraction(100)
    fields = [b"1", b"gauss", b"p", b"100", b"1", b"histogram", b"trips", b"hash", b"w1"]
    label = encode([*fields, b"c" * 32, b"\0", bytes(16)])
    extracted = hmac.digest(bytes(32), SECRET, "sha256")  # HKDF by hand: extract, expand
    derived = hmac.digest(extracted, encode([b"hushstream", b"noise"]) + b"\1", "sha256")
    aes = Cipher(algorithms.AES256(hmac.digest(derived, label, "sha256")), modes.CBC(bytes(16)))
    text = len(key).to_bytes(8, "little") + key + index.to_bytes(8, "little") + bytes(8)
    uniform = Decimal(int.from_bytes(aes.encryptor().update(text)[16:24], "little")) / 2**64
    total, expected = Decimal(0), None
    for value, p in gaussian_law(variance, 200).items():
        total += p
        expected = value if expected is None and uniform < total else expected
    drawn = NOISE.gauss(purpose, Keys.of([key]), np.array([index]), variance, at(np.array([index])))
    assert drawn.tolist() == [[expected]]


# --- errors and the rest of the interface -------------------------------------------------------


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), "s" * 32, bytearray(32)])
def test_a_secret_has_32_bytes(secret: bytes) -> None:
    for use in (lambda: replace(NOISE, secret=secret), lambda: derive(secret, "x")):
        with pytest.raises(ParameterError, match="secret"):
            use()
    with pytest.raises(ParameterError):
        fingerprint(secret)


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(ParameterError) as caught:
        replace(NOISE, secret=b"hunter2")
    assert "hunter2" not in str(caught.value)
    assert repr(SECRET) not in repr(NOISE)


def test_a_charge_is_a_hash() -> None:
    with pytest.raises(ParameterError, match="charge"):
        replace(NOISE, charge=b"short")


@pytest.mark.parametrize("source", [NOISE, zero], ids=["keyed", "zero"])
@pytest.mark.parametrize("value", [0, -1, Fraction(-1, 3), 0.5, float("nan"), Fraction(2**101)])
def test_scales_are_positive_rationals(source: Noise, value: Fraction) -> None:
    with pytest.raises(ParameterError, match="variance = "):
        source.gauss("p", KEYS, INDEX, value, at(INDEX))
    with pytest.raises(ParameterError, match="scale = "):
        source.laplace("p", KEYS, INDEX, value, at(INDEX))


def test_integers_of_any_make_are_the_same_scale() -> None:
    expected = NOISE.gauss("p", KEYS, INDEX, Fraction(10**18), at(INDEX))
    for same in (10**18, np.int64(10**18)):
        np.testing.assert_array_equal(NOISE.gauss("p", KEYS, INDEX, same, at(INDEX)), expected)


@pytest.mark.parametrize("source", [NOISE, zero], ids=["keyed", "zero"])
@pytest.mark.parametrize("index", [np.zeros((2, 2), np.int64), np.zeros(2), np.zeros(2, np.int32)])
def test_an_index_is_a_vector_of_int64(source: Noise, index: I64) -> None:
    for draw in (
        lambda: source.gauss("p", KEYS, index, Fraction(1), at(index)),
        lambda: source.laplace("p", KEYS, index, Fraction(1), at(index)),
        lambda: source.bits("p", KEYS, index, at(index)),
    ):
        with pytest.raises(ContractError, match="index"):
            draw()


def test_a_sampler_beyond_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELTA_PER_DRAW", Fraction(1, 2**127))
    with pytest.raises(ContractError, match="accounted"):
        NOISE.gauss("p", KEYS, INDEX, Fraction(1), at(INDEX))


@given(st.sampled_from(["gauss", "laplace"]), st.fractions(min_value=Fraction(1, 9), max_value=99))
@settings(max_examples=20, deadline=None)
def test_distance_is_stated_and_bounded(kind: str, parameter: Fraction) -> None:
    assert 0 < statistical_distance(kind, parameter) <= DELTA_PER_DRAW


def test_distance_of_an_unknown_kind() -> None:
    with pytest.raises(ParameterError, match="kind"):
        statistical_distance("cauchy", Fraction(1))


def test_derived_keys_are_of_32_bytes_and_differ() -> None:
    names = ["noise", "hashing", "sampling", "fingerprint", ""]
    derived = [derive(secret, name) for name in names for secret in (SECRET, SECRET[::-1])]
    assert len({*derived}) == len(derived)
    assert {len(key) for key in derived} == {32}
    assert derive(SECRET, "hashing") == derived[2]


def test_fingerprint_is_pinned() -> None:
    assert fingerprint(SECRET) == "6dc1e049f64e751a54c4a32686ba4aa5"
    assert fingerprint(SECRET) != fingerprint(SECRET[::-1])


def test_zero_noise_is_zero() -> None:
    assert not zero.gauss("p", KEYS, INDEX, Fraction(9), at(INDEX)).any()
    assert not zero.laplace("p", KEYS, INDEX, Fraction(9), at(INDEX)).any()
    assert zero.bits("p", KEYS, INDEX, at(INDEX)).shape == (5, 6, 2)
    assert not zero.bits("p", KEYS, INDEX, at(INDEX)).any()
    assert zero == ZeroNoise()


def test_noise_is_frozen_and_meets_the_contract() -> None:
    with pytest.raises(FrozenInstanceError):
        NOISE.window = "other"  # type: ignore[misc]
    checked: list[Noise] = [NOISE, zero]
    assert len(checked) == 2
