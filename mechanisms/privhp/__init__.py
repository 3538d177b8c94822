"""PrivHP: a distribution in space from bounded memory."""

from .settings import ENTRY

__all__ = ["ENTRY"]
