"""Schedules guided by the states of the protocol that earlier schedules have visited.

    python -m tests.schedules.guided --schedules 2000 --resume states.json
    python -m tests.schedules.guided --standbys --bug "blind copy" --first

A schedule that visits a new state joins a corpus. Half of the next schedules are changes of these:
a fault added at the time of the new state; a fault removed, moved or lengthened; the faults of two
schedules; or other choices from that time on. The others are fresh seeds; half of these have some
of the faults that only guided schedules have (`draws.GUIDED`). A schedule that objects is shrunk at
once.

The search depends only on its number, so it continues after an interruption as if there were none.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from .campaign import KINDS, _ready
from .recipe import STANDING, Fault, Recipe, Turn, has_standbys, recipe
from .shrink import shrunk

NAME = "tests.schedules.guided"
PIECE = 20  # schedules that one fork runs with one state of the corpus
APART = 1_000_000  # distance between the seeds of two searches
MOST = 3000  # schedules in the corpus; the oldest give way


class Entry(NamedTuple):
    """A schedule that visited new states.

    Attributes:
        recipe: recipe that it followed.
        faults: faults that it had.
        moments: times of its new states, in virtual seconds.
    """

    recipe: Recipe
    faults: tuple[Fault, ...]
    moments: tuple[float, ...]


class Search:
    """A search: its number and what it has found so far.

    Args:
        number: number of the search.
        plain: whether to run seeds in order, without guidance or added faults.
        bug: old mistake to put back; empty: none.
    """

    def __init__(self, number: int = 0, plain: bool = False, bug: str = "") -> None:
        self.number, self.plain, self.bug = number, plain, bug
        self.schedules = 0
        self.seconds = 0.0
        self.fresh = 0
        self.states: set[int] = set()
        self.corpus: list[Entry] = []
        self.found: list[dict[str, Any]] = []

    @property
    def standing(self) -> bool:
        """Whether its deployments have standbys."""
        return has_standbys(self.number * APART)

    # -- what is next -----------------------------------------------------------------------------

    def piece(self) -> list[Recipe]:
        """The next schedules."""
        random = Random(f"piece {self.number} {self.schedules}")
        return [self._next(random) for _ in range(PIECE)]

    def _next(self, random: Random) -> Recipe:
        if self.plain or not self.corpus or random.random() < 0.5:
            return self._fresh(random)
        # Prefer the newest: fewest schedules have visited their states.
        place = len(self.corpus) - 1 - int(len(self.corpus) * random.random() ** 2)
        return self._changed(self.corpus[place], random)

    def _fresh(self, random: Random) -> Recipe:
        from .schedule import Schedule

        seed = self.number * APART + self.fresh
        self.fresh += 1
        if self.plain or random.random() < 0.5:
            return Recipe(seed)
        one = Schedule(seed)
        one.plan()
        added = [_fault(random, _further(seed), 12.0) for _ in range(random.choice((1, 1, 2)))]
        return Recipe(seed, (*one.faults.drawn, *added))

    def _changed(self, entry: Entry, random: Random) -> Recipe:
        faults, turns = list(entry.faults), list(entry.recipe.turns)
        moment = random.choice(entry.moments)
        for _ in range(random.choice((1, 1, 2, 3))):
            way = random.randrange(6)
            if way == 0:
                turns = [t for t in turns if t.at < moment]
                turns.append(Turn(moment, random.randrange(1 << 30)))
            elif way == 1 or not faults:
                near = max(moment + random.uniform(-1.0, 1.0), 0.5)
                kinds = _every(entry.recipe.seed)
                faults.append(_fault(random, kinds)._replace(at=near))
            elif way == 2:
                del faults[random.randrange(len(faults))]
            elif way == 3:
                place = random.randrange(len(faults))
                faults[place] = faults[place]._replace(at=max(moment + random.gauss(0, 1), 0.5))
            elif way == 4:
                place = random.randrange(len(faults))
                faults[place] = faults[place]._replace(size=random.random())
            else:
                other = random.choice(self.corpus).faults
                faults += [one for one in other if random.random() < 0.5]
        return Recipe(entry.recipe.seed, tuple(faults[:7]), tuple(turns[-4:]))

    # -- what came of it --------------------------------------------------------------------------

    def learn(self, tried: Recipe, made: dict[str, Any]) -> bool:
        """Learn from a schedule; return whether it has an objection."""
        self.schedules += 1
        new = [at for state, at in made["states"] if state not in self.states]
        self.states.update(state for state, _ in made["states"])
        if new and not self.plain:
            moments = tuple(sorted(new)[:8])
            self.corpus.append(Entry(tried, tuple(Fault(*f) for f in made["drawn"]), moments))
            del self.corpus[: max(len(self.corpus) - MOST, 0)]
        return any(made[kind] for kind in KINDS)

    def run(
        self,
        schedules: int,
        first: bool = False,
        told: Callable[[Search], None] = lambda search: None,
    ) -> None:
        """Run schedules until their total number reaches a limit.

        Args:
            first: whether to end with the first objection.
            told: called after each piece.
        """
        while self.schedules < schedules:
            began, tried = time.monotonic(), self.piece()
            for one, made in zip(tried, forked(tried, first), strict=False):
                if self.learn(one, made):
                    self.found.append(self._objection(one, made))
                    if first:
                        self.seconds += time.monotonic() - began
                        return
            self.seconds += time.monotonic() - began
            told(self)

    def _objection(self, tried: Recipe, made: dict[str, Any]) -> dict[str, Any]:
        least = shrunk(tried, made, lambda ones: forked(ones, False))
        said = {kind: made[kind][:3] for kind in KINDS if made[kind]}
        return {"recipe": tried.text(), "least": least.text(), "after": self.schedules,
                "kinds": said, "command": command(least, self.bug)}  # fmt: skip

    # -- on disk ----------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write the search to a file, which always has a complete state."""
        said = {
            **{name: getattr(self, name) for name in ("number", "plain", "bug", "schedules",
                                                      "seconds", "fresh", "found")},
            "states": sorted(self.states),
            "corpus": [[e.recipe.text(), e.faults, e.moments] for e in self.corpus],
        }  # fmt: skip
        part = path.with_suffix(".part")
        part.write_text(json.dumps(said), "utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Search:
        """Read a search that `save` has written."""
        said = json.loads(path.read_text("utf-8"))
        made = cls(said["number"], said["plain"], said["bug"])
        for name in ("schedules", "seconds", "fresh", "found"):
            setattr(made, name, said[name])
        made.states = set(said["states"])
        made.corpus = [
            Entry(recipe(text), tuple(Fault(*one) for one in faults), tuple(moments))
            for text, faults, moments in said["corpus"]
        ]
        return made


def _further(seed: int) -> tuple[str, ...]:
    """Faults that only guided schedules have; with standbys, also those of copies."""
    from .draws import GUIDED

    return (*GUIDED, *_of_copies(seed))


def _of_copies(seed: int) -> tuple[str, ...]:
    from .draws import OF_STANDBYS

    return (*OF_STANDBYS, "ahead", "ahead") if has_standbys(seed) else ()


def _every(seed: int) -> tuple[str, ...]:
    """Kinds of faults for a seed; frequent kinds appear more than once."""
    from .draws import GUIDED, OF_BROKERS, USUAL

    return (*USUAL, *GUIDED * 2, *OF_BROKERS * 2, *_of_copies(seed))


def _fault(random: Random, kinds: Sequence[str], until: float = 20.0) -> Fault:
    at = round(1.0 + random.random() * until, 3)
    return Fault(random.choice(kinds), random.randrange(3), at, round(random.random(), 4))


def command(one: Recipe, bug: str = "") -> str:
    """The command line that replays a schedule."""
    mistake = f' --bug "{bug}"' if bug else ""
    return f"python -m tests.schedules.campaign --recipe '{one.text()}'{mistake}"


def outcome(one: Recipe) -> dict[str, Any]:
    """Run a schedule here; return its objections, faults and states."""
    from . import coverage
    from .schedule import Schedule

    schedule = Schedule(one)
    seen = coverage.Seen(schedule)
    made = schedule.run()
    faults = schedule.faults.drawn if one.faults is None else one.faults
    return {
        **{kind: getattr(made, kind) for kind in KINDS},
        "drawn": faults, "states": coverage.told(seen), "trace": made.trace,
    }  # fmt: skip


def warm(seed: int) -> None:
    """Run a schedule of each kind here, so that forks find every configuration compiled.

    Args:
        seed: first seed.
    """
    from .deployments import FURTHER
    from .schedule import KINDS as kinds
    from .schedule import kind_of, run

    wanted = {*kinds, *FURTHER}
    while wanted:
        if (kind := kind_of(seed)) in wanted:
            wanted.remove(kind)
            run(seed)
        seed += 1


def forked(ones: Sequence[Recipe], first: bool) -> list[dict[str, Any]]:
    """Run schedules in a fork of this process; the fork's end frees all that they leave behind.

    Args:
        first: whether to end with the first objection.
    """
    gc.freeze()
    mine, (source, sink) = os.getpid(), os.pipe()
    child = os.fork()
    if not child:
        try:
            with open(sink, "w", encoding="utf-8") as file:
                for one in ones:
                    made = outcome(one)
                    file.write(json.dumps(made) + "\n")
                    if (first and any(made[kind] for kind in KINDS)) or os.getppid() != mine:
                        break
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(sink)
    with open(source, encoding="utf-8") as file:
        lines = file.read().splitlines()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"broke off after {len(lines)} of {[one.text() for one in ones]}")
    return [json.loads(line) for line in lines]


