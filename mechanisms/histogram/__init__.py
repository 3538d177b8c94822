"""DP-SQLP: histograms over keys that may be unknown."""

from .entry import ENTRY

__all__ = ["ENTRY"]
