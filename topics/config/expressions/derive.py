"""Derived columns of a key as settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated, Any

import msgspec

from ....formats.events.expressions.conditions import Condition as Meant
from ....formats.events.expressions.conditions import RowFits, leaves
from ....formats.events.expressions.derived import (
    PARTS,
    Attribute,
    AttributeCases,
    Band,
    Cases,
    ChosenNumber,
    Derived,
    TextPart,
    TimePart,
    decimals_of,
    mapped,
)
from ....formats.events.expressions.looked_up import Lookup, PublicTable
from ....formats.events.keys import MAX_KEY, encode_key
from ...calendar import not_a_zone
from ..toml.read import Convert, objections_of
from ..toml.values import FieldPath, above, within
from .conditions import Condition, every, pinned
from .text_steps import TextStep, objections_to, steps_of

Constant = str | int | bool | Fraction


@dataclass(frozen=True)
class Case:
    """A value, and the records that get it.

    Attributes:
        where: conditions, all of which a record must fulfil.
        then: the value: of the key, a text, a whole number or a truth value; of an aggregate, a
            number.
        field: path of the number of an aggregate, in place of `then`.
    """

    where: tuple[Condition, ...]
    then: Constant | None = None
    field: FieldPath | None = None


@dataclass(frozen=True)
class Derive:
    """A column of the key that is computed from the record; with `cases`, or a number to sum.

    Give `time`, or `field` with `bucket`, `round` or `text`, or `cases` with `otherwise`, or
    `field` with `lookup`, `take` and `otherwise`, perhaps with one of the former three, or
    `attribute` with `otherwise`.

    Attributes:
        time: part of the event time: `year`, `quarter`, `month`, `day`, `weekday` (from Monday,
            1), `dayofweek` (from Sunday, 1), `dow` (from Sunday, 0), `hour`, `minute`, or `date`,
            a text.
        zone: time zone of that part.
        field: path of a number; with `text`, of a text; with `cases`, of the number of records
            that fulfil none of them.
        bucket: width of bands: the key is the lower end of the band.
        round: decimals to which the number is rounded; -1 rounds to tens.
        text: functions of the text, in order; the key is their result.
        cases: conditions with a value each; a record gets the value of the first that it fulfils.
            Where all values are numbers, an aggregate may name the column as its `field`.
        otherwise: value of records that fulfil none of the cases, or that the lookup does not have,
            or whose unit has no such attribute.
        lookup: public table in which the field finds a row, charged by its content: a file (`.csv`
            or `.tsv` with a header), or the name of a `[[lookup]]`.
        match: its column that is compared with the field; the field's own name.
        take: its column whose value counts.
        attribute: path in the unit's newest record in the topic that has `attributes_of`.
        of_unit: whether `cases` look at that record.
    """

    time: str | None = None
    zone: str | None = None
    field: FieldPath | None = None
    bucket: Annotated[Fraction, above(0), within(0, 10**15)] | None = None
    round: int | None = None
    text: tuple[TextStep, ...] | None = None
    cases: tuple[Case, ...] | None = None
    otherwise: Constant | None = None
    lookup: Annotated[PublicTable | None, Convert(lambda _, raw, path: raw)] = (
        None  # after it was read
    )
    match: str | None = None
    take: str | None = None
    attribute: FieldPath | None = None
    of_unit: bool = False

    def objections(self) -> Iterator[tuple[str, str]]:
        """Settings that are wrong or contradict each other."""
        if self.of_unit and (not self.cases or self.lookup or self.attribute):
            yield "of_unit", "has an effect only with cases"
        if self.lookup is not None:
            yield from self._looked_up()
            return
        yield from self._needless(("match", "take"), "has an effect only with lookup")
        if self.attribute is not None:
            yield from self._attributed()
            return
        if self.cases is not None or self.otherwise is not None:
            yield from self._chosen()
            return
        if self.time is not None:
            yield from self._timed()
            return
        if self.zone is not None:
            yield "zone", "has an effect only with time"
        if self.field is None:
            yield "", "needs time, field with bucket, round or text, or cases with otherwise"
        elif [self.bucket, self.round, self.text].count(None) != 2:
            yield "", f"of field {self.field!r} needs one of bucket, round and text"
        else:
            yield from self._function()

    def _needless(self, names: Sequence[str], why: str) -> Iterator[tuple[str, str]]:
        """An objection to each given one of these settings."""
        return ((name, why) for name in names if getattr(self, name) is not None)

    def _function(self) -> Iterator[tuple[str, str]]:
        """Objections to the function of a field or of its looked-up value."""
        if self.text is not None:
            yield from objections_to(self.text)
        elif self.round is not None and not -9 <= self.round <= 9:
            yield "round", f"{self.round} must lie between -9 and 9"
        elif self.bucket is not None:
            try:
                decimals_of(self.bucket)
            except ValueError as error:
                yield "bucket", str(error)

    def _looked_up(self) -> Iterator[tuple[str, str]]:
        """Objections to a lookup."""
        yield from self._needless(
            ("time", "zone", "cases", "attribute"), "has no effect with lookup"
        )
        if [self.bucket, self.round, self.text].count(None) < 2:
            yield "", "has more than one of bucket, round and text"
        elif not (wrong := list(self._function())):
            yield from self._of_rows()
        else:
            yield from wrong
        for name in ("field", "take", "otherwise"):
            if getattr(self, name) is None:
                yield name, "is missing: lookup needs field, take and otherwise"
        yield from self._of_otherwise()

    def _of_rows(self) -> Iterator[tuple[str, str]]:
        """Objections to a function of the values of a table."""
        part = self._part
        try:
            if part is not None and self.lookup is not None:
                mapped(self.lookup, part)
        except ValueError as error:
            yield "lookup", f"column {self.take} {error}"

    @property
    def _part(self) -> TextPart | Band | None:
        """The function of the field or of its looked-up value; None if there is none."""
        path = self.field or ""
        if self.text is not None:
            return TextPart(path, steps_of(self.text))
        if self.bucket is not None:
            return Band(path, self.bucket)
        if self.round is not None:
            return Band(path, Fraction(10) ** -self.round, nearest=True)
        return None

    def _attributed(self) -> Iterator[tuple[str, str]]:
        """Objections to an attribute of the unit."""
        others = ("time", "zone", "field", "bucket", "round", "text", "cases")
        yield from self._needless(others, "has no effect with attribute")
        if self.otherwise is None:
            yield "otherwise", "is missing: it is the value of units without the attribute"
        yield from self._of_otherwise()

    def _chosen(self) -> Iterator[tuple[str, str]]:
        """Objections to a choice between constants."""
        others = ("time", "zone", "bucket", "round", "text")
        yield from self._needless(others, "has no effect with cases")
        if not self.cases or (self.otherwise is None and self.field is None):
            missing = "otherwise" if self.cases else "cases"
            yield missing, "is missing: cases and otherwise go together"
        elif self.otherwise is not None and self.field is not None:
            yield "field", "and otherwise exclude each other: records of no case have one value"
        for place, case in enumerate(self.cases or ()):
            if (case.then is None) == (case.field is None):
                yield f"cases.{place}", "needs one of then and field"
            if not case.where:
                yield f"cases.{place}.where", "is empty: it needs a condition"
            yield from objections_of(f"cases.{place}.where", case.where)
            if self.of_unit and any(isinstance(one, RowFits) for one in leaves(every(case.where))):
                yield f"cases.{place}.where", "looks up a field of the record, and of_unit has none"
        if "" in self.values:
            yield "cases", "have an empty text as a value, which is no key"
        for setting, value in zip(self._places, self.values, strict=True):
            if _long(value):
                yield setting, _LONG

    def _timed(self) -> Iterator[tuple[str, str]]:
        """Objections to a part of the time."""
        others = ("field", "bucket", "round", "text")
        yield from self._needless(others, "has no effect with time, which is the event time")
        if self.time not in PARTS:
            yield "time", f'"{self.time}" must be one of {", ".join(PARTS)}'
        if self.zone is not None and (why := not_a_zone(self.zone)):
            yield "zone", why

    def _of_otherwise(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.otherwise, Fraction):
            yield "otherwise", "must be a text, a whole number or a truth value, as of a key"
        if self.otherwise == "":
            yield "otherwise", "is an empty text, which is no key"
        if _long(self.otherwise):
            yield "otherwise", _LONG

    @property
    def attributed(self) -> bool:
        """Whether the column depends on attributes of the unit."""
        return self.attribute is not None or self.of_unit

    @property
    def compared(self) -> tuple[str, ...]:
        """Paths of attributes used in conditions; the column's settings must be valid."""
        asked = self._conditions if self.of_unit else ()
        return tuple(leaf.field for one in asked for leaf in leaves(one))

    @property
    def values(self) -> tuple[Constant | None, ...]:
        """The constant of each case and, last, the default; None stands for a field's number."""
        return (*(case.then for case in self.cases or ()), self.otherwise)

    @property
    def _places(self) -> list[str]:
        """The setting of each of `values`."""
        return [*(f"cases.{place}.then" for place in range(len(self.cases or ()))), "otherwise"]

    def of_key(self) -> Iterator[tuple[str, str]]:
        """Objections to the column as part of a key; its own settings must be valid."""
        if self.cases and any(one is None or isinstance(one, Fraction) for one in self.values):
            yield (
                "cases",
                "of a key are texts, whole numbers or truth values: let the producer write what is "
                "computed into a field",
            )

    def of_sum(self) -> Iterator[tuple[str, str]]:
        """Objections to summing the column; its own settings must be valid."""
        if self.cases is None:
            yield "", "is no number to sum: of derived columns only cases are, all of numbers"
        elif any(isinstance(one, str | bool) for one in self.values):
            yield "cases", "must all be numbers, or fields, where they are summed"

    @property
    def chosen(self) -> ChosenNumber | None:
        """The number of each record if the column is a number; None if it is a key column."""
        if self.cases is None or any(isinstance(one, str | bool) for one in self.values):
            return None
        paths = [*(case.field for case in self.cases), self.field]
        given = zip(self.values, paths, strict=True)
        numbers = (path or "" if one is None else Fraction(one) for one, path in given)
        return ChosenNumber(self._conditions, tuple(numbers))

    @property
    def _conditions(self) -> tuple[Meant, ...]:
        """Conditions of the cases that have some."""
        found = (every(case.where) for case in self.cases or ())
        return tuple(one for one in found if one is not None)

    def meant(self) -> Derived:
        other = self.otherwise
        if self.lookup is not None and other is not None and not isinstance(other, Fraction):
            part = self._part
            table = self.lookup if part is None else mapped(self.lookup, part)
            return Lookup(self.field or "", table, other)
        if self.attribute is not None and other is not None and not isinstance(other, Fraction):
            return Attribute(self.attribute, other)
        if self.cases is not None:
            constants = tuple(msgspec.json.encode(one).decode() for one in self.values)
            return (AttributeCases if self.of_unit else Cases)(self._conditions, constants)
        if self.time is not None:
            return TimePart(self.time, self.zone or "UTC")
        return self._part or Band(self.field or "", Fraction(1), nearest=True)

    def pinned(self) -> dict[str, Any]:
        """The column as the charged configuration states it, in its normal form."""
        if self.cases is not None and (
            any(one is None or isinstance(one, Fraction) for one in self.values)
        ):
            return self._numbers()
        derived = self.meant()
        if isinstance(derived, Lookup):
            assert self.lookup is not None
            told = {"field": derived.field, "otherwise": derived.otherwise, **self.lookup.content}
            return {"kind": "lookup", **told} | _told(self._part)
        if isinstance(derived, Attribute):
            told = {"field": derived.field, "otherwise": derived.otherwise}
            return {"kind": "attribute", **told}
        if isinstance(derived, Cases):
            asked = [pinned(case.where) for case in self.cases or ()]
            kind = "attribute_cases" if self.of_unit else "cases"
            return {"kind": kind, "cases": asked, "values": derived.constants}
        named = {one.name: getattr(derived, one.name) for one in fields(derived)}
        return {"kind": type(derived).__name__.lower(), **named}

    def _numbers(self) -> dict[str, Any]:
        """The same for a column of numbers that no key can have."""
        assert self.chosen is not None and self.cases is not None
        told = [{"field": one} if isinstance(one, str) else str(one) for one in self.chosen.numbers]
        asked = [pinned(case.where) for case in self.cases]
        return {"kind": "choice", "cases": asked, "numbers": told}


_LONG = f"makes a key of more than {MAX_KEY:,} bytes, which no record has: write a shorter text"


def _long(value: Constant | None) -> bool:
    """Whether no key can have a constant, for its length."""
    return isinstance(value, str) and len(encode_key([value])) > MAX_KEY


def _told(part: TextPart | Band | None) -> dict[str, Any]:
    """The function of a looked-up value as the charged configuration states it; {} if none."""
    if part is None:
        return {}
    if isinstance(part, TextPart):
        return {"steps": part.steps}
    return {"width": part.width, "nearest": part.nearest}
