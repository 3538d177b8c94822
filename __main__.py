"""``python -m hushstream`` is ``hush``."""

from .agents.cli.group import main

main()
