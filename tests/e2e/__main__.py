"""`python -m tests.e2e`: the shipped `docker-compose.yml` on a real engine, checked and removed.

Exit codes: 0 if everything is right, or if this machine has no engine (it prints what to install);
1 if something is wrong; 130 if interrupted. In each case, only images stay.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .engine import EngineError, missing
from .run import Run

LOCK = Path(tempfile.gettempdir()) / "hush-e2e.lock"


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    stand_ins = "make base images from packages, where no registry answers (root)"
    parser.add_argument("--stand-ins", action="store_true", help=stand_ins)
    parser.add_argument("--keep", action="store_true", help="leave the image hushstream")
    given = parser.parse_args()
    if lack := missing():
        print(f"e2e: SKIPPED: {lack}")
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    begin = time.monotonic()
    run = Run(stand_ins=given.stand_ins, keep=given.keep, say=lambda text: print(text, flush=True))
    try:
        with alone():
            run.go()
    except EngineError as error:
        print(f"e2e: FAILED after {time.monotonic() - begin:.0f} s: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("e2e: interrupted; everything is taken down", file=sys.stderr)
        return 130
    print("\nseen:", *run.seen, sep="\n  ")
    print(f"e2e: passed in {time.monotonic() - begin:.0f} s")
    return 0


@contextmanager
def alone(lock: Path = LOCK) -> Iterator[None]:
    """Keep other runs out: each begins by removing what another one still uses.

    Args:
        lock: the same file for all runs of this machine.

    Raises:
        EngineError: another run has it.
    """
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(
                "another run of it is under way on this machine: wait for it"
            ) from None
        yield


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
