"""Sinks: releases written to tables of PostgreSQL, DuckDB, Parquet or Iceberg."""
