"""Casts of fields in a query: a field is read as what the record holds, whatever a cast says."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from .columns import BOOLEAN, NUMBERS, TEXTS, bare, kind_of, path_of
from .outer.flat import joined_names
from .refusal import refused, shown


def casts_of(select: exp.Select, table: Sequence[str], key: Collection[str]) -> list[str]:
    """Say as what the fields are read that a query casts, but for columns of joined tables.

    Args:
        select: the query over the input.
        table: names of the input.
        key: the columns of the key.

    Raises:
        QueryError: a field is cast to BOOLEAN, and no record has another value that is one.
    """
    parts = [select.args.get(name) for name in ("where", "group")]
    every = [*select.expressions, *(one for one in parts if one is not None)]
    found = (cast for one in every for cast in one.find_all(exp.Cast, exp.TryCast))
    return list(dict.fromkeys(told for cast in found if (told := _told(cast, table, key, select))))


def _told(
    cast: exp.Expr, table: Sequence[str], key: Collection[str], select: exp.Select
) -> str | None:
    path, kind = path_of(bare(cast.this), table), kind_of(cast)
    if path is None or path.partition(".")[0] in joined_names(select):
        return None
    if kind == BOOLEAN:
        raise refused(
            cast, f"changes what is no truth value: write {path} where the record holds true or "
            f"false, else a comparison, such as {path} <> 0",
        )  # fmt: skip
    if kind not in (*TEXTS, *NUMBERS):
        return None
    if path in key:
        return f"{shown(cast)}: the key has {path} as it is in the record; cast it when it is read"
    read, other = ("text", "number") if kind in TEXTS else ("number", "text")
    return (
        f"{shown(cast)}: {path} is read as a {read}: a record with a {other} there is a dead letter"
    )
