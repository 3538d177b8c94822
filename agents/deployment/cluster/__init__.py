"""Demands of a deployment on a cluster: topics, its own partitions in them, and rights."""
