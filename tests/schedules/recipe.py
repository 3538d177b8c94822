"""One schedule in writing: its seed, and the changes to what the seed decides.

A seed alone is a recipe, and it replays exactly. Guidance and shrinking change the list of faults,
leave out records, or change the order of events from some time on. Everything before that time
stays, so a change keeps the way to the state that made the schedule interesting.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

STANDING = 10**9
"""From this seed on, deployments have standbys and draw more faults that move shards to them."""
FULL = 2 * STANDING
"""From this seed on, all draw the faults of guided schedules; the second billion has standbys."""


def has_standbys(seed: int) -> bool:
    """Whether a seed's deployment has standbys."""
    return seed // STANDING % 2 == 1


class Fault(NamedTuple):
    """One fault.

    Attributes:
        kind: name of a method of `Faults`.
        machine: number of the schedule's machine that it strikes.
        at: time in virtual seconds.
        size: length or extent, between 0 and 1.
    """

    kind: str
    machine: int
    at: float
    size: float


class Turn(NamedTuple):
    """A time from which all further choices differ.

    Attributes:
        at: time in virtual seconds.
        number: seed of the other choices.
    """

    at: float
    number: int


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a schedule.

    Attributes:
        seed: seed of everything else.
        faults: faults in place of those that the seed draws; None: the drawn ones.
        turns: times from which other choices are made.
        without: numbers of records that are not sent.
    """

    seed: int
    faults: tuple[Fault, ...] | None = None
    turns: tuple[Turn, ...] = ()
    without: tuple[int, ...] = ()

    def text(self) -> str:
        """The recipe as JSON, which `recipe` reads."""
        said = {name: value for name, value in asdict(self).items() if value not in ((), None)}
        return json.dumps(said | ({"faults": []} if self.faults == () else {}))


def recipe(text: str) -> Recipe:
    """Read a recipe.

    >>> recipe('{"seed": 7, "turns": [[2.5, 1]]}').turns
    (Turn(at=2.5, number=1),)
    >>> recipe(Recipe(7, faults=()).text()) == Recipe(7, faults=())
    True
    """
    said: dict[str, Any] = json.loads(text)
    faults = said.get("faults")
    return Recipe(
        said["seed"],
        None if faults is None else tuple(Fault(*one) for one in faults),
        tuple(Turn(*one) for one in said.get("turns", ())),
        tuple(said.get("without", ())),
    )
