"""DP-SQLP: histograms over keys that may be unknown."""

from .settings import ENTRY

__all__ = ["ENTRY"]