def main() -> None:
    """Search, and print the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=1000, help="in all, with earlier pieces")
    parser.add_argument("--resume", type=Path, help="file with the search so far; it goes on there")
    parser.add_argument("--number", type=int, default=1, help="of the search; each has its seeds")
    parser.add_argument("--standbys", action="store_true", help="workers keep copies of tables")
    parser.add_argument("--bug", default="")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--plain", action="store_true", help="seeds in their order, unguided")
    args = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", NAME, *sys.argv[1:]])
    _ready(args.bug)
    number = args.number + (STANDING // APART if args.standbys else 0)
    there = args.resume is not None and args.resume.exists()
    search = Search.load(args.resume) if there else Search(number, args.plain, args.bug)
    if args.standbys and not search.standing:
        parser.error(f"the search in {args.resume} has no standbys")
    warm(STANDING if search.standing else 0)

    def told(one: Search) -> None:
        if args.resume is not None:
            one.save(args.resume)

    search.run(args.schedules, args.first, told)
    told(search)
    print(json.dumps(summary(search)))
    sys.stdout.flush()
    os._exit(1 if search.found else 0)


def summary(search: Search) -> dict[str, Any]:
    """The number of schedules, the states and the findings of a search."""
    return {
        "schedules": search.schedules, "states": len(search.states), "corpus": len(search.corpus),
        "seconds": round(search.seconds), "found": search.found,
    }  # fmt: skip


if __name__ == "__main__":
    main()
