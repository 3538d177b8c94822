"""Functions of texts in a query, and conditions on what they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ...formats.events.expressions.texts import expression
from .columns import bare, number_of, path_of
from .refusal import refused

Table = dict[str, Any]


class Text(NamedTuple):
    """A field, and the functions that a query asks of its text, as settings."""

    path: str
    steps: list[Table]

    def settings(self) -> Table:
        """The field of a condition or of a column."""
        return {"field": self.path, **({"text": self.steps} if self.steps else {})}


_ENDS = {"LEADING": "left", "TRAILING": "right", "BOTH": "both", "": "both"}
_CONTAINS = ("REGEXP_CONTAINS", "REGEXP_MATCH", "REGEXP_MATCHES")
_OF_FIELD = "must be a function of a field: LOWER(product)"


def text_of(node: exp.Expr, table: Sequence[str]) -> Text | None:
    """The field and the functions that an expression states; None if it is no such thing.

    Raises:
        QueryError: an argument has no meaning here.
    """
    node = bare(node)
    path = path_of(node, table)
    if path is not None:
        return Text(path, [])
    if isinstance(node, exp.Cast) and node.to.sql().upper() in ("TEXT", "VARCHAR", "STRING"):
        return text_of(node.this, table)
    step = _step(node)
    if step is None:
        return None
    inner = text_of(node.this, table)
    if inner is None:
        raise refused(node, _OF_FIELD)
    return Text(inner.path, [*inner.steps, step])


def _step(node: exp.Expr) -> Table | None:
    if isinstance(node, exp.Lower | exp.Upper):
        return {"case": "lower" if isinstance(node, exp.Lower) else "upper"}
    if isinstance(node, exp.Trim):
        taken = node.args.get("expression")
        if taken is not None and words_of(taken) != " ":
            raise refused(node, "takes blanks away: write TRIM(field)")
        return {"trim": _ENDS[str(node.args.get("position") or "").upper()]}
    if isinstance(node, exp.Left | exp.Right):
        size = _whole(node, node.expression)
        if size < 1:
            raise refused(node, "needs at least one character")
        return {"start": 1, "length": size} if isinstance(node, exp.Left) else {"start": -size}
    if isinstance(node, exp.Substring):
        start = _whole(node, node.args.get("start"))
        length = node.args.get("length")
        if start == 0 or (length is not None and _whole(node, length) < 1):
            raise refused(node, "counts from 1, or from the end from -1: write SUBSTR(field, 1, 3)")
        more = {} if length is None else {"length": _whole(node, length)}
        return {"start": start, **more}
    if isinstance(node, exp.RegexpExtract | exp.RegexpSubstr):
        if any(node.args.get(name) is not None for name in ("position", "occurrence", "group")):
            raise refused(node, "takes the first match: write REGEXP_EXTRACT(field, r'(\\w+)')")
        return {"extract": _expression(node, node.expression)}
    return None


def compared_text(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table | None:
    """The condition that LIKE, a regular expression, or a comparison of a function states.

    None if it is none of these; ``denied`` if NOT stands before it.
    """
    if isinstance(node, exp.Escape):
        return _like(node.this, denied, table, words_of(node.expression))
    if isinstance(node, exp.Like | exp.ILike):
        return _like(node, denied, table, "\\")
    if isinstance(node, exp.StartsWith | exp.EndsWith | exp.Contains):
        kept = _pattern(node, node.expression)
        plain = "".join(f"\\{one}" if one in "\\%_" else one for one in kept)
        before = "" if isinstance(node, exp.StartsWith) else "%"
        after = "" if isinstance(node, exp.EndsWith) else "%"
        return _asked(node, table, "like", before + plain + after, denied)
    if isinstance(node, exp.RegexpLike):
        if node.args.get("flag") is not None:
            raise refused(node, "has no flags: write (?i) in the expression")
        return _asked(node, table, "matches", _expression(node, node.expression), denied)
    if isinstance(node, exp.Anonymous) and node.name.upper() in _CONTAINS:
        if len(node.expressions) != 2:
            raise refused(node, "must be REGEXP_CONTAINS(field, r'...')")
        subject, form = node.expressions
        return _asked(node, table, "matches", _expression(node, form), denied, subject)
    if isinstance(node, exp.EQ | exp.NEQ):
        left, right = node.this, node.expression
        left, right = (right, left) if _function(right) else (left, right)
        name = "none_of" if denied != isinstance(node, exp.NEQ) else "one_of"
        values = [right]
    elif isinstance(node, exp.In) and node.expressions:
        left, values = node.this, node.expressions
        name = "none_of" if denied else "one_of"
    else:
        return None
    if not _function(left):
        return None
    texts = [words_of(bare(one)) for one in values]
    if None in texts:
        raise refused(node, "a function of a text is compared with texts: LOWER(product) = 'a'")
    if name == "one_of" and len(texts) == 1:
        return _asked(node, table, "equals", texts[0], False, left)
    return _asked(node, table, name, texts, False, left)


def _function(node: exp.Expr) -> bool:
    kinds = (exp.Lower, exp.Upper, exp.Trim, exp.Left, exp.Right, exp.Substring)
    return isinstance(bare(node), (*kinds, exp.RegexpExtract, exp.RegexpSubstr))


def _like(node: exp.Expr, denied: bool, table: Sequence[str], escape: str | None) -> Table:
    pattern = words_of(bare(node.expression))
    if pattern is None or escape is None or len(escape) != 1:
        raise refused(node, "LIKE needs a field and one text: product LIKE 'a%'")
    if escape != "\\":  # a backslash has no meaning beside another sign
        doubled = pattern.replace(escape * 2, "\0").replace("\\", "\\\\")
        pattern = doubled.replace(escape, "\\").replace("\0", f"\\{escape}")
    denied = denied != bool(node.args.get("negate"))
    if not isinstance(node, exp.ILike):
        return _asked(node, table, "like", pattern, denied)
    found = text_of(node.this, table)
    if found is None:
        raise refused(node, _OF_FIELD)
    lowered = Text(found.path, [*found.steps, {"case": "lower"}])
    return {**lowered.settings(), "not_like" if denied else "like": pattern.lower()}


def _asked(
    node: exp.Expr,
    table: Sequence[str],
    name: str,
    value: Any,
    denied: bool,
    subject: exp.Expr | None = None,
) -> Table:
    found = text_of(node.this if subject is None else subject, table)
    if found is None:
        raise refused(node, _OF_FIELD)
    return {**found.settings(), f"not_{name}" if denied else name: value}


def _pattern(node: exp.Expr, given: exp.Expr | None) -> str:
    found = None if given is None else words_of(bare(given))
    if found is None:
        raise refused(node, "needs a text that is known before: r'...'")
    return found


def _expression(node: exp.Expr, given: exp.Expr | None) -> str:
    pattern = _pattern(node, given)
    try:
        expression(pattern)
    except ValueError as error:
        raise refused(node, str(error)) from None
    return pattern


def _whole(node: exp.Expr, given: exp.Expr | None) -> int:
    number = number_of(given)
    if number is None or number != int(number):
        raise refused(node, "needs whole numbers of characters")
    return int(number)


def words_of(node: exp.Expr | None) -> str | None:
    """The text that a literal states; None if it is none."""
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return str(node.this)
    return None
