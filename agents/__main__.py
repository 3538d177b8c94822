"""``python -m hushstream.agents`` is ``hush``."""

from .cli import main

main()
