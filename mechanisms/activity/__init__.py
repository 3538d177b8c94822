"""Activity: how many units send how many records, and to how few keys."""

from .entry import ENTRY

__all__ = ["ENTRY"]
