"""Joins of a query with public tables, which are files, and with attributes of its own units.

Attributes are joined only by a record's unit. Joined by another field, a record would count
according to another unit's statement, and would change its key if that unit were removed: no bound
on one unit's records covers that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ..columns import QuerySource, bare, path_of, uncast
from ..expressions.derived import Derivation, choice_of, constant_of, function_of
from ..refusal import CLAUSES, QueryError, refused, shown

FILES = (".csv", ".tsv")
UNMATCHED = "unmatched"
"""Key of records without a row if the query names none."""
_HOW = "JOIN 'zones.csv' AS z ON zone = z.id"


class Joined(NamedTuple):
    """A public table, and the field of a record that finds its row."""

    file: str  # or name of a lookup
    field: str  # path
    match: str  # column of the file
    inner: bool = False  # whether a record without a row is left out

    @property
    def without(self) -> str:
        missing = "whose row has no value" if self.inner else "without a row"
        return f"a record {missing} in {self.file}"

    def settings(self, take: str, otherwise: Any) -> dict[str, Any]:
        """A derived column, as a person would write it."""
        return {**self.row(take), "otherwise": otherwise}

    def row(self, take: str) -> dict[str, Any]:
        """A column of the row that a record finds."""
        match = {} if self.match == self.field.rpartition(".")[2] else {"match": self.match}
        return {"field": self.field, "lookup": self.file, **match, "take": take}


class JoinedAttributes(NamedTuple):
    """A topic that states attributes of units."""

    topic: str

    def settings(self, take: str, otherwise: Any) -> dict[str, Any]:
        """A derived column, as a person would write it."""
        return {"attribute": take, "otherwise": otherwise}

    @property
    def without(self) -> str:
        return f"a record whose unit states none in {self.topic}"


Join = Joined | JoinedAttributes


def joins_of(
    select: exp.Select, table: Sequence[str], source: QuerySource, sources: Sequence[QuerySource]
) -> dict[str, Join]:
    """Read the joins of a query, by the name that qualifies their columns.

    Args:
        table: names of ``source``, the input that the query reads.

    Raises:
        QueryError: a join is with anything else, or its condition is not an equality.
    """
    found: dict[str, Join] = {}
    for join in select.args.get("joins") or ():
        file, other = table_of(join.this, sources), _stating(join.this, source, sources)
        if file is None and other is None:
            raise refused(join.this, CLAUSES["joins"])
        side, kind = join.side.upper(), join.kind.upper()
        kinds = ("", "INNER") if not side else ("", "OUTER")
        if side not in ("", "LEFT") or kind not in kinds or join.args.get("method"):
            raise refused(join, f"a record has one row of the table, or none: write LEFT {_HOW}")
        for part in ("version", "sample", "pivots"):
            if join.this.args.get(part):
                raise refused(join.this, "is read whole, and once: leave out all but its name")
        anonymous = other is None and (file or "").lower().endswith(FILES)
        name = join.this.alias if anonymous else join.this.alias_or_name
        if not name:
            raise refused(join.this, f"the table needs a name: write {_HOW}")
        if name in found or name in table:
            raise refused(join.this, f"another table is named {name} already: use another name")
        if other is not None:
            _check_unit(join, name, table, source, other)
            if not side:
                raise refused(
                    join, f"leaves out units of which {other.topic} states nothing, and here every "
                    f"record counts, theirs under '{UNMATCHED}': write LEFT JOIN",
                )  # fmt: skip
            found[name] = JoinedAttributes(other.topic)
        else:
            found[name] = Joined(file or "", *_matched(join, name, table, list(found)), not side)
    for column in select.find_all(exp.Column):
        steps = [part.name for part in column.parts]
        if len(steps) > 2 and steps[0] in table and steps[1] in found:  # both would be z.borough
            raise refused(column, f"a field and a table are named {steps[1]}: name the table anew")
    return found


def _stating(
    node: exp.Expr, source: QuerySource, sources: Sequence[QuerySource]
) -> QuerySource | None:
    """The input with attributes that a table names; None for other tables."""
    if not isinstance(node, exp.Table) or node.args.get("db"):
        return None
    stating = [one for one in sources if one.attributes_of == source.name]
    return next((one for one in stating if node.name in (one.name, one.topic)), None)


def _check_unit(
    join: exp.Join, name: str, table: Sequence[str], source: QuerySource, other: QuerySource
) -> None:
    """Refuse (`QueryError`) to join attributes by anything but the unit."""
    compared = _compared(join, name, table)
    wanted = source.unit, other.unit
    if compared is None or tuple((one,) for one in compared) != wanted:
        raise refused(
            join,
            "an attribute is found by the unit of the record itself: write ON "
            f"{table[0]}.{source.unit[0]} = {name}.{other.unit[0]}. By another field a record "
            "would count by what another unit has stated, which no bound on one unit covers",
        )


def table_of(node: exp.Expr, sources: Sequence[QuerySource]) -> str | None:
    """The file or lookup that a table names; None for other tables."""
    if not isinstance(node, exp.Table) or node.args.get("db"):
        return None
    inner = node.this
    file = str(inner.this.name if isinstance(inner, exp.ReadCSV) else inner.name)
    if file.lower().endswith(FILES):
        return file
    return next((one.name for one in sources if one.public and node.name == one.name), None)


def _matched(
    join: exp.Join, name: str, table: Sequence[str], others: Sequence[str]
) -> tuple[str, str]:
    """The record's field and the table's column that a join compares; ``others``: joined before."""
    compared = _compared(join, name, table)
    if compared is None or compared[0].partition(".")[0] in others:
        raise refused(join, f"compare one field of the record with one column of the table: {_HOW}")
    return compared


def _compared(join: exp.Join, name: str, table: Sequence[str]) -> tuple[str, str] | None:
    using: list[exp.Expr] = list(join.args.get("using") or ())
    if len(using) == 1:
        return using[0].name, using[0].name
    on = bare(join.args["on"]) if join.args.get("on") is not None else None
    if isinstance(on, exp.EQ):
        for one, other in ((on.this, on.expression), (on.expression, on.this)):
            column, path = _column(uncast(one), [name]), path_of(uncast(other), table)
            if column is not None and path is not None and _column(uncast(other), [name]) is None:
                return path, column[1]
    return None


def _column(node: exp.Expr, names: Sequence[str]) -> tuple[str, str] | None:
    """Table and column of a field of one of the named tables; None for other expressions."""
    if not isinstance(node, exp.Column) or len(node.parts) < 2 or node.parts[0].name not in names:
        return None
    return node.parts[0].name, ".".join(part.name for part in node.parts[1:])


def looked_up(node: exp.Expr, joins: Mapping[str, Join]) -> Derivation | None:
    """A looked-up key column, perhaps with a default for records without a row.

    It may be a function of the table's column: of a text, or a band of a number.
    """
    otherwise: Any = None
    asked = node
    if isinstance(node, exp.Coalesce) and len(node.expressions) == 1:
        asked = uncast(node.this)
        if not _of_tables(asked, joins):
            return None
        otherwise = constant_of(node.expressions[0])
    if not _of_tables(asked, joins):
        return None
    column, part = _column(asked, list(joins)), dict[str, Any]()
    if column is None:
        made = function_of(asked, _BESIDE)
        found = None if made is None else _parted(made.settings["field"], joins)
        if made is None or found is None or isinstance(joins[found[0]], JoinedAttributes):
            return None
        column = found
        part = {name: value for name, value in made.settings.items() if name != "field"}
    name, take = column
    note = None
    if otherwise is None:
        otherwise = UNMATCHED
        note = (
            f"{shown(node)}: {joins[name].without} counts under "
            f"'{UNMATCHED}'; COALESCE({shown(node)}, 'other') names another key"
        )
    own = take.rpartition(".")[2] if isinstance(joins[name], JoinedAttributes) else take
    settings = joins[name].settings(take, otherwise)
    return Derivation(own, {**settings, **part}, note)


_BESIDE = ()
"""No table names, so that `path_of` keeps the names of joined tables in a path."""


def _of_tables(node: exp.Expr, joins: Mapping[str, Join]) -> bool:
    """Whether an expression uses only columns of joined tables."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(_column(one, list(joins)) is not None for one in columns)


