"""``python -m hushstream`` is ``hush``."""

from .cli.group import main

main()
