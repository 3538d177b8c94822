"""Conversion of plain tables into frozen dataclasses by type hints, collecting every problem.

A type hint determines how a value is read.
``Annotated`` adds checks (functions that return the rule that a value breaks) or a `Convert`, which
reads the value itself. Nothing is guessed: an unknown name, a wrong type or a missing value is a
problem, with its place and, if possible, the nearest name.
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin

from .lines import Path
from .values import Duration, Instant, Loose, Secret, parse_duration, parse_fraction, parse_instant


class Problem(NamedTuple):
    """A mistake in one setting."""

    path: Path
    message: str

    @classmethod
    def under(cls, table: Path, objection: tuple[str, str]) -> Problem:
        """Make a problem of an objection (dotted setting, message) of a table."""
        setting, message = objection
        steps = (int(s) if s.isdigit() else s for s in setting.split(".") if s)
        return cls((*table, *steps), message)


class Objecting(Protocol):
    """Settings that check themselves."""

    def objections(self) -> Iterator[tuple[str, str]]:
        """Settings that are wrong or contradict each other."""
        ...


def objections_of(name: str, parts: Iterable[Objecting]) -> Iterator[tuple[str, str]]:
    """Objections to the parts of a list, each with its dotted place."""
    for place, part in enumerate(parts):
        for setting, message in part.objections():
            yield f"{name}.{place}.{setting}".rstrip("."), message


class _Invalid(Exception):
    """A value could not be read; its problems have been recorded."""


@dataclass(frozen=True)
class Convert:
    """An annotation: ``read(reader, raw, path)`` returns the value."""

    read: Callable[[Reader, Any, Path], Any]


_hints: dict[type[Any], Mapping[str, Any]] = {}


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """Return the type hints of a dataclass with their annotations, evaluated once."""
    if kind not in _hints:
        found = typing.get_type_hints(kind, include_extras=True)
        _hints[kind] = types.MappingProxyType(found)
    return _hints[kind]


class Reader:
    """Reader of values by type hint, with a list of problems.

    Attributes:
        problems: all problems so far, in the order of the model.
        elsewhere: setting -> the only table that has it, for hints about misplaced settings.
    """

    def __init__(self, elsewhere: Mapping[str, str] | None = None) -> None:
        self.problems: list[Problem] = []
        self.elsewhere = dict(elsewhere or {})

    def fail(self, path: Path, message: str) -> _Invalid:
        """Record a problem; return an exception to raise if the value is needed."""
        self.problems.append(Problem(path, message))
        return _Invalid()

    def try_read(self, hint: Any, raw: Any, path: Path) -> Any:
        """Return the value, or ``None`` if problems were recorded."""
        try:
            return self.read(hint, raw, path)
        except _Invalid:
            return None

    def read(self, hint: Any, raw: Any, path: Path) -> Any:
        """Return ``raw`` as a value of type ``hint``; record problems."""
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint, raw, path)
        if origin in (Union, types.UnionType):
            return self._union(get_args(hint), raw, path)
        if origin is Literal:
            return self._choice(get_args(hint), _loosened(raw), path)
        if origin is tuple:
            return self._tuple(get_args(hint), _loosened(raw), path)
        if origin in (dict, Mapping):
            return self._mapping(get_args(hint)[1], _loosened(raw), path)
        if isinstance(hint, type) and is_dataclass(hint):
            return raw if isinstance(raw, hint) else self.table(hint, _loosened(raw), path)
        return self._scalar(hint, raw, path)

    def table(self, kind: type[Any], raw: Any, path: Path) -> Any:
        """Return an instance of the dataclass ``kind`` from a table."""
        hints = hints_of(kind)
        known = {field.name: field for field in fields(kind) if field.init}
        if not isinstance(raw, dict):
            raise self.fail(path, f"must be a table such as {_outline(known.values())}")
        before = len(self.problems)
        self._refuse_unknown(raw, known, path)
        values = {
            name: self.try_read(hints[name], raw[name], (*path, name))
            for name in known
            if name in raw
        }
        for name, field in known.items():
            if name not in raw and field.default is field.default_factory is MISSING:
                self.fail(path, f"{name} is missing")
        if len(self.problems) > before:
            raise _Invalid
        try:
            return kind(**values)
        except ValueError as error:  # a dataclass that checks itself
            setting = str(getattr(error, "name", "")).rpartition(".")[2]
            raise self.fail((*path, setting) if setting in raw else path, str(error)) from error

    def _refuse_unknown(self, raw: Mapping[str, Any], known: Iterable[str], path: Path) -> None:
        for name in raw:
            if name not in known:
                self.fail((*path, name), self.unknown(name, known))

    def unknown(self, name: str, known: Iterable[str], what: str = "setting") -> str:
        """Return the message that ``name`` is unknown, with a suggestion."""
        near = difflib.get_close_matches(name, list(known), 1, 0.8)
        if not near and name in self.elsewhere:
            return f"unknown {what} here; it belongs to {self.elsewhere[name]}"
        if near := near or difflib.get_close_matches(name, list(known), 1, 0.6):
            return f"unknown {what}; did you mean {near[0]!r}?"
        return f"unknown {what}; expected one of {', '.join(sorted(map(str, known))) or 'none'}"

    def _annotated(self, hint: Any, raw: Any, path: Path) -> Any:
        inner, *notes = get_args(hint)
        for note in notes:
            if isinstance(note, Convert):
                return note.read(self, _loosened(raw), path)
        value = self.read(inner, raw, path)
        for check in notes:
            rule = check(value) if callable(check) else None
            if rule:
                raise self.fail(path, f"{shown(raw)} {rule}")
        return value

    def _union(self, members: tuple[Any, ...], raw: Any, path: Path) -> Any:
        members = tuple(m for m in members if m is not types.NoneType)
        if len(members) == 1:
            return self.read(members[0], raw, path)
        tables = [m for m in members if isinstance(m, type) and is_dataclass(m)]
        if len(tables) == len(members):
            return self._tagged(members, _loosened(raw), path)
        if len(tables) == 1 and isinstance(_loosened(raw), dict):
            return self.read(tables[0], raw, path)  # its own problems say more than "no table fits"
        for member in members:
            attempt = Reader()
            value = attempt.try_read(member, raw, path)
            if not attempt.problems:
                return value
        raise self.fail(path, f"{shown(raw)} must be {' or '.join(map(_word, members))}")

    def _tagged(self, members: tuple[Any, ...], raw: Any, path: Path) -> Any:
        """Read a table as the dataclass whose ``kind`` is the table's."""
        by_kind = {get_args(hints_of(m)["kind"])[0]: m for m in members}
        if not isinstance(raw, dict) or "kind" not in raw:
            raise self.fail(path, f"must be a table with kind = {_listed(by_kind)}")
        kind = self._choice(tuple(by_kind), raw["kind"], (*path, "kind"))
        return self.table(by_kind[kind], raw, path)

    def _choice(self, allowed: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if raw in allowed and type(raw) in {type(a) for a in allowed}:
            return raw
        near = difflib.get_close_matches(str(raw), [str(a) for a in allowed], 1, 0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise self.fail(path, f"{shown(raw)} must be one of {_listed(allowed)}{hint}")

    def _tuple(self, members: tuple[Any, ...], raw: Any, path: Path) -> Any:
        if isinstance(raw, dict) and len(path) == 1:
            name = path[0]
            raise self.fail(path, f"must be a list of tables: write [[{name}]], not [{name}]")
        if not isinstance(raw, list | tuple):
            such = ' such as ["a", "b"]' if _unnoted(members[0]) is str else ""
            raise self.fail(path, f"{shown(raw)} must be a list{such}")
        if members[-1] is not Ellipsis and len(raw) != len(members):
            raise self.fail(path, f"must have {len(members)} elements, has {len(raw)}")
        each = members if members[-1] is not Ellipsis else members[:1] * len(raw)
        before = len(self.problems)
        pairs = enumerate(zip(each, raw, strict=True))
        values = tuple(self.try_read(hint, item, (*path, i)) for i, (hint, item) in pairs)
        if len(self.problems) > before:
            raise _Invalid
        return values

    def _mapping(self, member: Any, raw: Any, path: Path) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise self.fail(path, "must be a table")
        before = len(self.problems)
        values = {n: self.try_read(member, item, (*path, n)) for n, item in raw.items()}
        if len(self.problems) > before:
            raise _Invalid
        return values

    def _scalar(self, hint: Any, raw: Any, path: Path) -> Any:
        if hint is Any:
            return _plain(_loosened(raw))
        wanted, convert = _SCALARS[hint]
        if isinstance(raw, Loose) and str not in wanted:
            raw = _loosened(raw)
        if not isinstance(raw, wanted) or (isinstance(raw, bool) and bool not in wanted):
            raise self.fail(path, f"{shown(raw)} must be {_word(hint)}")
        try:
            return convert(raw)
        except ValueError as error:
            raise self.fail(path, f"{shown(raw)} {error}") from error


def _plain(raw: Any) -> Any:
    """Convert exact decimals to floats, for untyped settings."""
    if isinstance(raw, dict):
        return {name: _plain(item) for name, item in raw.items()}
    if isinstance(raw, list):
        return [_plain(item) for item in raw]
    return float(raw) if isinstance(raw, Decimal) else raw


def _floating(value: Any) -> float:
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("must be finite")
    return number


# hint -> (types that TOML may give, conversion)
_SCALARS: dict[Any, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    str: ((str,), str),
    Secret: ((str,), Secret),
    bool: ((bool,), bool),
    int: ((int,), int),
    float: ((int, float, Decimal), _floating),
    Fraction: ((int, float, Decimal, str), parse_fraction),
    Duration: ((str,), parse_duration),
    Instant: ((object,), parse_instant),
}

_WORDS: dict[Any, str] = {
    str: "a text",
    Secret: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Fraction: "a number",
    Duration: 'a duration such as "5s", "1h30m" or "31d"',
    Instant: "a point in time",
}


def _outline(settings: Iterable[Field[Any]]) -> str:
    """The settings that a table needs, or the first that it may have, as TOML writes them."""
    every = tuple(settings)
    needed = [one for one in every if one.default is MISSING and one.default_factory is MISSING]
    return f"{{ {', '.join(f'{one.name} = …' for one in needed or every[:1])} }}"


def _unnoted(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _word(hint: Any) -> str:
    hint = _unnoted(hint)
    if get_origin(hint) is Literal:
        return _listed(get_args(hint))
    return "a list" if get_origin(hint) is tuple else _WORDS.get(hint, "a table")


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(quoted, values))


def quoted(value: Any) -> str:
    """Format a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def shown(raw: Any) -> str:
    """Format a wrong value for a message, which a long, nested or secret one would spoil."""
    text = (
        "***" if isinstance(raw, Secret) else _listed([raw]) if not _nested(raw) else "this value"
    )
    return text if len(text) <= 60 else text[:57] + "..."


def _nested(raw: Any) -> bool:
    return isinstance(raw, dict | list | tuple)


def _loosened(raw: Any) -> Any:
    """Return the value of a variable or flag: read as TOML, or else the text itself."""
    if not isinstance(raw, Loose):
        return raw
    try:
        return tomllib.loads(f"value = {raw}", parse_float=Decimal)["value"]
    except (ValueError, RecursionError):
        return str(raw)
