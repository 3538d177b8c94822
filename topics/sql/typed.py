"""Fields that a query uses as two types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...formats.events.roles import WORDS, Use, clashes
from .columns import QuerySource
from .refusal import QueryError

Table = Mapping[str, Any]


def check_types(settings: Table, source: QuerySource) -> None:
    """Refuse (`QueryError`) a query that uses a field as two types."""
    for use, other in clashes(_uses(settings, source)):
        raise QueryError(
            f"{use.field}: {other.place} asks for {WORDS[other.role]}, and {use.place} for "
            f"{WORDS[use.role]}; a field has one type, so every record with it would be a dead "
            "letter: compare it as the type that it has, or let the producer write two fields"
        )


def _uses(settings: Table, source: QuerySource) -> Iterator[Use]:
    """Every field that a query uses, and the part that uses it."""
    yield from (Use("the privacy unit", path, "unit") for path in source.unit)
    derive = settings.get("derive", {})
    fields = (path for path in settings.get("key", ()) if path not in derive)
    yield from (Use("GROUP BY", path, "key") for path in fields)
    yield from _of_conditions("WHERE", settings.get("where", ()))
    for name, column in derive.items():
        if "field" in column:
            role = "unit" if "lookup" in column else "text" if "text" in column else "number"
            yield Use(f"the column {name}", column["field"], role)
        for case in () if column.get("of_unit") else column.get("cases", ()):
            yield from _of_conditions(f"the column {name}", case["where"])
            if "field" in case:
                yield Use(f"the column {name}", case["field"], "number")
    numbers = derive.keys() - {*settings.get("key", ())}
    found = settings.get("aggregate", ())
    for one in () if isinstance(found, str) else found:
        named = one.get("name", f"{one['kind']}_{one.get('field', '')}".rstrip("_"))
        if "field" in one and one["field"] not in numbers:
            yield Use(named, one["field"], "key" if one["kind"] == "distinct" else "number")
        yield from _of_conditions(f"the condition of {named}", one.get("where", ()))
    yield from (Use("the quantile", path, "number") for path in settings.get("inputs", {}).values())


def _of_conditions(place: str, where: Sequence[Table]) -> Iterator[Use]:
    for one in where:
        if "field" in one:
            yield Use(place, one["field"], _role(one))
        for name in ("any", "all"):
            yield from _of_conditions(place, one.get(name, ()))


def _role(condition: Table) -> str:
    """The role in which a condition uses its field."""
    if "lookup" in condition:
        return "unit"
    if "present" in condition:
        return "scalar"
    asked = next(value for name, value in condition.items() if name not in ("field", "text"))
    value = asked[0] if isinstance(asked, list) else asked
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
