"""Numbers that are too long: hostile ones take minutes to read, or cannot be written."""

from __future__ import annotations

import re

MOST_DIGITS = 1000  # of a number; Python neither reads nor writes more than 4300
_HUGE = re.compile(r"[eE][+-]?0*[0-9]{4}")

NOT_HUGE = f"must be a number between 1e-999 and 1e999, of at most {MOST_DIGITS} digits"


def huge(text: str) -> bool:
    """Whether a text, taken as a number, is too long to read or to write.

    >>> huge("1e999"), huge("1e-1000"), huge("9" * 1001)
    (False, True, True)
    """
    return len(text) > MOST_DIGITS or _HUGE.search(text) is not None
