"""``make model``: check the model of the protocol; with --mistakes, refute each mistake.

Prints states and processor seconds of each case. The last line is JSON. The exit code is 1 if a
property does not hold, a mistake breaks no property, or a trace is refused.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console

from .checker import CASES, MISTAKES, Case, Verdict, check, check_whole
from .traces import refused


def main() -> int:
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("--mistakes", action="store_true", help="mistakes, each to be refuted")
    parser.add_argument("--only", help="the case of this name")
    parser.add_argument("--trace", action="store_true", help="show how a property is broken")
    parser.add_argument("--traces", type=int, metavar="N", help="schedules that it must accept")
    parser.add_argument("--whole", action="store_true", help="all faults at once: goes on for days")
    parser.add_argument("--workers", type=int, default=1, help="threads of TLC")
    given = parser.parse_args()
    if given.whole:
        return 0 if check_whole(given.workers) else 1
    if given.traces:
        return _traces(given.traces)
    names = [case.name for case in (*CASES, *MISTAKES)]
    if given.only is not None and given.only not in names:
        parser.error(f"--only must be one of: {', '.join(names)}")
    chosen = [case for case in (*CASES, *MISTAKES) if case.name == given.only]
    chosen = chosen or list(MISTAKES if given.mistakes else CASES)
    console, right, states, seconds = Console(), 0, 0, 0.0
    for case in chosen:
        with console.status(case.name):
            found = check(case, given.workers)
        right += found.broken == case.broken
        states, seconds = states + found.states, seconds + found.seconds
        console.print(_line(case, found), highlight=False, markup=False)
        if given.trace and found.broken:
            begin = found.told.index("Error:")
            console.print(found.told[begin:], highlight=False, markup=False)
    print(json.dumps({"cases": len(chosen), "right": right, "states": states,
                      "seconds": round(seconds, 1)}))  # fmt: skip
    return 0 if right == len(chosen) else 1


def _traces(schedules: int) -> int:
    done = 0

    def told(number: int) -> None:
        nonlocal done
        done += number
        print(f"{done} schedules", flush=True)

    wrong, actions = refused(schedules, told)
    print(json.dumps({"schedules": schedules, "actions": actions, "refused": wrong}))
    return 1 if wrong else 0


def _line(case: Case, found: Verdict) -> str:
    if found.broken:
        said = f"breaks {found.broken}" + ("" if case.broken else ": THE MODEL IS WRONG")
    elif case.broken:
        said = f"IS NOT REFUTED; it should break {case.broken}"
    else:
        said = f"holds in all {found.states:,} states"
    return f"{case.name}: {said}, {found.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
