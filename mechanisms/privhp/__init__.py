"""PrivHP: a distribution in space from bounded memory."""

from .entry import ENTRY

__all__ = ["ENTRY"]
