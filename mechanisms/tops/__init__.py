"""ToPS: sums of any range of time slots."""

from .entry import ENTRY

__all__ = ["ENTRY"]
