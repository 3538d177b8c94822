"""The workers' own stages over logs in memory: simulation and replay.

It may import every package but the command line, and it never writes to a cluster.
"""
