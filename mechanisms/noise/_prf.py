"""A pseudo-random function from (key bytes, index) to 128-bit blocks, vectorised over both.

CBC-MAC with AES-256 over the prefix-free message ``length ‖ key ‖ zeros to a block ‖ (index,
counter)``: the length, in the first block, fixes the number of blocks, so no message is a proper
prefix of another, and CBC-MAC is a pseudo-random function on such messages (Petrank and Rackoff,
*CBC MAC for Real-Time Data Sources*, 2000) up to about q²/2¹²⁸ for q blocks under one AES key. An
AES key serves one label (charge, window, purpose, scale …): a thousand million draws leave 2⁻⁶⁸.

The chain over the key bytes runs once per key; each draw costs one more block.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from ...errors import ContractError
from ..keys import Keys
from ._tables import U64

IntLike = TypeVar("IntLike", int, NDArray[np.int64])

_WORD = np.dtype("<u8")  # one byte order on every machine
_BLOCK = 16
_LENGTH = 8


class Prf:
    """AES-256 CBC-MAC under one derived key. Not for use by two threads at once."""

    def __init__(self, secret: bytes) -> None:
        self._aes = Cipher(algorithms.AES256(secret), modes.ECB()).encryptor()

    def states(self, keys: Keys) -> U64:
        """(n, 2) chaining values after the key bytes."""
        width = keys.width()
        if width is not None:
            return self._chain(_message(keys.packed().reshape(len(keys), width), width))
        lengths = np.diff(keys.offsets)
        blocks = _block_count(lengths)
        if len(keys) and (blocks == blocks[0]).all():
            padded = _padded(keys, int(blocks[0]) * _BLOCK - _LENGTH)
            return self._chain(_message(padded, lengths[:, None]))
        states = np.empty((len(keys), 2), _WORD)
        for count in np.unique(blocks).tolist():
            rows = np.flatnonzero(blocks == count)
            padded = _padded(keys.take(rows), count * _BLOCK - _LENGTH)
            states[rows] = self._chain(_message(padded, lengths[rows, None]))
        return states

    def blocks(self, states: U64, index: NDArray[np.int64], counter: int) -> U64:
        """(…, 2) words: the block of each state with the index and the counter beside it.

        Args:
            states: (…, 2) chaining values, to be broadcast against the index.
            index: (…) any integers.
            counter: 0 … 2⁶⁴-1, further blocks of the same draw.
        """
        block = np.empty((*np.broadcast_shapes(index.shape, states.shape[:-1]), 2), _WORD)
        np.bitwise_xor(states[..., 0], index.astype("<i8").view(_WORD), out=block[..., 0])
        block[..., 1] = states[..., 1] ^ _WORD.type(counter)
        return self._encrypt(block)

    def _chain(self, message: U64) -> U64:
        state = np.zeros((len(message), 2), _WORD)
        for block in range(message.shape[1] // 2):
            state = self._encrypt(state ^ message[:, 2 * block : 2 * block + 2])
        return state

    def _encrypt(self, block: U64) -> U64:
        """AES of every 16 bytes of a contiguous array."""
        out = np.empty(block.nbytes + _BLOCK - 1, np.uint8)
        if block.nbytes and self._aes.update_into(block.data.cast("B"), out.data) != block.nbytes:
            raise ContractError("the cipher returned fewer bytes than it was given")
        return out[: block.nbytes].view(_WORD).reshape(block.shape)


def _block_count(length: IntLike) -> IntLike:
    return -(-(length + _LENGTH) // _BLOCK)


def _message(keys: NDArray[np.uint8], length: int | NDArray[np.int64]) -> U64:
    """(n, 2·blocks) words: length, the (n, width) bytes, zeros."""
    rows, width = keys.shape
    message = np.zeros((rows, _block_count(width) * _BLOCK), np.uint8)
    words = message.view(_WORD)
    words[:, :1] = length
    message[:, _LENGTH : _LENGTH + width] = keys
    return words


def _padded(keys: Keys, width: int) -> NDArray[np.uint8]:
    """(n, width) bytes: every key, then zeros."""
    padded = np.zeros((len(keys), width), np.uint8)
    padded[np.arange(width) < np.diff(keys.offsets)[:, None]] = keys.packed()
    return padded
