"""ToPL: means and ranges under local privacy, on the aggregator's side."""

from .entry import ENTRY

__all__ = ["ENTRY"]
