"""The list of mutants: each is one small mistake that would break a guarantee, with its tests.

The lists are TOML files beside this module, one for each group; README.md describes their fields.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..tree import ROOT

HERE = Path(__file__).parent


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        group: name of its list.
        name: unique name, as given to ``--only``.
        file: path of the changed file, from the root of the repository.
        old: text that occurs in the file exactly once.
        new: text in its place.
        why: consequence of the mistake.
        tests: node ids of pytest, at least one of which must fail.
    """

    group: str
    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the mistake in it.

        Raises:
            ValueError: the old text does not occur exactly once: the product has changed, and the
                mutant must follow.
        """
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"mutant {self.name}: {self.file} has its old text {found} times")
        return text.replace(self.old, self.new)


def load(folder: Path = HERE) -> list[Mutant]:
    """All mutants, in the order of the lists in ``folder``."""
    return [
        Mutant(path.stem, **{**fields, "tests": tuple(fields["tests"])})
        for path in sorted(folder.glob("*.toml"))
        for fields in tomllib.loads(path.read_text("utf-8"))["mutant"]
    ]


BROKER = ("worker", "desk")
"""Groups whose tests start a broker: too slow for a sample."""


def sample(mutants: Sequence[Mutant], seed: str, number: int) -> list[Mutant]:
    """A random choice, which depends only on the seed, of mutants that need no broker."""
    among = [m for m in mutants if m.group not in BROKER]
    return random.Random(seed).sample(among, min(number, len(among)))


def nodes(mutants: Iterable[Mutant]) -> list[str]:
    """Every named test, once."""
    return sorted({test for mutant in mutants for test in mutant.tests})


def source(mutant: Mutant) -> str:
    """The text of the mutant's file in this checkout."""
    return (ROOT / mutant.file).read_text("utf-8")
