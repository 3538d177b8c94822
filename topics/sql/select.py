"""A SELECT over an input as the settings of a pipeline."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlglot import exp

from ...mechanisms.catalogue import DISTINCT
from ..natural import NATURAL, natural_keys
from .aggregates.quantiles import Quantile, mechanism_of, quantile_of
from .aggregates.read import AGGREGATES, CALLS, aggregate_of
from .aggregates.stated import Aggregated, Scope, checked, rounded
from .columns import (
    QuerySource,
    aliases,
    bare,
    cast_to_whole,
    filled,
    item_at,
    number_of,
    path_of,
    plain_number,
    uncast,
)
from .expressions.derived import derived_of
from .expressions.filters import conditions_of
from .outer.joined import (
    check_alone,
    check_elsewhere,
    check_numbers,
    chosen_by_unit,
    joins_of,
    looked_up,
    unnamed,
    with_rows,
    with_rows_only,
)
from .outer.outer import name_of
from .parsing.parsed import Parsed, expression_of
from .promised import Promise
from .refusal import (
    GROUPINGS,
    QUANTILE_CALLS,
    QueryError,
    call_of,
    instead_of,
    refused,
    shown,
    sql_of,
)
from .windows.sessions import check_units, note, pause_of
from .windows.windows import Windowed, check_fixed, duration_of, names_window, window_of


def _with_field(setting: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An aggregate of the column ``name``, with settings in the usual order."""
    kind = setting["kind"]
    return {"kind": kind, "field": name, **{n: v for n, v in setting.items() if n != "kind"}}


