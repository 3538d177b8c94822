"""ToPL: means and ranges under local privacy; the aggregator's side."""

from .settings import ENTRY

__all__ = ["ENTRY"]
