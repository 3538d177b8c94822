"""Factorisations of prefix sums, A = BC, and the noise processes built on them."""

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
