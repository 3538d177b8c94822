"""Compiled loops, where numba is installed: `hushstream[fast]`.

Nothing here decides anything: each compiled loop has a slower path beside it that gives the same
answers, and that is what runs without numba.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, TypeVar

from ..code_cache import seal

F = TypeVar("F", bound=Callable[..., Any])


def possible() -> bool:
    """Whether loops can be compiled here."""
    return find_spec("numba") is not None


def compiled(function: F) -> F:
    """Compile a function at its first call; later processes find it in numba's cache, sealed.

    Args:
        function: of numbers and arrays; it raises nothing.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "boundscheck": False}
    # Where no folder for a cache can be written, or none can be sealed, each process compiles.
    with suppress(RuntimeError):
        kept: F = njit(cache=True, **options)(function)
        if seal(kept):
            return kept
    made: F = njit(**options)(function)
    return made
