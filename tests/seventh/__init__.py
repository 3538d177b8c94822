"""A seventh mechanism in its own package, which only this folder knows."""
