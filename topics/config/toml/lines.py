"""Line numbers of the settings of a TOML file.

The standard parser checks the file but does not keep line numbers. So this scanner runs after it,
on valid text, and only finds where each key, table and array element begins.
"""

from __future__ import annotations

import re
import tomllib
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:[^\\]|\\.)*?"{3,5}',
        r"'''.*?'{3,5}",
        r'"(?:[^"\\\n]|\\.)*"',
        r"'[^'\n]*'",
    )
)


def line_index(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every setting of a valid TOML document.

    Paths consist of names and, for elements of arrays and arrays of tables, places from 0.

    >>> line_index('[a]\\nb = {c = 1}\\n[[d]]\\ne = [1,\\n 2]')[("d", 0, "e", 1)]
    5
    """
    return _Scanner(text.replace("\r\n", "\n")).lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line, self._counted = 1, 0
        self._elements: dict[Path, int] = {}  # arrays of tables -> place of the last element
        self._document()

    def _document(self) -> None:
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)

    def _header(self) -> Path:
        line = self._here()
        double = self._text.startswith("[[", self._at)
        self._at += 1 + double
        path = self._key(())
        self._skip(_BLANK)
        self._at += 1 + double
        resolved = self._resolve(path, double)
        self._note(resolved, line)
        return resolved

    def _resolve(self, path: Path, appends: bool) -> Path:
        """Insert the positions of the current array elements into a header's names."""
        resolved: Path = ()
        for depth, name in enumerate(path):
            resolved += (name,)
            if appends and depth == len(path) - 1:
                self._elements[resolved] = self._elements.get(resolved, -1) + 1
            if resolved in self._elements:
                resolved += (self._elements[resolved],)
        return resolved

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = self._key(table)
        self._note(path, line)
        self._skip(_BLANK)
        self._at += 1  # the sign "="
        self._skip(_BLANK)
        self._value(path)

    def _key(self, path: Path) -> Path:
        while True:
            self._skip(_BLANK)
            path += (self._name(),)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return path
            self._at += 1

    def _name(self) -> str:
        start = self._at
        if self._text[start] in "\"'":
            self._string()
            quoted = self._text[start : self._at]
            return str(tomllib.loads(f"name = {quoted}")["name"])
        self._skip(_BARE)
        return self._text[start : self._at]

    def _value(self, path: Path) -> None:
        first = self._text[self._at]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        elif first in "\"'":
            self._string()
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        place = 0
        self._at += 1
        while not self._closes("]"):
            self._note((*path, place), self._here())
            self._value((*path, place))
            place += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while not self._closes("}"):
            self._pair(path)

    def _closes(self, bracket: str) -> bool:
        """Skip a separator; consume the closing bracket if it follows."""
        self._skip(_GAP)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_GAP)
        if self._text[self._at] == bracket:
            self._at += 1
            return True
        return False

    def _string(self) -> None:
        for pattern in _STRINGS:
            match = pattern.match(self._text, self._at)
            if match:
                self._at = match.end()
                return

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _note(self, path: Path, line: int) -> None:
        for depth in range(1, len(path) + 1):
            self.lines.setdefault(path[:depth], line)
