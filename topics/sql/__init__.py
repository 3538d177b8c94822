"""Pipelines written in SQL: a query compiled to the settings that a person would write."""
