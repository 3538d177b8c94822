"""Run targets for a time, each in its own process; the last line is JSON.

`python -m tests.fuzz --minutes 10` runs all, `--target NAME` one, `--case N` a single case again.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

SLOWEST = 20  # seconds that a case may take on a busy machine
ROOM = 1 << 30  # bytes that all cases together may add to the process
SHOWN = 3
MANY = 1 << 60


def child(
    name: str, seed: int, seconds: float, only: int | None, progress: int, most: int = MANY
) -> dict[str, Any]:
    """Run cases of one target until the time is over; write the number of each before it runs."""
    from .targets import TARGETS

    target = TARGETS[name]()
    for data in target.corpus:  # real input must pass, else nothing is tested
        target.run(data)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    failures: list[dict[str, Any]] = []
    begun, case, refused = time.monotonic(), only or 0, 0
    while case < most and time.monotonic() - begun < seconds and len(failures) < SHOWN:
        os.pwrite(progress, case.to_bytes(8, "big"), 0)
        data = target.mutate(random.Random(f"{seed}/{name}/{case}"), target.corpus)
        faulthandler.dump_traceback_later(SLOWEST, exit=True)
        try:
            target.run(data)
        except target.allowed:
            refused += 1
        except Exception as error:
            failures.append({"case": case, "error": repr(error)[:300], "input": repr(data[:200])})
            if only is not None:
                raise
        faulthandler.cancel_dump_traceback_later()
        case += 1
        if only is not None:
            break
    return {"target": name, "cases": case, "refused": refused, "failures": failures}


def watched(
    name: str, seed: int, seconds: float, only: int | None = None, most: int = MANY
) -> dict[str, Any]:
    """Run one target in a fork; report a crash or a hang as a failure with its case."""
    with tempfile.TemporaryFile() as progress, tempfile.TemporaryFile() as said:
        progress.write(bytes(8))
        progress.flush()
        read, write = os.pipe()
        process = os.fork()
        if not process:
            os.close(read)
            os.dup2(said.fileno(), sys.stderr.fileno())
            signal.alarm(math.ceil(seconds + 10 * SLOWEST))
            _forked(write, name, seed, seconds, only, progress.fileno(), most)
        os.close(write)
        with open(read, "rb") as answer:
            told = answer.read()
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == 0:
            found: dict[str, Any] = json.loads(told)
            return found
        case = int.from_bytes(os.pread(progress.fileno(), 8, 0), "big")
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        said.seek(0)
        words = said.read().decode("utf-8", "replace")[-1500:]
        fault = {"case": case, "error": f"{how}: {words}"}
        return {"target": name, "cases": case + 1, "refused": 0, "failures": [fault]}


def _forked(answer: int, *asked: Any) -> NoReturn:
    """Write a target's result to a pipe, and end without the parent's exit handlers."""
    code = 1
    try:
        with open(answer, "wb") as file:
            file.write(json.dumps(child(*asked)).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--seconds", type=float, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", help="this one alone")
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--all", action="store_true", help="end with what came of each target")
    parser.add_argument("--most", type=int, default=MANY, help="cases of each target")
    asked = parser.parse_args()
    from .targets import TARGETS

    names = [asked.target] if asked.target else list(TARGETS)
    seconds = asked.seconds or asked.minutes * 60 / len(names)
    ran = [watched(name, asked.seed, seconds, asked.case, asked.most) for name in names]
    for one in ran:
        print(f"{one['target']}: {one['cases']:,} cases, {one['refused']:,} refused")
        for fault in one["failures"]:
            print(f"  seed {asked.seed} case {fault['case']}: {fault['error']}")
    failed = sum(len(one["failures"]) for one in ran)
    total = {"cases": sum(one["cases"] for one in ran), "failures": failed}
    print(json.dumps({one["target"]: one for one in ran} if asked.all else total))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
