"""Rows as columns, tables of rows in memory, and packed rows of mostly zeros."""
