"""Counts of records by public key and public bin of one number, under differential privacy."""

from .entry import ENTRY

__all__ = ["ENTRY"]
