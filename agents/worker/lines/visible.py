"""Escapes control characters, and characters that hide text or reverse its direction.

Names and released keys come from the writers of records. Printed unescaped, some would clear the
screen, set its title or forge a line; others reverse the direction of text or are invisible, so
that one key looks like another. The escapes are those of JSON, so escaped JSON keeps its meaning.
"""

from __future__ import annotations

import re

# C0, DEL and C1; the separators of lines and paragraphs; controls of direction; invisible ones;
# halves of surrogate pairs, which cannot be written at all.
_ALWAYS = (
    r"\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
    r"\u00ad\u180e\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
# Joiners are needed in emoji and in scripts such as Persian; next to ASCII they are only invisible.
_JOINER = r"(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
_HIDDEN = re.compile(f"[{_ALWAYS}]|{_JOINER}")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Escape every character of a name that a person would not see as it is.

    >>> print(visible("tea\x1b[2J\n\u202egpj.exe"))
    tea\u001b[2J\n\u202egpj.exe
    """
    return _HIDDEN.sub(_written, text)


def visible_lines(text: str) -> str:
    r"""Apply `visible` to each line of a text; line feeds stay.

    >>> visible_lines("a\nb\x9bc")
    'a\nb\\u009bc'
    """
    return "\n".join(map(visible, text.split("\n")))


def _written(found: re.Match[str]) -> str:
    one = found[0]
    if one in _SHORT:
        return _SHORT[one]
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
