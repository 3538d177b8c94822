"""Activity: numbers of units by records and by concentration on keys."""

from .entry import ENTRY

__all__ = ["ENTRY"]
