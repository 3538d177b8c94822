"""Conditions and derived columns of a query."""
