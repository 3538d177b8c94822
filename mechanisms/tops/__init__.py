"""ToPS: sums of any range of time slots."""

from .settings import ENTRY

__all__ = ["ENTRY"]
