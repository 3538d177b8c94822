"""Many seeds over several processes, or one seed reported in words.

    python -m tests.schedules.campaign --seed 7           # one schedule, in words
    python -m tests.schedules.campaign --seed 7 --bug "frozen sleep"

Each share runs in a process of its own (`forks`), because the simulation replaces libraries in the
whole process. The order of sets influences a schedule, so `PYTHONHASHSEED` is fixed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .forks import Fork, run

NAME = "tests.schedules.campaign"  # under any import name
KINDS = ("lost", "doubled", "differing", "stuck")
PIECE = 40  # schedules between two report lines of a share


class Found(NamedTuple):
    """The objections to one schedule."""

    seed: int
    kinds: dict[str, list[str]]
    faults: list[str]


class Result(NamedTuple):
    """The result of a campaign.

    Attributes:
        schedules: number of schedules run.
        found: one entry for each schedule with an objection.
        callbacks: number of callbacks in all schedules.
        kinds: number of faults by kind.
        torn: number of transactions' requests that came late or twice.
        taken: number of copies with which shards opened.
        mechanisms: number of schedules by mechanism.
        cpu: processor time in seconds.
    """

    schedules: int
    found: list[Found]
    callbacks: int
    kinds: dict[str, int]
    torn: int
    taken: int
    mechanisms: dict[str, int]
    cpu: float

    def count(self, kind: str) -> int:
        """The number of schedules with an objection of a kind."""
        return sum(bool(one.kinds[kind]) for one in self.found)


def share(
    begin: int, step: int, number: int, seconds: float, bug: str, first: bool, only: str = ""
) -> Iterator[dict[str, Any]]:
    """Run seeds begin, begin + step, … in this process.

    The first schedules run here, which fills every cache; after that, each piece runs in a fork.
    The fork's end frees what schedules leave behind, above all pending tasks.

    Args:
        number: maximum number of schedules.
        seconds: limit on real time in seconds.
        bug: old mistake to put back; empty: none.
        first: whether to end with the first objection.
        only: kind of fault; seeds without it are skipped; empty: no seed is skipped.

    Yields:
        From time to time, the result of the schedules since the last time.
    """
    _ready(bug)
    until = time.monotonic() + seconds
    seeds = range(begin, begin + number * step, step)
    for place in range(0, number, PIECE):
        piece = seeds[place : place + PIECE]
        run = _forked if place else _piece
        told = run(piece, first, until, only)
        yield told
        if told["passed"] < len(piece) or time.monotonic() > until or (first and told["found"]):
            return


def _ready(bug: str, aloud: bool = False) -> None:
    """Install the simulation in this process."""
    from .prepared import schedule

    if bug:
        _put_back(bug)
    schedule.quiet(aloud)


def _put_back(bug: str) -> None:
    from . import bugs

    bugs.EVERY[bug]()


def _piece(seeds: range, first: bool, until: float, only: str, alone: int = 0) -> dict[str, Any]:
    """Run some seeds here; end if the process ``alone`` is gone."""
    from . import schedule

    told: dict[str, Any] = {
        "schedules": 0, "passed": 0, "callbacks": 0, "found": [], "kinds": {}, "torn": 0,
        "taken": 0, "mechanisms": {},
    }  # fmt: skip
    for seed in seeds:
        told["passed"] += 1
        if only and only not in schedule.planned(seed):
            continue
        made = schedule.run(seed)
        told["schedules"] += 1
        told["callbacks"] += made.callbacks
        told["torn"] += made.torn
        told["taken"] += made.taken
        _count(told["mechanisms"], made.mechanism)
        for fault in made.faults:
            _count(told["kinds"], fault.split()[2])
        if not made.good:
            kinds = {kind: getattr(made, kind) for kind in KINDS}
            told["found"].append([made.seed, kinds, made.faults])
        if time.monotonic() > until or (first and told["found"]):
            break
        if alone and os.getppid() != alone:
            os._exit(1)
    return told


def _count(counts: dict[str, int], what: str, number: int = 1) -> None:
    counts[what] = counts.get(what, 0) + number


def _forked(seeds: range, first: bool, until: float, only: str, bug: str = "") -> dict[str, Any]:
    """Run some seeds in a fork of this process, with an old mistake if ``bug`` names one."""
    gc.freeze()
    mine, (source, sink) = os.getpid(), os.pipe()
    child = os.fork()
    if not child:
        try:
            if bug:
                _put_back(bug)
            line = json.dumps(_piece(seeds, first, until, only, mine)).encode()
            with open(sink, "wb") as file:
                file.write(line)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(sink)
    with open(source, "rb") as file:
        line = file.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"the schedules of the seeds {seeds} broke off")
    return json.loads(line)  # type: ignore[no-any-return]


def campaign(
    schedules: int,
    seed: int = 0,
    processes: int = 2,
    seconds: float = 1e9,
    bug: str = "",
    first: bool = False,
    told: Callable[[int], None] = lambda done: None,
    only: str = "",
) -> Result:
    """Run schedules seed, seed + 1, … until their number or the time limit is reached.

    Args:
        schedules: maximum number of schedules.
        processes: number of processes to use.
        seconds: limit on real time in seconds.
        bug: old mistake to put back; empty: none.
        first: whether to end with the first objection.
        told: called with the number of seeds done since the last call.
        only: kind of fault; seeds without it are skipped; empty: no seed is skipped.

    Raises:
        RuntimeError: a process failed; the message has its output.
    """
    shares = [range(seed + n, seed + schedules, processes) for n in range(processes)]
    wanted = [[s.start, processes, len(s), seconds, bug, first, only] for s in shares if len(s)]
    children = [Fork(NAME, ["--share", json.dumps(one)]) for one in wanted]
    total, callbacks, torn, taken, found = 0, 0, 0, 0, list[Found]()
    kinds, mechanisms = dict[str, int](), dict[str, int]()
    try:
        for line in _lines(children):
            total += line["schedules"]
            callbacks += line["callbacks"]
            torn += line["torn"]
            taken += line["taken"]
            found += [Found(*one) for one in line["found"]]
            for counts, name in ((kinds, "kinds"), (mechanisms, "mechanisms")):
                for what, number in line[name].items():
                    _count(counts, what, number)
            told(line["passed"])
            if first and found:
                break
    finally:
        for child in children:
            child.kill()
            child.close()
    cpu = sum(child.cpu for child in children)
    return Result(total, sorted(found), callbacks, kinds, torn, taken, mechanisms, cpu)


def _lines(children: Sequence[Fork]) -> Iterator[dict[str, Any]]:
    import selectors

    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child.stdout, selectors.EVENT_READ, child)
        while waiting.get_map():
            for key, _ in waiting.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    yield json.loads(line)
                    continue
                waiting.unregister(key.fileobj)
                child = key.data
                if child.wait():
                    raise RuntimeError(f"a process of the campaign failed:\n{child.errors()}")


def one(seed: int | str, bug: str = "") -> Any:
    """The outcome of one seed from a process of its own: `schedule.Outcome` as a dictionary.

    Args:
        seed: seed, or the text of a recipe.
        bug: old mistake to put back; empty: none.
    """
    done = run(NAME, "--recipe", str(seed), "--bug", bug, "--json")
    done.check_returncode()
    return json.loads(done.stdout)


def apart(mistakes: Mapping[str, int]) -> dict[str, list[bool]]:
    """Whether the seed of each mistake objects without and with the mistake, from one process.

    The forks of a process that has run the seed before find all of its caches filled.
    """
    done = run(NAME, "--apart", json.dumps(mistakes))
    done.check_returncode()
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _apart(mistakes: Mapping[str, int]) -> Iterator[list[bool]]:
    _ready("")
    right: dict[int, bool] = {}
    for bug, seed in mistakes.items():
        seeds = range(seed, seed + 1)
        if seed not in right:
            right[seed] = bool(_piece(seeds, False, math.inf, "")["found"])
        yield [right[seed], bool(_forked(seeds, False, math.inf, "", bug)["found"])]


def main() -> None:
    """Run a share of a campaign, or report one seed in words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", help="for `campaign` itself")
    parser.add_argument("--apart", help="for `apart`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bug", default="")
    parser.add_argument("--recipe", default="", help="of a guided schedule, in the place of a seed")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.share:
        for line in share(*json.loads(args.share)):
            print(json.dumps(line), flush=True)
        os._exit(0)  # as below
    if args.apart:
        wanted = json.loads(args.apart)
        print(json.dumps(dict(zip(wanted, _apart(wanted), strict=True))), flush=True)
        os._exit(0)  # as below
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", NAME, *sys.argv[1:]])
    _one(args.recipe or str(args.seed), args.bug, args.json)


def _one(said: str, bug: str, as_json: bool) -> None:
    _ready(bug, aloud=not as_json)
    from . import schedule
    from .recipe import Recipe, recipe

    made = schedule.run(Recipe(int(said)) if said.isdecimal() else recipe(said))
    if as_json:
        print(json.dumps(vars(made)))
    else:
        _tell(made)
    sys.stdout.flush()
    os._exit(0)  # skip the interpreter's slow clean-up of what the processes left


def _tell(made: Any) -> None:
    ended = f"{made.callbacks} callbacks, all done {made.recovery:.0f} s after the last fault"
    print(f"seed {made.seed}: {made.mechanism}, trace {made.trace:016x}, {ended}")
    for line in made.faults:
        print(f"  fault  {line}")
    for at, name, text in made.exits:
        print(f"  exit   {at:.3f} s: {name}: {text}")
    for kind in KINDS:
        for line in getattr(made, kind):
            print(f"  {kind}: {line}")


if __name__ == "__main__":
    main()