def _parted(path: str, joins: Mapping[str, Join]) -> tuple[str, str] | None:
    """Table and column of a path that begins with the name of a joined table."""
    name, _, take = path.partition(".")
    return (name, take) if name in joins and take else None


def with_rows_only(
    where: Sequence[dict[str, Any]], joins: Mapping[str, Join]
) -> list[dict[str, Any]]:
    """Conditions of WHERE, and those of inner joins: that the record has a row of the table.

    A comparison with one of the table's columns says so already.
    """
    asked = (one for one in where if one.get("present") is not False)
    told = {column[0] for one in asked if (column := _parted(str(one.get("field")), joins))}
    inner = [
        {"field": f"{name}.{join.match}", "present": True} for name, join in joins.items()
        if isinstance(join, Joined) and join.inner and name not in told
    ]  # fmt: skip
    return [*inner, *where]


def unnamed(select: exp.Select, joins: Mapping[str, Join]) -> Iterator[str]:
    """Say of each joined table without a named column how to name one."""
    parts = [select.args.get(name) for name in ("where", "group")]
    every = [*select.expressions, *(one for one in parts if one is not None)]
    columns = [_column(node, list(joins)) for one in every for node in one.find_all(exp.Column)]
    for name in joins.keys() - {column[0] for column in columns if column is not None}:
        yield (
            f"{name}: no column of it is named; a name without {name} and a dot, such as city, is "
            "a field of the record"
        )


