"""Keyed noise, drawn a second time: a discrete Gaussian that follows from a key and a label."""

import hmac
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .numbers import DIGITS


class Nonces(Protocol):
    """Which nonce a shard had in force: public, since manifests say it."""

    def shard(self, key: bytes) -> int: ...

    def nonce(self, window: int, shard: int, trigger: int) -> bytes: ...


Secret = bytes | Callable[[Mapping[str, Any]], bytes]
"""The noise key of a pipeline, or what tells that of a trigger."""


class Noise:
    """Discrete Gaussian draws that follow from a key and a label."""

    def __init__(self, secret: Secret, config: Mapping[str, Any], nonces: Nonces) -> None:
        self._secret, self._kind = secret, config["mechanism"]["kind"]
        self._roots: dict[bytes, bytes] = {}  # by label
        self._pipeline = config["name"]
        self._nonces = nonces
        self._aes: dict[bytes, Any] = {}

    def label(
        self, purpose: str, variance: Fraction, trigger: Mapping[str, Any], shard: int, first: int
    ) -> bytes:
        """What one draw is for. ``first`` is the trigger at which it covers content first."""
        words = ("1", "gauss", purpose, str(variance.numerator), str(variance.denominator),
                 self._kind, self._pipeline)  # fmt: skip
        hashed, window = trigger["config_hash"].encode(), str(trigger["window"]).encode()
        charge = bytes.fromhex(trigger["charge"])
        nonce = self._nonces.nonce(trigger["window"], shard, first)
        label = fields([*map(str.encode, words), hashed, window, charge, b"\0", nonce])
        secret = self._secret if isinstance(self._secret, bytes) else self._secret(trigger)
        self._roots[label] = derived(derived(secret, "noise"), "noise")
        return label

    def draw(self, label: bytes, key: bytes, index: int, variance: Fraction) -> int:
        """Draw number ``index`` of a key under a label."""
        aes = self._aes.get(label)
        if aes is None:
            made = hmac.digest(self._roots[label], label, "sha256")
            aes = self._aes[label] = Cipher(algorithms.AES256(made), modes.ECB()).encryptor()
        state, message = 0, len(key).to_bytes(8, "little") + key
        for place in range(0, len(message), 16):  # CBC-MAC; words are little-endian
            block = int.from_bytes(message[place : place + 16].ljust(16, b"\0"), "little")
            state = int.from_bytes(aes.update((state ^ block).to_bytes(16, "little")), "little")

        def word(counter: int, half: int) -> int:
            block = (state ^ index ^ counter << 64).to_bytes(16, "little")
            return int.from_bytes(aes.update(block)[8 * half : 8 * half + 8], "little")

        total, weight = 0, 1
        for stage, (least, edges) in enumerate(tables(variance)):
            high = word(stage // 2, stage % 2) << 64
            place = bisect_right(edges, high)
            if place < len(edges) and edges[place] < high + 2**64:  # the low half decides
                place = bisect_right(edges, high + word(2**32 + stage, 0))
            total += weight * (least + place)
            weight *= 64
        return total


def fields(parts: Sequence[bytes]) -> bytes:
    """Byte strings as one, injectively."""
    counted = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return len(parts).to_bytes(8, "big") + counted


def derived(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose: HKDF-SHA256 (RFC 5869), one block."""
    inner = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(inner, fields([b"hushstream", purpose.encode()]) + b"\1", "sha256")


@lru_cache(None)
def tables(variance: Fraction) -> list[tuple[int, list[int]]]:
    """P(z) ∝ exp(-z²/2s²) as sums of X₁ + 64·X₂ + … with X₁, X₂ of smaller variances.

    Of each: the least value, and P(X < value) in units of 2^-128 for the values above it.
    """
    made = []
    while variance > 2**18:
        made.append(table(Fraction(8 * 64**2)))
        variance = (variance - 8 * 64**2) / 64**2
    return [*made, table(variance)]


@lru_cache(None)
def table(variance: Fraction) -> tuple[int, list[int]]:
    """The cumulative discrete Gaussian, rounded to 2^-128."""
    with localcontext(DIGITS):
        ratio = (-Decimal(variance.denominator) / (2 * variance.numerator)).exp()
        square, weight, right = ratio * ratio, Decimal(1), [Decimal(1)]
        while weight > Decimal(10) ** -48:
            weight, ratio = weight * ratio, ratio * square
            right.append(weight)
        both = right[:0:-1] + right
        total, sofar, edges = sum(both), Decimal(0), []
        for one in both[:-1]:
            sofar += one
            edges.append(int(sofar / total * 2**128 + Decimal("0.5")))
    least = 1 - len(right) + sum(edge == 0 for edge in edges)
    return least, [edge for edge in edges if 0 < edge < 2**128]
