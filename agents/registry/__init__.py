"""Schemas of a registry: asked for once, and waited for while it is away."""
