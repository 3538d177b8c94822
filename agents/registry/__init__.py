"""Schemas from a registry: each is fetched once, and workers wait while the registry is away."""
