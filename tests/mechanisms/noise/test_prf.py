"""The pseudo-random function against a plain CBC-MAC, one message at a time."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise._prf import Prf
from hypothesis import given, settings
from hypothesis import strategies as st

SECRET = bytes(range(32))
byte_keys = st.lists(st.binary(max_size=60), min_size=1, max_size=12)
indices = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8)
counters = st.integers(0, 2**64 - 1)


def message(key: bytes, index: int, counter: int) -> bytes:
    padding = bytes(-(8 + len(key)) % 16)
    head = len(key).to_bytes(8, "little") + key + padding
    return head + index.to_bytes(8, "little", signed=True) + counter.to_bytes(8, "little")


def cbc_mac(secret: bytes, text: bytes) -> bytes:
    cbc = Cipher(algorithms.AES256(secret), modes.CBC(bytes(16))).encryptor()
    return (cbc.update(text) + cbc.finalize())[-16:]


def word_bytes(words: np.ndarray) -> bytes:
    return words.astype("<u8").tobytes()


@given(byte_keys, indices, counters)
@settings(max_examples=60, deadline=None)
def test_blocks_are_cbc_macs(keys: list[bytes], index: list[int], counter: int) -> None:
    prf = Prf(SECRET)
    states = prf.states(Keys.of(keys))
    blocks = prf.blocks(states[:, None], np.array(index, np.int64)[None], counter)
    assert blocks.shape == (len(keys), len(index), 2)
    for row, key in enumerate(keys):
        for column, i in enumerate(index):
            expected = cbc_mac(SECRET, message(key, i, counter))
            assert word_bytes(blocks[row, column]) == expected


def test_matches_a_known_answer_of_the_cipher() -> None:
    """FIPS 197, appendix C.3: key 00…1f, block 00112233…ff; here as the last block of a chain."""
    block = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), "<u8")
    cipher = Prf(SECRET).blocks(block[None], np.zeros(1, np.int64), 0)
    assert word_bytes(cipher).hex() == "8ea2b7ca516745bfeafc49904b496089"


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 3), st.integers(0, 3))
def test_messages_are_prefix_free(a: bytes, b: bytes, i: int, j: int) -> None:
    first, second = message(a, i, 0), message(b, j, 0)
    assert (first == second) == ((a, i) == (b, j))
    assert first == second or not second.startswith(first)


@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 24, 25])
def test_keys_of_one_width_take_no_other_path(width: int) -> None:
    rng = np.random.default_rng(width)
    keys = Keys.fixed(rng.integers(0, 256, (20, width), np.uint8))
    mixed = Keys.of([*keys.tolist(), b"a key of quite another length"])
    prf = Prf(SECRET)
    np.testing.assert_array_equal(prf.states(keys), prf.states(mixed)[:20])


def test_states_of_a_slice_that_shares_its_bytes() -> None:
    keys = Keys.of([b"alpha", b"b", b"", b"a much longer key than a block", b"b"])
    part = Keys(keys.data, keys.offsets[1:6])
    prf = Prf(SECRET)
    np.testing.assert_array_equal(prf.states(part), prf.states(keys)[1:])


def test_nothing_in_nothing_out() -> None:
    prf = Prf(SECRET)
    assert prf.states(Keys.of([])).shape == (0, 2)
    assert prf.blocks(np.empty((0, 1, 2), "<u8"), np.zeros((1, 3), np.int64), 0).shape == (0, 3, 2)


def test_another_secret_gives_other_states() -> None:
    keys = Keys.of([b"alpha", b"beta"])
    assert (Prf(SECRET).states(keys) != Prf(SECRET[::-1]).states(keys)).all()
