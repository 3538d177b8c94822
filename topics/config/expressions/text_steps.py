"""Functions of texts as settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from ....formats.events.expressions.texts import MOST, Step, expression
from ..toml.read import objections_of


@dataclass(frozen=True)
class TextStep:
    """A function of a text: one of `case`, `trim` and `extract`, or `start`, with `length` or not.

    Attributes:
        case: case that its letters get.
        trim: end or ends whose blanks are removed.
        start: first character that is kept; the first of the text is 1, the last -1.
        length: maximum number of characters.
        extract: first match of a regular expression (RE2), or of its group if it has one. A text
            without a match counts as missing.
    """

    case: Literal["lower", "upper"] | None = None
    trim: Literal["both", "left", "right"] | None = None
    start: int | None = None
    length: int | None = None
    extract: str | None = None

    def objections(self) -> Iterator[tuple[str, str]]:
        """Settings that are wrong or contradict each other."""
        given = [one.name for one in fields(self) if getattr(self, one.name) is not None]
        if given not in (["case"], ["trim"], ["start"], ["start", "length"], ["extract"]):
            yield "", "needs one of case, trim, extract and start, with length or without"
            return
        if self.start == 0:
            yield "start", "must not be 0: the first character is 1, the last -1"
        if self.length is not None and self.length < 1:
            yield "length", f"{self.length} must be at least 1"
        if self.extract is not None and len(self.extract.encode()) > MOST:
            yield "extract", f"is longer than {MOST} bytes"
        elif self.extract is not None:
            try:
                expression(self.extract)
            except ValueError as error:
                yield "extract", str(error)

    def meant(self) -> Step:
        """The function and its arguments."""
        if self.case is not None:
            return (self.case,)
        if self.trim is not None:
            return "trim", self.trim
        if self.extract is not None:
            return "extract", self.extract
        return "part", self.start or 1, -1 if self.length is None else self.length


def steps_of(given: Sequence[TextStep] | None) -> tuple[Step, ...]:
    """The functions that are set; none for None."""
    return tuple(one.meant() for one in given or ())


def objections_to(given: Sequence[TextStep] | None) -> Iterator[tuple[str, str]]:
    """Objections to a list of functions, each with its dotted place."""
    if given is not None and not given:
        yield "text", 'is empty: leave it out, or give a function such as { case = "lower" }'
    yield from objections_of("text", given or ())