class SelectOfInput:
    """A SELECT over an input."""

    def __init__(
        self, select: exp.Select, read: Parsed, scope: Scope, sources: Sequence[QuerySource]
    ) -> None:
        self._select, self._said, self._scope = select, read.said, scope
        self._source, self._table = scope.source, scope.table
        self._aliases = aliases(select)
        self._joins = joins_of(select, scope.table, scope.source, sources)
        self._promise = Promise(read.said.options, scope.source)
        self._session = read.said.session and duration_of(expression_of(read.said.session))
        self._units = set(read.said.parts)  # columns that partition sessions
        self._window = self._stated()
        self._derive: dict[str, dict[str, Any]] = {}
        self._grouped: dict[exp.Expr, str] = {}  # expression of GROUP BY -> column of the key
        self._paths: dict[str | None, str] = {}  # field of GROUP BY -> column of the key
        self._quantiles: list[Quantile] = []
        self._chosen: list[dict[str, Any]] = []  # derived numbers, chosen by cases
        self._bounded = False  # whether a sum is bounded in BigQuery's way
        self.notes = list(unnamed(select, self._joins))
        self.columns: dict[str, str] = {}  # column of SELECT -> released name; "": window

    def settings(self) -> dict[str, Any]:
        """The pipeline's settings."""
        for expression in self._grouping():
            self._group(uncast(expression))
        if self._session is not None:
            check_units(self._source, self._units)
        aggregates = self._aggregates()
        key = list(self._grouped.values())
        check_elsewhere(self._beside(), self._joins)
        if not key and not aggregates and not self._quantiles:
            raise QueryError("GROUP BY is missing, and so is an aggregate: SELECT COUNT(*) ...")
        found: dict[str, Any] = {"input": self._source.name} | ({"key": key} if key else {})
        numbers = {self._name_of(n): one for n, one in enumerate(self._chosen)}
        if self._derive or numbers:
            found["derive"] = self._derive | numbers
        self._check_conditions()
        where = conditions_of(self._select.args.get("where"), self._table, self._source.time)
        if where := with_rows_only(where, self._joins):
            found["where"] = where
        if not self._quantiles:
            found["aggregate"] = [one.setting for one in aggregates] or "keys"
        if self._window:
            found["window"] = self._window.settings()
        if self._session is not None:
            found["session"] = self._session
            self.notes.append(note(self._source, key))
        self._bounded = any(one.bounded for one in aggregates)
        self.notes.extend(rounded(aggregates))
        self._promise.per_group = max((one.per_group or 0 for one in aggregates), default=0) or None
        promised = self._promise.settings()
        if any(one.units for one in aggregates):
            once = {} if key else {"budget": 1}  # with one key, count one record per unit
            promised["mechanism"] = promised.get("mechanism", {}) | DISTINCT | once
        if self._quantiles:
            promised = self._with_quantiles(promised, aggregates)
        listed = natural_keys(key, self._derive)[1] is None and (aggregates or self._quantiles)
        if listed and "min_users" not in promised.get("mechanism", {}):
            found["public_keys"] = NATURAL
        self._note()
        found |= promised
        check_numbers(found, self._joins)
        made: dict[str, Any] = with_rows(found, self._joins)
        return made

    def _check_conditions(self) -> None:
        """Refuse an alias of SELECT in conditions: no record has such a field, so none counts."""
        items, where = self._select.expressions, self._select.args.get("where")
        tested = [
            one.expression if isinstance(one, exp.Filter) else one.this
            for item in items for one in item.find_all(exp.Filter, exp.CountIf, exp.If)
        ]  # fmt: skip
        inside = {id(column) for one in tested for column in one.find_all(exp.Column)}
        columns = [column for item in items for column in item.find_all(exp.Column)]
        fields = {path_of(one, self._table) for one in columns if id(one) not in inside}
        for column in where.find_all(exp.Column) if where is not None else ():
            self._check_field(column, fields, "WHERE")
        for column in columns:
            if id(column) in inside:
                self._check_field(column, fields, "a condition")

    def _check_field(self, column: exp.Column, fields: Collection[str | None], what: str) -> None:
        name = path_of(column, self._table) or ""
        meant = None if name in fields else self._aliases.get(name)
        if meant is None:
            return
        if not self._counts(meant):
            raise refused(column, f"{what} reads fields of the record: write {shown(meant)}")
        if what == "WHERE":  # the alias of a conditional count may also be a field's name
            raise refused(column, f"is not known before noise is added: write HAVING {name}")

    def _beside(self) -> Iterator[exp.Expr]:
        """WHERE, and what SELECT has besides columns of the key."""
        if (where := self._select.args.get("where")) is not None:
            yield where
        for item in self._select.expressions:
            node = uncast(item.unalias())
            if node not in self._grouped:
                yield node

    def _with_quantiles(
        self, promised: dict[str, Any], aggregates: Sequence[Aggregated]
    ) -> dict[str, Any]:
        self.notes.extend(
            f"AS {name}: the count beside quantiles is named count"
            for one in aggregates if (name := one.setting.get("name", "count")) != "count"
        )  # fmt: skip
        made, given = mechanism_of(self._quantiles, aggregates), promised.get("mechanism", {})
        if "min_users" in given:
            raise QueryError(
                "OPTIONS: min_privacy_units_per_group is not possible beside quantiles: leave it "
                "out, the threshold of keys hides each that one unit alone has"
            )
        return promised | made | {"mechanism": given | made["mechanism"]}

    def _note(self) -> None:
        """Note parts of the query that have no effect."""
        if self._select.args.get("order") is not None:
            self.notes.append("ORDER BY: releases have no order; sort them, which costs nothing")
        if self._said.emit:
            self.notes.append("EMIT: triggers decide when there is a release; set triggers.every")
        if self._said.grace:
            self.notes.append("GRACE PERIOD: late records count for lateness of the pipeline")
        if self._bounded:
            self.notes.append(
                "bounds of a sum or a mean are of the value of each record; in BigQuery they are "
                "of all records of a unit in a group together"
            )

    def _stated(self) -> Windowed | None:
        """The window of a clause or a table function."""
        said = self._said
        if said.time is not None:
            time = expression_of(said.time)
            check_fixed(time, time, self._source, self._table)
        if said.window is None:
            return None
        length = duration_of(expression_of(said.window))
        hop = None if said.hop is None else duration_of(expression_of(said.hop))
        return Windowed(length, hop=None if hop == length else hop)

    def _grouping(self) -> list[exp.Expr]:
        """Expressions of GROUP BY, with numbers and aliases resolved to columns of SELECT."""
        group = self._select.args.get("group")
        if group is None:
            return self._plain() if self._select.args.get("distinct") is not None else []
        for name, value in group.args.items():
            if value and name not in ("expressions", "all"):
                raise QueryError(f"GROUP BY {name.upper()} {GROUPINGS}")
        if group.args.get("all"):
            return self._plain()
        total = exp.Tuple()  # GROUP BY () is one group of all records
        return [self._resolved(one) for one in group.expressions if one != total]

    def _plain(self) -> list[exp.Expr]:
        """Columns of SELECT that are not aggregates."""
        items = (one.unalias() for one in self._select.expressions)
        return [one for one in items if not self._counts(one) and not isinstance(one, exp.Star)]

    @staticmethod
    def _counts(node: exp.Expr) -> bool:
        if any(node.find_all(*AGGREGATES, exp.AggFunc)):
            return True
        calls = (*CALLS, *QUANTILE_CALLS)
        return any(one.name.upper() in calls for one in node.find_all(exp.Anonymous))

    def _resolved(self, node: exp.Expr) -> exp.Expr:
        if number_of(node) is not None:
            items = self._select.expressions
            if (item := item_at(node, items)) is None:
                raise refused(node, f"GROUP BY names a column of SELECT from 1 to {len(items)}")
            return item
        path = path_of(node, self._table)
        return self._aliases.get(path or "", node)

    @property
    def _windowed(self) -> bool:
        """Whether columns may name a window, or a session, which releases do not have."""
        return self._window is not None or self._session is not None

    def _group(self, node: exp.Expr) -> None:
        """Take one expression of GROUP BY: a window, a field, or a derived column."""
        pause = pause_of(node, self._source, self._table)
        if pause is not None:
            if self._session not in (None, pause):
                raise refused(node, "there are sessions already: leave one of them out")
            self._session = pause
            return
        window = window_of(node, self._source, self._table)
        if window is None and self._windowed and names_window(node, self._table):
            return
        if window is not None:
            if self._window not in (None, window):
                raise refused(node, "there is one window already: leave one of them out")
            self._window = window
            return
        found = looked_up(node, self._joins) or chosen_by_unit(node, self._joins)
        path = path_of(node, self._table) if found is None else None
        if path in self._source.unit and self._sessions_follow():
            self._units.add(path)
            return
        if path is not None:
            self._take(node, path)
            self._paths[path] = path
            if path in self._source.unit:
                self.notes.append(f"{path} is the privacy unit: a key of one unit is not released")
            return
        if found is None and (words := instead_of(node)) is not None:
            raise refused(node, words)
        named = [alias for alias, one in self._aliases.items() if uncast(one) == node]
        if self._counts(node):
            other = f"; if {named[0]} is one, give the aggregate another name" if named else ""
            raise refused(node, f"is an aggregate: group by the columns of the key alone{other}")
        if found is None:
            check_alone(node, self._joins)
        derived = found or derived_of(node, self._source, self._table)
        name = named[0] if named else derived.name
        self.notes += [derived.note] if derived.note else []
        self._take(node, name)
        self._derive[name] = derived.settings

    def _sessions_follow(self) -> bool:
        """Whether the query has sessions, wherever it says so."""
        if self._session is not None:
            return True
        found = (pause_of(one, self._source, self._table) for one in self._grouping())
        return any(one is not None for one in found)

    def _take(self, node: exp.Expr, name: str) -> None:
        if self._grouped.get(node) == name:
            return  # it is named twice
        if name in self._grouped.values():
            raise refused(node, f"a column of the key is named {name} already: name it with AS")
        self._grouped[node] = name

    def _aggregates(self) -> list[Aggregated]:
        found = []
        for item in self._select.expressions:
            alias = item.alias if isinstance(item, exp.Alias) else None
            node = self._released(uncast(item.this if alias is not None else item))
            name = self._grouped.get(node) or self._paths.get(path_of(node, self._table))
            self._name(item, name or "")
            if name is not None:
                if alias is not None and name != alias:
                    self.notes.append(f"AS {alias}: a column of the key keeps its name, {name}")
                continue
            if (quantile := quantile_of(node, self._scope)) is not None:
                self._quantiles.append(quantile)
                self.notes.extend(quantile.notes(alias))
                self._name(item, f"p{plain_number(quantile.at[0] * 100)}")
            elif not self._of_window(node):
                found.append(self._aggregate(node, alias))
                self._name(item, found[-1].label)
        checked(found)
        return found

    def _name(self, item: exp.Expr, label: str) -> None:
        """Note the released name of a column of SELECT."""
        for said in {name_of(item), sql_of(item.unalias())}:
            self.columns[said] = label

    def _released(self, node: exp.Expr) -> exp.Expr:
        """An aggregate without casts or rounding, which apply to its released value."""
        if (inner := filled(node)) is not None:
            self.notes.append(f"{shown(node)}: a row that is released has a number: it is that")
            return inner
        rounded = isinstance(node, exp.Round)
        if not rounded and not isinstance(node, exp.Cast | exp.TryCast):
            return node
        inner = bare(node.this)
        if not isinstance(inner, tuple(AGGREGATES)):
            return node
        if not (cast_to_whole(node) and isinstance(inner, exp.Count | exp.CountIf)):
            how = "round" if rounded else "cast"
            self.notes.append(f"{shown(node)}: released as it is; {how} it when it is read")
        return inner

    def _of_window(self, node: exp.Expr) -> bool:
        """Whether a column of SELECT names the window, which every release does anyway."""
        if not self._windowed:
            return False
        if names_window(node, self._table) or path_of(node, self._table) in self._units:
            self._check_window(node)
            return True
        if isinstance(node, exp.Dot):  # window(...).start, of Spark
            node = node.this
        names = [one for one in node.find_all(exp.Column) if names_window(one, self._table)]
        if names and len(names) == len(list(node.find_all(exp.Column))):
            return not self._counts(node)  # such as DATE(window_start)
        window = window_of(node, self._source, self._table)
        if window is not None and window == self._window:
            return True
        return pause_of(node, self._source, self._table) is not None

    def _check_window(self, node: exp.Expr) -> None:
        """Refuse (`QueryError`) TUMBLE_START and the like for another window than the query's."""
        kind = call_of(node).partition("_")[0]
        if kind in ("TUMBLE", "HOP") and node.expressions and self._window is not None:
            whole = exp.Anonymous(this=kind, expressions=node.copy().expressions)
            if window_of(whole, self._source, self._table) != self._window:
                raise refused(node, "names another window than GROUP BY: write the same in both")

    def _aggregate(self, node: exp.Expr, alias: str | None) -> Aggregated:
        if isinstance(node, exp.Star):
            raise QueryError("SELECT *: name the columns of GROUP BY and the aggregates")
        if names_window(node, self._table) and isinstance(node, exp.Anonymous):
            raise refused(node, "names a window that is not in GROUP BY: group by it too")
        if (path := path_of(node, self._table)) is not None:
            selected = {path_of(one.unalias(), self._table) for one in self._select.expressions}
            unused = [one for one in self._paths if one and one not in selected]
            near = difflib.get_close_matches(path, unused, 1, 0.7)
            raise refused(
                node,
                f"is not in GROUP BY, which has {near[0]}: write the same name in both"
                if near
                else "is not in GROUP BY, and single records are never released: add it to "
                "GROUP BY",
            )
        found = aggregate_of(node, alias, self._scope)
        there = [{"field": path, "present": True} for path in self._paths]
        if [one for one in found.setting.get("where", ()) if one not in there] == []:
            found.setting.pop("where", None)  # COUNT(product): a record without it has no key
        if found.derive is None:
            return found
        self._chosen += [] if found.derive in self._chosen else [found.derive]
        name = self._name_of(self._chosen.index(found.derive))
        return found._replace(setting=_with_field(found.setting, name))

    def _name_of(self, place: int) -> str:
        """A name for a derived number that no field of the query has."""
        fields = {".".join(p.name for p in one.parts) for one in self._select.find_all(exp.Column)}
        taken = {*fields, *self._aliases, *self._grouped.values()}
        free = (f"chosen_{n}" for n in itertools.count(1))
        return next(itertools.islice((one for one in free if one not in taken), place, None))
