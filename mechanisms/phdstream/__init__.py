"""PHDStream: a map of a moving stream, with deletions."""

from .entry import ENTRY

__all__ = ["ENTRY"]
