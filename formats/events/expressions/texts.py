"""Functions of texts that conditions and key columns apply to a field.

Each is evaluated once for each distinct text of a batch, in time linear in its length: LIKE
patterns become regular expressions that never backtrack, and regular expressions themselves are
RE2's.
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
- ``part``, a start, and a length: characters from the start on; the first is 1, and -1 is the last.
  A length of -1 means all that follow;
- ``extract`` and a regular expression: the first match of its group, or of the whole expression if
  it has none. A text without a match becomes none.
"""

BLANK = " "
MOST = 1000  # bytes of a pattern


def changed(texts: Iterable[str], steps: Sequence[Step]) -> list[str | None]:
    """Each text after all steps; None if nothing is left."""
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
    r"""The regular expression of a LIKE pattern; a backslash makes the next character literal.

    Each text between two ``%`` is matched at its first occurrence only, without backtracking.

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
    parts[-1] += re.escape("\\") * escaped  # a final backslash is literal
    first, *rest = parts
    if not rest:
        return rf"(?s)\A{first}\Z"
    *between, last = rest
    return rf"(?s)\A{first}{''.join(f'(?>.*?{one})' for one in between if one)}.*{last}\Z"


@lru_cache(maxsize=256)
def expression(pattern: str) -> Any:
    """A regular expression of RE2.

    Raises:
        ValueError: it is not valid, or has more than one group.
    """
    import re2  # here: it loads slowly, and few pipelines need it

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
