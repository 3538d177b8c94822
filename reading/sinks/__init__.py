"""Releases drained into tables elsewhere: PostgreSQL, DuckDB, Parquet, Iceberg."""
