"""Snapshots of tables in an object store: what they are sealed by, how they come and go."""
