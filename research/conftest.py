"""Property tests here are as slow as they need to be, and the same on every run."""

from hypothesis import settings

settings.register_profile("research", deadline=None, derandomize=True)
settings.load_profile("research")
