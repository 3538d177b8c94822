"""Rows as columns and tables in memory, and rows of mostly zeros."""
