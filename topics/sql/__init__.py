"""Pipelines written in SQL: a query is compiled to the settings that a person would write."""
