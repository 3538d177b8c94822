"""Keyed exact noise: the only randomness of the mechanisms.

A draw is a pure function of a 32-byte secret and a label. The label names the ledger charge that
pays for it (one charge, one noise), the mechanism and its configuration, pipeline, window, purpose,
kind and scale of the noise, key and index, and the *nonce* in force at the trigger where the draw
covers content for the first time; it never names a partition, host or thread. Equal labels give
equal draws on every machine, whatever else is drawn in the same call; different labels give
independent draws. So a release that is computed again is the same, and two contents never share a
noise: nonces are random and are committed together with the content that they cover.

*Guarantee.* Every draw is within `DELTA_PER_DRAW` in total variation of the exact discrete
distribution, given that AES-256 and HMAC-SHA256 are pseudo-random (differential privacy becomes
computational: Mironov, Pandey, Reingold and Vadhan, *Computational Differential Privacy*, CRYPTO
2009). Where neighbours differ in the arguments of n draws (all draws that one unit's records can
affect), those draws add (1+e^ε)·n·`DELTA_PER_DRAW` to δ. Anyone who learns the secret can remove
all noise drawn with it, past releases included.

*Two contents, two noises.* Let every state of a shard follow from some prefix of its changelog
partition. No draw from which anything was published covers two different contents, even on a
cluster that was rewound.

*Proof.* Take two publications that use the draw of one label, possibly in two histories of the
cluster. Let t be its first trigger and N the nonce in it; both publications are of triggers ≥ t,
and both shards had N in force at t. (i) N is drawn at random by one opening and committed by no
other opening: up to a chance of 2⁻¹²⁸ for each pair of openings both histories contain a committed
transaction of that one opening that closed t under N. (ii) An opening closes each trigger in at
most one transaction that commits: a failed or uncertain one ends the opening, and the next opening
draws another nonce. So both histories contain *the same* transaction and, since both are made of
prefixes of one partition, the same changelog up to it. (iii) The exact content of all triggers up
to t is in that prefix, and closed: nothing later changes it. The content that the draw covers is
complete at t, so it is the same in both.

The claim involves no other partition. It needs a shard's state to follow from a prefix, so a local
table that does not follow from the log is discarded or refused at opening. It also needs an opening
to be one process: a worker that is cloned *with its memory* draws its next nonce only when it opens
again, so start clones from disk alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from itertools import pairwise
from numbers import Rational
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ...errors import ContractError, ParameterError
from ..keys import Keys
from ..ranges import LARGEST_SCALE, LARGEST_VARIANCE
from . import _grid as grid
from . import _samplers as samplers
from ._prf import Prf
from ._samplers import Sampler
from ._tables import I64

SAMPLER_VERSION = "1"
"""Part of every label: a change of any draw must change it."""

DELTA_PER_DRAW = Fraction(1, 1 << 110)
"""Bound on the total variation distance of any one draw to the exact distribution."""

NONCE = 16
"""Bytes of a nonce."""

Nonces = tuple[tuple[int, bytes], ...]
"""Which nonce is in force: (trigger from which it holds, nonce), the first from trigger 1 on."""

STEADY: Nonces = ((1, bytes(NONCE)),)
"""A fixed nonce for simulations and tests, which have no log to rewind."""

_SIZE = 32

Drawn = TypeVar("Drawn", I64, NDArray[np.uint64])


def encode(fields: Sequence[bytes]) -> bytes:
    """An injective encoding of a sequence of byte strings: the count, then each with its length.

    >>> encode([b"ab", b"c"]) == encode([b"a", b"bc"])
    False
    """
    counted = [len(fields).to_bytes(8), *(len(part).to_bytes(8) + part for part in fields)]
    return b"".join(counted)


def derive(secret: bytes, purpose: str) -> bytes:
    """A 32-byte key for one purpose; keys of different purposes tell nothing about each other.

    HKDF-SHA256 (Krawczyk and Eronen, RFC 5869), the purpose in its info string.

    Raises:
        ParameterError: the secret is not 32 bytes long.

    >>> derive(bytes(32), "hashing") == derive(bytes(32), "sampling")
    False
    """
    _sized("secret", secret)
    return HKDF(SHA256(), _SIZE, None, encode([b"hushstream", purpose.encode()])).derive(secret)


def fingerprint(secret: bytes) -> str:
    """A public name of a secret: 32 hexadecimal digits that do not lead back to it.

    Raises:
        ParameterError: the secret is not 32 bytes long.

    >>> len(fingerprint(bytes(32)))
    32
    """
    return derive(secret, "fingerprint")[:16].hex()


def statistical_distance(kind: str, parameter: Fraction) -> Fraction:
    """Bound on the total variation distance between a draw and the exact distribution.

    Args:
        kind: ``gauss`` with a variance or ``laplace`` with a scale.

    Raises:
        ParameterError: an unknown kind, or a parameter out of range.

    >>> statistical_distance("gauss", Fraction(100)) < DELTA_PER_DRAW
    True
    """
    if kind == "gauss":
        return samplers.gaussian(_rational("variance", parameter, LARGEST_VARIANCE)).distance
    if kind == "laplace":
        return samplers.laplace(_rational("scale", parameter, LARGEST_SCALE)).distance
    raise ParameterError("kind", kind, "must be gauss or laplace")


@dataclass(frozen=True)
class KeyedNoise:
    """Noise bound to a secret, a charge and a window.

    Attributes:
        secret: 32 bytes; never shown.
        charge: the 32-byte chain hash of the ledger charge that pays for these draws.
        mechanism: registered name of the mechanism.
        config: identifies the configuration, preferably by its hash.
        pipeline: name of the pipeline.
        window: name of the window; a text equals its UTF-8 bytes.
        nonces: nonces of the window so far; public. Later triggers use the last one.
        test: noise for tests, distinct from production's and without a guarantee.

    Raises:
        ParameterError: secret or charge is not 32 bytes long, or the nonces do not hold from
            trigger 1 on, in order, 16 bytes each.

    >>> noise = KeyedNoise(bytes(range(32)), charge=bytes(32), mechanism="m", config=b"",
    ...                    pipeline="p", window="w", nonces=STEADY)
    >>> keys, index, first = Keys.of([b"a", b"b"]), np.arange(3), np.ones(3, np.int64)
    >>> both = noise.gauss("release", keys, index, Fraction(9), first)
    >>> one = noise.gauss("release", keys[1:], index[2:], Fraction(9), first[2:])
    >>> both.shape, bool((both[1:, 2:] == one).all())
    ((2, 3), True)
    """

    secret: bytes = field(repr=False)
    _: KW_ONLY
    charge: bytes
    mechanism: str
    config: bytes
    pipeline: str
    window: str | bytes
    nonces: Nonces
    test: bool = False

    def __post_init__(self) -> None:
        _sized("secret", self.secret)
        if len(self.charge) != _SIZE:
            raise ParameterError("charge", self.charge, f"must be {_SIZE} bytes")
        begins = [begin for begin, _ in self.nonces]
        if begins[:1] != [1] or any(a >= b for a, b in pairwise(begins)):
            raise ParameterError("nonces", begins, "must hold from trigger 1 on, in order")
        if any(len(nonce) != NONCE for _, nonce in self.nonces):
            raise ParameterError("nonces", self.nonces, f"must be {NONCE} bytes each")

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        """(r, m) independent discrete Gaussians, ``P(z) ∝ exp(-z²/(2·variance))`` on the integers.

        Args:
            purpose: purpose of the draws, part of their label.
            key: r keys.
            index: (m,) int64, any integers.
            variance: σ² in squared units of the grid, at most 2¹⁰⁰.
            first: (m,) or (r, 1) int64, the trigger at which each draw covers content first.

        Raises:
            ParameterError: the variance is not a positive rational in range.
            ContractError: the index is not a vector of int64, or ``first`` does not fit.
        """
        variance = _rational("variance", variance, LARGEST_VARIANCE)
        sampler = _sound(samplers.gaussian(variance))
        return self._drawn(
            ("gauss", purpose, variance), key, index, first,
            lambda prf, some, index: grid.draws(prf, some, index, sampler),
        )  # fmt: skip

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        """(r, m) independent discrete Laplace draws, ``P(z) ∝ exp(-|z|/scale)`` on the integers.

        Args and errors as for `gauss`, with a scale of at most 2⁵⁰.
        """
        scale = _rational("scale", scale, LARGEST_SCALE)
        sampler = _sound(samplers.laplace(scale))
        return self._drawn(
            ("laplace", purpose, scale), key, index, first,
            lambda prf, some, index: grid.draws(prf, some, index, sampler),
        )  # fmt: skip

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        """(r, m, 2) uniform words, 128 bits per key and index, for other exact samplers.

        Raises:
            ContractError: the index is not a vector of int64, or ``first`` does not fit.
        """
        return self._drawn(("bits", purpose, 0), key, index, first, grid.words)

    def _drawn(
        self,
        what: tuple[str, str, Rational | int],
        key: Keys,
        index: I64,
        first: I64,
        draw: Callable[[Prf, Keys, I64], Drawn],
    ) -> Drawn:
        """Draws grouped by the nonce of their first use; in one call if there is one nonce."""
        index = _vector(index)
        first = _begun(first, key, index)
        held = np.searchsorted([begin for begin, _ in self.nonces], first, side="right") - 1
        used = np.unique(held).tolist() or [0]
        if len(used) == 1:
            return draw(self._prf(*what, self.nonces[used[0]][1]), key, index)
        parts: list[tuple[Any, Drawn]] = []
        for one in used:
            rows, columns = _where(held == one, len(key), len(index))
            prf = self._prf(*what, self.nonces[one][1])
            parts.append((np.ix_(rows, columns), draw(prf, key.take(rows), index[columns])))
        out = np.empty((len(key), len(index), *parts[0][1].shape[2:]), parts[0][1].dtype)
        for place, drawn in parts:
            out[place] = drawn
        return out

    def _prf(self, kind: str, purpose: str, parameter: Rational | int, nonce: bytes) -> Prf:
        label = self._label(kind, purpose, parameter, nonce)
        return Prf(hmac.digest(derive(self.secret, "noise"), label, "sha256"))

    def _label(self, kind: str, purpose: str, parameter: Rational | int, nonce: bytes) -> bytes:
        """Sampler version, kind (`gauss`, `laplace`, `bits`), purpose, numerator and denominator of
        the scale in decimal, mechanism, pipeline, hash of the configuration as hexadecimal text,
        window (in decimal), charge (32 bytes), test (one byte, 0 or 1), nonce (16 bytes).
        """
        window = self.window.encode() if isinstance(self.window, str) else self.window
        scale = (str(parameter.numerator), str(parameter.denominator))
        words = (SAMPLER_VERSION, kind, purpose, *scale, self.mechanism, self.pipeline)
        return encode(
            [*map(str.encode, words), self.config, window, self.charge, bytes([self.test]), nonce]
        )


@dataclass(frozen=True)
class ZeroNoise:
    """Draws of zero, for tests: releases without noise or protection.

    >>> first = np.ones(2, np.int64)
    >>> zero.gauss("release", Keys.of([b"a"]), np.arange(2), Fraction(4), first).tolist()
    [[0, 0]]
    """

    def gauss(self, purpose: str, key: Keys, index: I64, variance: Fraction, first: I64) -> I64:
        """(r, m) zeros; parameters are checked as `KeyedNoise.gauss` does."""
        _rational("variance", variance, LARGEST_VARIANCE)
        return self._zeros(key, index, first)

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction, first: I64) -> I64:
        """(r, m) zeros; parameters are checked as `KeyedNoise.laplace` does."""
        _rational("scale", scale, LARGEST_SCALE)
        return self._zeros(key, index, first)

    def bits(self, purpose: str, key: Keys, index: I64, first: I64) -> NDArray[np.uint64]:
        """(r, m, 2) zeros."""
        return np.zeros((*self._zeros(key, index, first).shape, 2), np.uint64)

    @staticmethod
    def _zeros(key: Keys, index: I64, first: I64) -> I64:
        _begun(first, key, _vector(index))
        return np.zeros((len(key), len(index)), np.int64)


zero = ZeroNoise()


def _sound(sampler: Sampler) -> Sampler:
    if sampler.distance > DELTA_PER_DRAW:
        raise ContractError("a sampler is further from its distribution than accounted for")
    return sampler


def _rational(name: str, value: Fraction, largest: Fraction) -> Fraction:
    if not isinstance(value, Rational) or not 0 < value <= largest:
        raise ParameterError(name, value, f"must be a positive rational of at most {largest}")
    return Fraction(int(value.numerator), int(value.denominator))  # NumPy's integers overflow


def _vector(index: I64) -> I64:
    if index.ndim != 1 or index.dtype != np.int64:
        raise ContractError("index is not a vector of int64")
    return np.ascontiguousarray(index)


def _begun(first: I64, key: Keys, index: I64) -> I64:
    if first.dtype != np.int64 or first.shape not in ((len(index),), (len(key), 1)):
        raise ContractError("first is not one int64 trigger for each index or for each key")
    if first.min(initial=1) < 1:
        raise ContractError("a draw cannot cover content before trigger 1")
    return first


def _where(
    mask: NDArray[np.bool_], rows: int, columns: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a block that a mask of columns (m,) or of rows (r, 1) selects."""
    if mask.ndim == 1:
        return np.arange(rows), np.flatnonzero(mask)
    return np.flatnonzero(mask), np.arange(columns)


def _sized(name: str, secret: bytes) -> None:
    if not isinstance(secret, bytes) or len(secret) != _SIZE:
        raise ParameterError(name, f"({len(secret)} bytes)", f"must be {_SIZE} bytes")
