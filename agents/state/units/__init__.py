"""Rows of units: packed in memory, in blocks on disk, or both."""
