"""DP-SQLP: histograms over keys that may be unknown."""

from .entry import DISTINCT, ENTRY

__all__ = ["DISTINCT", "ENTRY"]
