"""Snapshots of tables in an object store: sealing, upload and fetch."""
