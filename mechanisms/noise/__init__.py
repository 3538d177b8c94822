"""Keyed exact noise, the only source of randomness: equal labels give equal draws.

It knows labels and distributions, and never sees the value to which a draw is added.
"""

from .keyed import (
    DELTA_PER_DRAW,
    NONCE,
    SAMPLER_VERSION,
    STEADY,
    KeyedNoise,
    Nonces,
    ZeroNoise,
    derive,
    encode,
    fingerprint,
    statistical_distance,
    zero,
)
from .ratchet import Charge, Ratchet

__all__ = [
    "DELTA_PER_DRAW",
    "NONCE",
    "SAMPLER_VERSION",
    "STEADY",
    "Charge",
    "KeyedNoise",
    "Nonces",
    "Ratchet",
    "ZeroNoise",
    "derive",
    "encode",
    "fingerprint",
    "statistical_distance",
    "zero",
]
