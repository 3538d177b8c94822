"""The workers' own stages over logs in memory: simulation and replay."""
