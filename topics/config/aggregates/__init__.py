"""The aggregates that a pipeline may release per key."""
