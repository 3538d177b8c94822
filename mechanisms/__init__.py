"""Streaming mechanisms of differential privacy: pure functions over NumPy columns."""
