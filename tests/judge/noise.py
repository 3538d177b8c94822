"""Keyed noise, specified a second time: integers that follow from a key and a label.

The noise is discrete Gaussian, P(z) ∝ exp(-z²/2s²), or discrete Laplace, P(z) ∝ exp(-|z|/s).
"""

import hmac
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .gaussian import DIGITS


class Nonces(Protocol):
    """The nonce that each shard had in force; manifests publish it."""

    def shard(self, key: bytes) -> int: ...

    def nonce(self, window: int, shard: int, trigger: int) -> bytes: ...


Secret = bytes | Callable[[Mapping[str, Any]], bytes]
"""The noise key of a pipeline, or a function from a trigger to its key."""


class Law(NamedTuple):
    """Independent tables, one for each digit of an integer, the least significant digit first."""

    stages: list[tuple[int, list[int]]]  # least value, and P(X < value) of each value above it
    base: int = 64
    signed: bool = False  # whether the last digit carries the sign: -1 - z stands for z < 0


class Noise:
    """Draws that follow from a key and a label."""

    def __init__(self, secret: Secret, config: Mapping[str, Any], nonces: Nonces) -> None:
        self._secret, self._kind = secret, config["mechanism"]["kind"]
        self._roots: dict[bytes, bytes] = {}  # by label
        self._pipeline = config["name"]
        self._nonces = nonces
        self._aes: dict[bytes, Any] = {}

    def label(
        self, purpose: str, size: Fraction, trigger: Mapping[str, Any], shard: int, first: int,
        law: str = "gauss",
    ) -> bytes:  # fmt: skip
        """The label of a draw. ``first`` is the first trigger at which the draw covers content."""
        words = ("1", law, purpose, str(size.numerator), str(size.denominator),
                 self._kind, self._pipeline)  # fmt: skip
        hashed, window = trigger["config_hash"].encode(), str(trigger["window"]).encode()
        charge = bytes.fromhex(trigger["charge"])
        nonce = self._nonces.nonce(trigger["window"], shard, first)
        label = fields([*map(str.encode, words), hashed, window, charge, b"\0", nonce])
        secret = self._secret if isinstance(self._secret, bytes) else self._secret(trigger)
        self._roots[label] = derived(derived(secret, "noise"), "noise")
        return label

    def laplace(
        self, purpose: str, scale: Fraction, trigger: Mapping[str, Any], first: int, key: bytes,
        index: int = 0,
    ) -> int:  # fmt: skip
        """A draw of discrete Laplace noise, for mechanisms whose keys all belong to one shard."""
        label = self.label(purpose, scale, trigger, 0, first, "laplace")
        return self.draw(label, key, index, laplace(scale))

    def draw(self, label: bytes, key: bytes, index: int, size: Fraction | Law) -> int:
        """Draw number ``index`` of a key under a label; ``size`` is a variance or a law."""
        law = size if isinstance(size, Law) else Law(tables(size))
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

        digits = []
        for stage, (least, edges) in enumerate(law.stages):
            high = word(stage // 2, stage % 2) << 64
            place = bisect_right(edges, high)
            if place < len(edges) and edges[place] < high + 2**64:  # the low half decides
                place = bisect_right(edges, high + word(2**32 + stage, 0))
            digits.append(least + place)
        total = digits.pop()
        below = law.signed and total < 0 and bool(digits)
        total = -1 - total if below else total
        for digit in reversed(digits):
            total = total * law.base + digit
        return -1 - total if below else total


def fields(parts: Sequence[bytes]) -> bytes:
    """Encode byte strings as one byte string, injectively."""
    counted = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return len(parts).to_bytes(8, "big") + counted


def derived(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose: HKDF-SHA256 (RFC 5869), one block."""
    inner = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(inner, fields([b"hushstream", purpose.encode()]) + b"\1", "sha256")


@lru_cache(None)
def tables(variance: Fraction) -> list[tuple[int, list[int]]]:
    """P(z) ∝ exp(-z²/2s²) as the law of X₁ + 64·X₂ + …, with X₁, X₂, … of smaller variances.

    Each table has its least value, and P(X < value) in units of 2^-128 for each value above it.
    """
    made = []
    while variance > 2**18:
        made.append(table(Fraction(8 * 64**2)))
        variance = (variance - 8 * 64**2) / 64**2
    return [*made, table(variance)]


@lru_cache(None)
def laplace(scale: Fraction) -> Law:
    """Laplace noise by independent digits of |z| to base 4096: a^g is a product over the digits."""
    stages, rest = [], scale
    with localcontext(DIGITS):
        while rest > 128:
            stages.append(cumulative(0, powers(rest, 4096)))
            rest /= 4096
        right, first = powers(rest), (-Decimal(scale.denominator) / scale.numerator).exp()
        left = [first * one for one in right]
        stages.append(cumulative(-len(left), left[::-1] + right))
    return Law(stages, 4096, signed=True)


def powers(scale: Fraction, most: int = 1 << 30) -> list[Decimal]:
    """exp(-g/scale) for g = 0, 1, …, down to 10^-48; at most ``most`` of them."""
    ratio, found = (-Decimal(scale.denominator) / scale.numerator).exp(), [Decimal(1)]
    while found[-1] > Decimal(10) ** -48 and len(found) < most:
        found.append(found[-1] * ratio)
    return found


def cumulative(least: int, weights: Sequence[Decimal]) -> tuple[int, list[int]]:
    """A cumulative table of ``least``, ``least`` + 1, … from weights, rounded to 2^-128."""
    total, sofar, edges = sum(weights), Decimal(0), []
    for one in weights[:-1]:
        sofar += one
        edges.append(int(sofar / total * 2**128 + Decimal("0.5")))
    return least + sum(edge == 0 for edge in edges), [e for e in edges if 0 < e < 2**128]


@lru_cache(None)
def table(variance: Fraction) -> tuple[int, list[int]]:
    """The cumulative discrete Gaussian, rounded to 2^-128."""
    with localcontext(DIGITS):
        ratio = (-Decimal(variance.denominator) / (2 * variance.numerator)).exp()
        square, weight, right = ratio * ratio, Decimal(1), [Decimal(1)]
        while weight > Decimal(10) ** -48:
            weight, ratio = weight * ratio, ratio * square
            right.append(weight)
        return cumulative(1 - len(right), right[:0:-1] + right)
