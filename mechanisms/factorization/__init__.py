"""Factorisations of prefix sums, A = BC, and the noise processes that they give."""

from .matrix import BITS, LAST, LONGEST, NAMES, Factorization, build, of_encoder, reaching

__all__ = [
    "BITS",
    "LAST",
    "LONGEST",
    "NAMES",
    "Factorization",
    "build",
    "of_encoder",
    "reaching",
]
