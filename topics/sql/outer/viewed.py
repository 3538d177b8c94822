"""A SELECT over released rows as the settings of a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlglot import exp

from ..aggregates.stated import Aggregated
from ..columns import aliases, bare, item_at, number_of, path_of, uncast, whole_of
from ..expressions.filters import conditions_of
from ..parsing.dialect import NULLS_FIRST
from ..refusal import QueryError, instead_of, over_of, refused
from .outer import ARITHMETIC, AskedOfRows, limit_of

_PARTS = ("_stddev", "_low", "_high")
_IGNORED = "LAG looks back by windows, with a value or without: leave out IGNORE NULLS"
_OVER = (
    "OVER compares single records or rows of several keys: a view has LAG(n) OVER (PARTITION BY "
    "the key ORDER BY window_start), n - LAG(n) OVER (...) and SUM(n) OVER (...); for the largest "
    "write ORDER BY n DESC LIMIT 10"
)
_COMPUTED = (
    "a view has a / b of a count or sum, n - LAG(n) OVER (...), LAG and SUM OVER windows: compute "
    "it from released values, where they are read"
)
_SUMS = (
    "adds up released rows: write SUM(n), of a count or a sum; a mean over them is SUM(s) / SUM(n)"
)


class ReleasedColumns(NamedTuple):
    """The columns of a pipeline's query.

    Attributes:
        key: names of the key.
        named: released name of each column, by its name in the query; "" for the window.
    """

    key: tuple[str, ...]
    named: Mapping[str, str]


def view_of(split: AskedOfRows, columns: ReleasedColumns) -> dict[str, Any]:
    """Settings of the view, without its name and source.

    Raises:
        QueryError: it has a part that no view can compute.
    """
    assert split.outer is not None
    return _View(split, split.outer, columns).settings()


def check_values(view: Mapping[str, Any], aggregates: Any) -> None:
    """Refuse (`QueryError`) arithmetic with anything but counts and sums, whose errors combine."""
    if not isinstance(aggregates, list):
        return
    kinds = {Aggregated(one).label: one["kind"] for one in aggregates}
    for value in view.get("values", ()):
        for name in (value["of"], value.get("over")) if value.get("kind", "lag") != "lag" else ():
            kind = kinds.get(name, "count")
            if kind not in ("count", "sum"):
                raise QueryError(
                    f"{value.get('name', value['kind'])}: a view computes with counts and sums, "
                    f"and {name} is a {kind}: SELECT it by itself, and compute where it is read"
                )


class _View:
    def __init__(self, split: AskedOfRows, outer: exp.Select, columns: ReleasedColumns) -> None:
        self._split, self._outer, self._columns = split, outer, columns
        self._grouped = outer.args.get("group") is not None or any(
            one for item in outer.expressions for one in item.find_all(exp.AggFunc)
            if not one.find_ancestor(exp.Window)
        )  # fmt: skip
        self._labels: dict[exp.Expr, str] = {}  # expression of SELECT -> value of the view
        aliases(outer)

    def settings(self) -> dict[str, Any]:
        for join in self._outer.args.get("joins") or ():
            raise refused(join, "joins released rows: write it in the query within, which counts")
        key = self._key()
        values = [one for item in self._outer.expressions for one in self._value(item)]
        found: dict[str, Any] = {}
        if set(key) != set(self._columns.key):
            found["key"] = key
        if not self._split.every:
            if not values:
                raise QueryError("a view needs a value: SELECT a count or a sum of the inner query")
            found["values"] = values
        where = [one for one in (self._split.rows, self._outer.args.get("where")) if one]
        if asked := [part for one in where for part in self._conditions(one)]:
            found["where"] = asked
        if (having := self._outer.args.get("having")) is not None:
            found["having"] = self._conditions(having.this)
        limit = limit_of(self._outer)
        if limit is not None:
            order = self._outer.args.get("order")
            found |= {"order": [self._ordered(one) for one in order.expressions]} if order else {}
            found["limit"] = limit
        return found

    # -- names ------------------------------------------------------------------------------------

    def _known(self, node: exp.Expr) -> str | None:
        """The released name of a column; "" for the window, None for other expressions."""
        node = uncast(node)
        path = path_of(node, [self._split.alias] if self._split.alias else [])
        if path is None:
            return None
        named = self._columns.named
        if path in named:
            return named[path]
        if path in named.values() and path:
            return path
        for part in _PARTS:
            if (of := path.removesuffix(part)) != path and named.get(of, of) in named.values():
                return named.get(of, of) + part
        if path.lower() in _WINDOW:
            return ""
        own = next((label for item, label in self._labels.items() if label == path), None)
        if own is not None:
            return own
        there = ", ".join(dict.fromkeys(filter(None, named.values())))
        raise refused(node, f"is no released column; there is {there}")

    def _needed(self, node: exp.Expr) -> str:
        """The value that an expression names or sums over rows."""
        node = uncast(node)
        if isinstance(node, exp.Nullif) and number_of(node.expression) == 0:
            node = bare(node.this)
        if isinstance(node, exp.Mul):  # 1.0 * a / b
            for factor, other in ((node.this, node.expression), (node.expression, node.this)):
                if number_of(factor) not in (None, 1):
                    raise refused(node, "a ratio has no factor: multiply it where it is read")
                node = uncast(other) if number_of(factor) == 1 else node
        if self._grouped and isinstance(node, exp.Sum):
            node = uncast(node.this)
        found = self._known(node)
        if not found:
            raise refused(node, _SUMS if isinstance(node, exp.AggFunc) else _COMPUTED)
        return found

    def _key(self) -> list[str]:
        group = self._outer.args.get("group")
        if not self._grouped:
            plain = (one.unalias() for one in self._outer.expressions if not _is_star(one))
            chosen = [self._known(one) for one in plain if isinstance(bare(one), exp.Column)]
            there = [one for one in self._columns.key if one in chosen]
            missing = set(self._columns.key) - set(there)
            if missing and not self._split.every:
                raise QueryError(
                    f"SELECT leaves {min(missing)} out, and rows of one key would be several: add "
                    "it, or GROUP BY the other columns with SUM of the values"
                )
            return list(self._columns.key)
        items, found = self._outer.expressions, []
        named = {item.alias: item.this for item in items if isinstance(item, exp.Alias)}
        for one in group.expressions if group is not None else ():
            if (item := item_at(one, items)) is not None:
                one = item
            name = self._known(named.get(one.name, one) if isinstance(one, exp.Column) else one)
            if name and name not in self._columns.key:
                raise refused(one, "is no column of the key, which alone has a sum over rows")
            if name is None:
                raise refused(one, f"a view groups by columns of {', '.join(self._columns.key)}")
            found += [name] if name else []
        return found

    # -- values -----------------------------------------------------------------------------------

    def _value(self, item: exp.Expr) -> list[dict[str, Any]]:
        if _is_star(item):
            return []
        node, alias = _rounded(uncast(item.unalias())), item.alias or None
        made = self._made(node)
        if made is None:
            return []
        if alias is not None and not (made.get("kind") is None and alias == made["of"]):
            made["name"] = alias
        self._labels[item.unalias()] = alias or _label(made)
        return [made]

    def _made(self, node: exp.Expr) -> dict[str, Any] | None:
        if isinstance(node, exp.Column):
            name = self._known(node)
            return None if not name or name in self._columns.key else {"of": name}
        if isinstance(node, exp.Div | exp.SafeDivide):
            of, over = self._needed(node.this), self._needed(node.expression)
            return {"kind": "ratio", "of": of, "over": over}
        if isinstance(node, exp.Sub) and isinstance(bare(node.expression), exp.Window):
            of, back = self._needed(node.this), self._over(bare(node.expression))
            if back["kind"] != "lag" or back["of"] != of:
                raise refused(node, _COMPUTED)
            return {**back, "kind": "change"}
        if isinstance(node, exp.Window):
            return self._over(node)
        if self._grouped and isinstance(node, exp.Sum):
            return {"of": self._needed(node)}
        if isinstance(node, exp.AggFunc):
            raise refused(node, _SUMS)
        raise refused(node, _COMPUTED)

    def _over(self, node: exp.Expr) -> dict[str, Any]:
        call = bare(node.this)
        ignoring = isinstance(call, exp.IgnoreNulls)
        if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
            call = bare(call.this)
        if ignoring and isinstance(call, exp.Lag):
            raise refused(node, _IGNORED)
        if not isinstance(call, exp.Lag | exp.Sum) or self._grouped:
            raise refused(node, over_of(node) or _OVER)
        self._check_rows(node)
        of, spec = self._needed(call.this), node.args.get("spec")
        if isinstance(call, exp.Lag):
            back = call.args.get("offset")
            steps = whole_of(back) if back is not None else 1
            if steps is None or steps < 1 or call.args.get("default"):
                raise refused(node, "LAG takes a value and a number of windows: LAG(n, 7)")
            return {"kind": "lag", "of": of} | ({} if steps == 1 else {"windows": steps})
        rows = _rows(spec)
        if rows == 0:
            raise refused(node, f"adds up windows up to its own: {_OVER}")
        return {"kind": "running", "of": of} | ({} if rows is None else {"windows": rows})

    def _check_rows(self, node: exp.Expr) -> None:
        """Refuse OVER unless its rows are one key's windows in order."""
        if (words := over_of(node)) is not None:
            raise refused(node, words)
        parts = {self._known(one) for one in node.args.get("partition_by") or ()} - {""}
        if parts != set(self._columns.key):
            key = ", ".join(self._columns.key) or "nothing, for there is one key"
            raise refused(node, f"rows are compared within one key: PARTITION BY {key}")
        order = node.args.get("order")
        steps = order.expressions if order is not None else []
        if len(steps) != 1 or steps[0].args.get("desc") or self._known(steps[0].this) != "":
            raise refused(node, "windows follow each other in time: ORDER BY window_start")

    # -- conditions and order ---------------------------------------------------------------------

    def _conditions(self, given: exp.Expr) -> list[dict[str, Any]]:
        given = given.this if isinstance(given, exp.Where) else given
        if (single := given.find(exp.Min, exp.Max, exp.AnyValue)) is not None:
            raise refused(single, instead_of(single) or _SUMS)
        for one in given.find_all(*ARITHMETIC):
            raise refused(
                one, "name it in SELECT, and compare the name: a / b AS r ... HAVING r > 3"
            )
        whole = exp.Paren(this=given.copy())
        for one in list(whole.find_all(exp.Sum)):
            one.replace(one.this)
        for column in list(whole.find_all(exp.Column)):
            if not (name := self._known(column)):
                raise refused(given, "windows follow the schedule: leave them out of conditions")
            column.replace(exp.column(exp.to_identifier(name, quoted=True)))
        return conditions_of(whole.this, ())

    def _ordered(self, one: exp.Expr) -> dict[str, Any]:
        node, items = bare(one.this), self._outer.expressions
        if NULLS_FIRST in one.meta:
            raise refused(one, "rows without the value come last: leave out NULLS FIRST")
        if (item := item_at(node, items)) is not None:
            node = item
        name = self._labels.get(node)
        if name is None and isinstance(node, exp.Sum):
            node = node.this
        name = name or self._known(node)
        if not name:
            raise refused(one, "order by a released value or a column of the key: ORDER BY n DESC")
        own = {label: label for label in self._labels.values()}
        renamed = {item.this: item.alias for item in items if isinstance(item, exp.Alias)}
        name = renamed.get(node, name) if renamed.get(node) in own else name
        return {"by": name} | ({"descending": True} if one.args.get("desc") else {})


_WINDOW = ("window_start", "window_end", "windowstart", "windowend", "window_time")


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star)


def _rounded(node: exp.Expr) -> exp.Expr:
    """A value without rounding, which is left to the reader."""
    inner = bare(node.this) if isinstance(node, exp.Round) else node
    return inner if isinstance(inner, ARITHMETIC) else node


def _label(made: Mapping[str, Any]) -> str:
    kind, of = made.get("kind"), str(made["of"])
    if kind is None:
        return of
    return f"{of}_per_{made['over']}" if kind == "ratio" else f"{kind}_{of}"


def _rows(spec: exp.Expr | None) -> int | None:
    """Windows in a frame, including this one; None: all up to this one, 0: another frame."""
    if spec is None:
        return None
    start, side = spec.args.get("start"), spec.args.get("start_side")
    ends = spec.args.get("end") in ("CURRENT ROW", None)
    if not ends or side != "PRECEDING":
        return 0
    if start == "UNBOUNDED":
        return None
    number = whole_of(start) if isinstance(start, exp.Expr) else None
    return 0 if number is None or spec.args.get("kind") != "ROWS" else number + 1
