"""Quantiles of a number per key, under differential privacy."""

from .entry import ENTRY

__all__ = ["ENTRY"]
