"""Functions of texts: what a condition or a column of a key makes of a field.

All are asked once for each distinct text of a batch, and take time linear in its length: patterns
of LIKE become regular expressions that never go back, regular expressions themselves are RE2's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

Step = tuple[str | int, ...]
"""A function by its name, and its arguments:

- ``lower``, ``upper``: the letters of Unicode;
- ``trim``, and "both", "left" or "right": without the blanks at these ends;
- ``part``, a start, and a length or -1: characters from the start on, the first of which is 1; from
  the end, of which the last is -1. A length of -1 is all that follow;
- ``extract`` and a regular expression: what its group matches first, or the whole of it where it
  has none. A text without it becomes none.
"""

BLANK = " "
MOST = 1000  # bytes of a pattern


def changed(texts: Iterable[str], steps: Sequence[Step]) -> list[str | None]:
    """Each text after all steps; None where there is none left."""
    found: list[str | None] = list(texts)
    for name, *given in steps:
        change = _STEPS[str(name)](*given)
        found = [None if text is None else change(text) for text in found]
    return found


Change = Callable[[str], str | None]


def _trimmed(ends: str) -> Change:
    strip = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}[ends]
    return lambda text: strip(text, BLANK)


def _part(start: int, length: int) -> Change:
    def change(text: str) -> str:
        low = start - 1 if start > 0 else max(len(text) + start, 0)
        return text[low:] if length < 0 else text[low : low + length]

    return change


def _extract(pattern: str) -> Change:
    regular = expression(pattern)
    group = min(regular.groups, 1)

    def change(text: str) -> str | None:
        found = regular.search(text)
        taken: str | None = None if found is None else found.group(group)
        return taken

    return change


_STEPS: dict[str, Callable[..., Change]] = {
    "lower": lambda: str.lower,
    "upper": lambda: str.upper,
    "trim": _trimmed,
    "part": _part,
    "extract": _extract,
}


def matching(kind: str, values: Sequence[str]) -> Callable[[str], bool]:
    """A test of a text: whether it is ``in`` values, ``like`` a pattern, or ``matches`` one."""
    if kind == "in":
        return frozenset(values).__contains__
    regular = re.compile(like(values[0])) if kind == "like" else expression(values[0])
    find: Callable[[str], Any] = regular.search
    return lambda text: find(text) is not None


def like(pattern: str) -> str:
    r"""The regular expression of a pattern of LIKE; a backslash takes the next character as it is.

    Each text between two ``%`` is looked for once, at its first place, and never anywhere else.

    >>> like("a_%b%")
    '(?s)\\Aa.(?>.*?b).*\\Z'
    """
    parts, escaped = [""], False
    for one in pattern:
        if escaped or one not in "\\%_":
            parts[-1] += re.escape(one)
            escaped = False
        elif one == "\\":
            escaped = True
        elif one == "_":
            parts[-1] += "."
        else:
            parts.append("")
    parts[-1] += re.escape("\\") * escaped  # with nothing behind it, it stands for itself
    first, *rest = parts
    if not rest:
        return rf"(?s)\A{first}\Z"
    *between, last = rest
    return rf"(?s)\A{first}{''.join(f'(?>.*?{one})' for one in between if one)}.*{last}\Z"


@lru_cache(maxsize=256)
def expression(pattern: str) -> Any:
    """A regular expression of RE2.

    Raises:
        ValueError: it is none, or has more than one group.
    """
    import re2  # here: it takes long to load, and few pipelines need it

    options = re2.Options()
    options.log_errors = False
    try:
        regular = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0] if error.args else b""
        words = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise ValueError(f"is no regular expression of RE2: {words}") from None
    if regular.groups > 1:
        raise ValueError("has more than one group: make the others (?:...)")
    return regular
