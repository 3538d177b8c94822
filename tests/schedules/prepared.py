"""What each fork finds done: the simulation in place, and all its modules imported."""

from . import patches

patches.install()

from . import bugs, guided, outages, schedule  # noqa: E402, F401
