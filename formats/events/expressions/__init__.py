"""Expressions of a configuration over one record: conditions on it, and derived columns."""
