"""``make mutants``: apply each mutant to a copy of the tree; its named tests must find it.

The last line of the output is JSON: the numbers of mutants in total, killed and survived. The exit
code is 1 if any survived, and 2 if a named test fails without any mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .catalogue import HERE, Mutant, load, nodes, sample
from .runner import Copy, Outcome, processes

QUICK = 12
EACH = 50  # a log without a progress bar has a line after so many
SLOW = 20.0  # seconds; slower mutants are listed, because they need faster tests


def main() -> int:
    """Parse the command line and run; return the exit code."""
    given = _arguments()
    chosen = _chosen(given)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        context, workers = processes(), max(1, min(given.workers, len(chosen)))
        places = [Path(folder, str(number)) for number in range(workers)]
        copies = [Copy(place, context, given.timeout) for place in places]
        if not given.trust and not _sound(copies[0], chosen):
            return 2
        outcomes = _tried(copies, chosen)
    return _told(chosen, outcomes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} of them, by the seed")
    parser.add_argument("--seed", default="1", help="of --quick")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="this mutant, or this list; may be repeated")  # fmt: skip
    parser.add_argument("--trust", action="store_true",
                        help="do not run the tests without a mutant first")  # fmt: skip
    parser.add_argument("--lists", type=Path, default=HERE, help="folder of the lists")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per mutant")
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> list[Mutant]:
    mutants = load(given.lists)
    unknown = set(given.only) - {m.name for m in mutants} - {m.group for m in mutants}
    if unknown:
        sys.exit(f"mutants: there is no mutant or list {sorted(unknown)[0]!r}")
    if given.only:
        mutants = [m for m in mutants if m.name in given.only or m.group in given.only]
    if given.quick:
        print(f"a sample by --seed {given.seed}")
        mutants = sample(mutants, given.seed, QUICK)
    return mutants


def _sound(copy: Copy, mutants: Sequence[Mutant]) -> bool:
    """Whether all named tests pass without a mutant."""
    tests = nodes(mutants)
    print(f"{len(tests)} named tests, without a mutant ...", flush=True)
    if copy.run(tuple(tests), every=True) == 0:
        return True
    print(copy.said())
    print("a named test fails without any mutant: mend it first")
    return False


def _tried(copies: Sequence[Copy], mutants: Sequence[Mutant]) -> list[Outcome]:
    """Outcomes in the order of ``mutants``, computed in parallel, one on each copy."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress,
        ThreadPoolExecutor(len(copies)) as pool,
    ):
        bar = progress.add_task("mutants", total=len(mutants))

        def one(mutant: Mutant) -> Outcome:
            copy, began = free.get(), time.monotonic()
            try:
                outcome = copy.try_out(mutant)
            finally:
                free.put(copy)
            took = time.monotonic() - began
            if outcome != "killed" or took > SLOW:
                progress.print(f"{mutant.name}: {outcome}, {took:.0f} s")
            progress.advance(bar)
            if not progress.console.is_terminal and progress.tasks[bar].completed % EACH == 0:
                progress.print(f"{progress.tasks[bar].completed:.0f} of {len(mutants)}")
            return outcome

        return list(pool.map(one, mutants))


def _told(mutants: Sequence[Mutant], outcomes: Sequence[Outcome]) -> int:
    for mutant, outcome in zip(mutants, outcomes, strict=True):
        if outcome != "killed":
            print(f"{outcome}: {mutant.name} ({mutant.file}): {mutant.why}")
            print(f"  {' '.join(mutant.tests)}")
    killed = outcomes.count("killed")
    left = len(outcomes) - killed
    print(json.dumps({"mutants": len(outcomes), "killed": killed, "survived": left}))
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
