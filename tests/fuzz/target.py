"""A parser of foreign input, with real input and the errors that it may raise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .mutate import mutant

Mutate = Callable[[random.Random, list[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    """A parser under test.

    Attributes:
        corpus: real inputs.
        run: function that passes it one input.
        allowed: errors with which it may refuse an input.
        mutate: function that makes a hostile input from real ones.
    """

    corpus: list[bytes]
    run: Callable[[bytes], Any]
    allowed: tuple[type[Exception], ...] = ()
    mutate: Mutate = mutant