def with_rows(settings: Any, joins: Mapping[str, Join]) -> Any:
    """Settings of a pipeline with the table named in conditions on public tables' columns.

    Conditions are read as if a table were part of the record: ``z.borough`` is a path. As in SQL,
    the name of a joined table hides a field of the same name.
    """
    if isinstance(settings, list):
        return [with_rows(one, joins) for one in settings]
    if not isinstance(settings, dict):
        return settings
    found = {name: with_rows(one, joins) for name, one in settings.items()}
    column = _parted(str(found.get("field", "")), joins)
    join = None if column is None else joins[column[0]]
    if column is None or not isinstance(join, Joined):
        return found
    return {**join.row(column[1]), **{n: one for n, one in found.items() if n != "field"}}


def chosen_by_unit(node: exp.Expr, joins: Mapping[str, Join]) -> Derivation | None:
    """A CASE or a comparison that uses only attributes of the unit; None for others."""
    names = [name for name, join in joins.items() if isinstance(join, JoinedAttributes)]
    columns = list(node.find_all(exp.Column))
    if not columns or not all(_column(one, names) for one in columns):
        return None
    found = choice_of(bare(node), names)
    return found and found._replace(settings={"of_unit": True, **found.settings})


def check_alone(node: exp.Expr, joins: Mapping[str, Join]) -> None:
    """Refuse (`QueryError`) a key column computed from attributes of units."""
    stating = {name: join for name, join in joins.items() if isinstance(join, JoinedAttributes)}
    for one in node.find_all(exp.Column):
        if (column := _column(one, list(stating))) is not None:
            if node.find(exp.Case, exp.If, exp.Predicate):
                raise refused(
                    node, "looks at the record and at its unit at once: GROUP BY a CASE of each, "
                    "and add up the released rows that belong together",
                )  # fmt: skip
            raise refused(
                node, f"is computed from {shown(one)}, which a key has as it is: GROUP BY "
                f"{shown(one)}, and add up the released rows that belong together; or let "
                f"{stating[column[0]].topic} state it",
            )  # fmt: skip


def check_elsewhere(parts: Iterator[exp.Expr], joins: Mapping[str, Join]) -> None:
    """Refuse (`QueryError`) attributes of units outside a key."""
    stating = [name for name, join in joins.items() if isinstance(join, JoinedAttributes)]
    for part in parts:
        for node in part.find_all(exp.Column):
            if _column(node, stating) is not None:
                raise refused(
                    node, "an attribute is a column of the key: name it in GROUP BY, or "
                    "compare it in WHERE, which keeps released rows",
                )  # fmt: skip


def check_numbers(settings: Mapping[str, Any], joins: Mapping[str, Join]) -> None:
    """Refuse (`QueryError`) aggregates of the values of a public table.

    Conditions may use them; a number or a distinct value must be a field of the record.
    """
    found = settings.get("aggregate", ())
    paths = [one.get("field") for one in found if not isinstance(found, str)]
    paths += settings.get("inputs", {}).values()
    for column in settings.get("derive", {}).values():
        paths += [case.get("field") for case in column.get("cases", ())]
        paths += [column.get("field")] if "cases" in column else []
    for path in paths:
        if path is not None and _parted(path, joins) is not None:
            raise QueryError(
                f"{path}: a column of a joined table is compared, or is a column of the key: "
                f"write CASE WHEN {path} = ... THEN 1 ELSE 0 END, or let the producer write its "
                "number into the record"
            )
