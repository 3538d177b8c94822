"""What each fork finds ready: the simulation installed, and all its modules imported."""

from . import patches

patches.install()

from . import bugs, guided, outages, schedule  # noqa: E402, F401
