"""Conditions on a record as settings, and their normal form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from ....formats.events.expressions import conditions as means
from ....formats.events.expressions.looked_up import PublicTable, row_fits
from ....formats.events.expressions.texts import MOST, expression
from ..toml.lines import Path
from ..toml.read import Convert, Reader, objections_of
from ..toml.values import FieldPath, beyond_doubles
from .text_steps import TextStep, objections_to, steps_of

Literal = str | bool | int | Fraction

_DEEPEST = 16
_ENDS = ("at_least", "above", "at_most", "below")
_OF_FIELD = ("field", "text", "lookup", "match", "take")
_PATTERNS = {"like": "like", "not_like": "like", "matches": "matches", "not_matches": "matches"}


def _read_parts(reader: Reader, raw: Any, path: Path) -> tuple[Condition, ...]:
    if sum(step in ("any", "all") for step in path) > _DEEPEST:
        raise reader.fail(path, f"is nested more than {_DEEPEST} deep")
    parts: tuple[Condition, ...] = reader.read(tuple[Condition, ...], raw, path)
    if not parts:
        raise reader.fail(path, "must be a list of at least one condition")
    return parts


Parts = Annotated[tuple[Any, ...] | None, Convert(_read_parts)]


@dataclass(frozen=True)
class Condition:
    """A condition on one field of the record itself, or several of them as one.

    A record without the field fulfils none but `present = false`. Besides `field`, give one of
    `equals`, `one_of`, `none_of`, `like`, `not_like`, `matches`, `not_matches` and `present`, or
    one end or two of an interval; instead of all these, give `any` or `all`. With `lookup` it is on
    the row that the field finds.

    Attributes:
        field: path of a text, a number, or a truth value.
        equals: the value that it must be.
        one_of: values of one type, one of which it must be.
        none_of: values of one type, none of which it may be.
        lookup: public table in which the field finds a row, charged by its content: a file (`.csv`
            or `.tsv` with a header), or the name of a `[[lookup]]`.
        match: its column that is compared with the field; the field's own name.
        take: its column whose value counts.
        text: functions applied to the text before the condition is tested.
        like: pattern of the whole text: `%` stands for any characters, `_` for one, and a
            backslash takes the next one as it is.
        not_like: a pattern that it must not have.
        matches: regular expression (RE2) that is somewhere in the text.
        not_matches: one that is nowhere in it.
        at_least: a number that it must reach.
        above: a number that it must exceed.
        at_most: a number that it must not exceed.
        below: a number that it must not reach.
        present: whether the record must have it.
        any: conditions, at least one of which must hold.
        all: conditions that must all hold.
    """

    field: FieldPath | None = None
    equals: Literal | None = None
    one_of: tuple[Literal, ...] | None = None
    none_of: tuple[Literal, ...] | None = None
    lookup: Annotated[PublicTable | None, Convert(lambda _, raw, path: raw)] = None
    match: str | None = None
    take: str | None = None
    text: tuple[TextStep, ...] | None = None
    like: str | None = None
    not_like: str | None = None
    matches: str | None = None
    not_matches: str | None = None
    at_least: Fraction | None = None
    above: Fraction | None = None
    at_most: Fraction | None = None
    below: Fraction | None = None
    present: bool | None = None
    any: Parts = None
    all: Parts = None

    def pinned(self) -> dict[str, Any]:
        """The condition as the charged configuration states it, in its normal form."""
        return _told(self.meant())

    def objections(self) -> Iterator[tuple[str, str]]:
        """Settings that contradict each other, each with its dotted place."""
        given = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        groups = [name for name in ("any", "all") if name in given]
        if groups:
            if given != groups[:1]:
                yield groups[0], "must stand alone in its table"
            yield from objections_of(groups[0], getattr(self, groups[0]))
            return
        if "field" not in given:
            yield "", "needs field, any or all"
            return
        asked = [name for name in given if name not in _OF_FIELD]
        found = list(self._leaf(asked))
        yield from found or self._looked_up()

    def _looked_up(self) -> Iterator[tuple[str, str]]:
        """Objections to a condition on a looked-up row; its other settings are valid."""
        if self.lookup is None:
            for name in ("match", "take"):
                if getattr(self, name) is not None:
                    yield name, "has an effect only with lookup"
            return
        if not isinstance(self.lookup, PublicTable):  # no table was read for it
            yield "lookup", "is possible in conditions on records alone, not in those of a view"
            return
        try:
            self.meant()
        except ValueError as error:
            yield "lookup", f"column {self.take} {error}"

    def _leaf(self, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Objections to a condition on one field."""
        ends = [name for name in given if name in _ENDS]
        yield from self._of_text(given)
        if not given:
            yield "", f"says nothing about {self.field}: give equals, one_of, at_least, ..."
        elif len(given) > 1 and len(ends) < len(given):
            yield given[-1], f"and {given[0]} exclude each other: write two conditions"
        elif {"at_least", "above"} <= set(given) or {"at_most", "below"} <= set(given):
            yield given[-1], f"and {given[-2]} are both the same end of an interval"
        elif len(ends) == 2 and _end(self, ends[0]) > _end(self, ends[1]):
            yield given[-1], f"is below {ends[0]}: no record can fulfil both"
        for name in given:
            # Records are compared as doubles: such a number would stop the stream at the first
            # record.
            for value in filter(beyond_doubles, _listed(getattr(self, name))):
                yield name, f"{Decimal(int(value)):.3g} must be a number up to 1e308 in size"
        for name in ("one_of", "none_of"):
            values = getattr(self, name)
            if values is not None and len({_type(value) for value in values}) != 1:
                yield name, "must be a list of at least one value, all texts, numbers or truths"

    def _of_text(self, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Objections to functions and patterns of a text."""
        yield from objections_to(self.text)
        for name in set(given) & set(_PATTERNS):
            pattern = getattr(self, name)
            if len(pattern.encode()) > MOST:
                yield name, f"is longer than {MOST} bytes"
            elif _PATTERNS[name] == "matches":
                try:
                    expression(pattern)
                except ValueError as error:
                    yield name, str(error)
        if self.text is None:
            return
        for name in given:
            values = _listed(getattr(self, name))
            if name in _ENDS or not all(isinstance(value, str) for value in values):
                yield name, "must be a text, as functions of a text give none else"

    def meant(self) -> means.Condition:
        """The condition in its normal form: flat, sorted, and each part once."""
        if self.any is not None:
            return joined(means.Some, [part.meant() for part in self.any])
        if self.all is not None:
            return joined(means.Every, [part.meant() for part in self.all])
        found = self._of_value(self.field or "")
        return found if self.lookup is None else _of_row(found, self.lookup)

    def _of_value(self, path: str) -> means.Condition:
        """The condition on the field's own value, or on its row's."""
        steps = steps_of(self.text)
        for name, test in _PATTERNS.items():
            if (pattern := getattr(self, name)) is not None:
                return means.TextFits(path, steps, test, (pattern,), name.startswith("not_"))
        if self.present is not None:
            return means.Present(path, self.present)
        for name, denied in (("equals", False), ("one_of", False), ("none_of", True)):
            value = getattr(self, name)
            if value is not None and steps:
                texts = tuple(sorted({str(one) for one in _listed(value)}))
                return means.TextFits(path, steps, "in", texts, denied)
            if value is not None:
                return _among(path, _listed(value), denied)
        low = self.above if self.at_least is None else self.at_least
        high = self.below if self.at_most is None else self.at_most
        open_low, open_high = self.above is not None, self.below is not None
        return means.Between(path, low, high, open_low, open_high)


def every(conditions: Sequence[Condition]) -> means.Condition | None:
    """The normal form of a list of conditions that must all hold; None if it is empty."""
    return joined(means.Every, [one.meant() for one in conditions]) if conditions else None


def pinned(conditions: Sequence[Condition]) -> dict[str, Any] | None:
    """A list of conditions as the charged configuration states it; None if it is empty."""
    whole = every(conditions)
    return None if whole is None else _told(whole)


def joined(
    kind: type[means.Every] | type[means.Some], parts: Sequence[means.Condition]
) -> means.Condition:
    """Join conditions: flat, in one order, each once, and a single one as itself."""
    flat: list[means.Condition] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else [part]
    distinct = sorted(dict.fromkeys(flat), key=repr)
    return distinct[0] if len(distinct) == 1 else kind(tuple(distinct))


def _of_row(condition: means.Condition, table: PublicTable) -> means.Condition:
    """A condition on the value of the row that a field finds."""
    if isinstance(condition, means.Every | means.Some):
        return joined(type(condition), [_of_row(part, table) for part in condition.parts])
    return row_fits(condition.field, table, replace(condition, field=""))


def _among(path: str, values: Sequence[Literal], denied: bool) -> means.Condition:
    """A condition to be one of some values of one type or, if denied, none of them."""
    if isinstance(values[0], bool):
        allowed = {True, False} - set(values) if denied else set(values)
        if len(allowed) == 1:
            return means.TruthIs(path, *allowed)
        both = [means.TruthIs(path, value) for value in (False, True)]
        return means.Some(tuple(both)) if allowed else means.Every(tuple(both))
    if isinstance(values[0], str):
        return means.TextIn(path, tuple(sorted({str(value) for value in values})), denied)
    numbers = sorted({Fraction(value) for value in values if not isinstance(value, str)})
    return means.NumberIn(path, tuple(numbers), denied)


def _told(condition: means.Condition) -> dict[str, Any]:
    """A condition in plain values, with the name of its kind."""
    if isinstance(condition, means.RowFits):  # the table determines its keys
        test = {name: value for name, value in _told(condition.test).items() if name != "field"}
        told = {name: getattr(condition, name) for name in ("field", "sha256", "count", "denied")}
        return {"kind": "rowfits", **told, "test": test}
    plain: dict[str, Any] = {"kind": type(condition).__name__.lower()}
    for one in fields(condition):
        value = getattr(condition, one.name)
        if one.name == "parts":
            value = [_told(part) for part in value]
        plain[one.name] = value
    return plain


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _end(condition: Condition, name: str) -> Fraction:
    return Fraction(getattr(condition, name))


def _type(value: Literal) -> str:
    if isinstance(value, bool):
        return "truth"
    return "text" if isinstance(value, str) else "number"
