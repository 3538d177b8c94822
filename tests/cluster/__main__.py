"""`python -m tests.cluster`: build what the tests of this folder need, once for each user."""

from __future__ import annotations

import sys

from .programs import BuildError, build


def main() -> int:
    """Build; return the exit code."""
    try:
        build(lambda text: print(text, flush=True))
    except BuildError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
