"""PHDStream: a map of a moving stream, with deletions."""

from .settings import ENTRY

__all__ = ["ENTRY"]
