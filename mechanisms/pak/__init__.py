"""PAK: running totals with a learnt clipping threshold."""

from .entry import ENTRY

__all__ = ["ENTRY"]
