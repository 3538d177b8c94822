"""PAK: running totals with a learnt clipping threshold."""

from .settings import ENTRY

__all__ = ["ENTRY"]
