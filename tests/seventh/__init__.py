"""A seventh mechanism as a package of its own: this folder, and nothing else, knows it."""
