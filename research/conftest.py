"""Settings of property tests in this folder: no deadline, and the same examples in every run."""

from hypothesis import settings

settings.register_profile("research", deadline=None, derandomize=True)
settings.load_profile("research")
