"""Functions of texts in a query, and conditions on their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ....formats.events.expressions.texts import expression
from ..columns import bare, meant_text, number_of, path_of, uncast, whole_of
from ..refusal import call_of, refused, single_quotes

Table = dict[str, Any]


class Text(NamedTuple):
    """A field, and the functions that a query applies to its text, as settings."""

    path: str
    steps: list[Table]

    def settings(self) -> Table:
        """The field of a condition or of a column."""
        return {"field": self.path, **({"text": self.steps} if self.steps else {})}


_ENDS = {"LEADING": "left", "TRAILING": "right", "BOTH": "both", "": "both"}
_CONTAINS = ("REGEXP_CONTAINS", "REGEXP_MATCH", "REGEXP_MATCHES")
_LONGEST = 100  # characters of a pattern that expresses a length
_OF_FIELD = "must be a function of a field: LOWER(product)"


def text_of(node: exp.Expr, table: Sequence[str]) -> Text | None:
    """The field and the functions of an expression; None for other expressions.

    Raises:
        QueryError: an argument has no meaning here.
    """
    node = uncast(node)
    path = path_of(node, table)
    if path is not None:
        return Text(path, [])
    step = _step(node)
    if step is None:
        return None
    inner = text_of(node.this.this if isinstance(node, exp.Bracket) else node.this, table)
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
    return _until(node) if isinstance(node, exp.SubstringIndex) else _part(node)


_PLACES = {"OFFSET": 1, "SAFE_OFFSET": 1, "ORDINAL": 0, "SAFE_ORDINAL": 0}


def _part(node: exp.Expr) -> Table | None:
    """SPLIT_PART and the like as a function; None for other expressions."""
    if isinstance(node, exp.SplitPart):
        mark, place = node.args.get("delimiter"), _whole(node, node.args.get("part_index"))
    elif isinstance(node, exp.Bracket) and isinstance(node.this, exp.Split):
        mark, (given,) = node.this.expression, node.expressions
        call = call_of(given)
        place = _whole(node, given.expressions[0] if call in _PLACES else given)
        place += _PLACES.get(call, 1)
    else:
        return None
    sign = words_of(mark)
    if sign is None or len(sign) != 1 or not 1 <= place <= _LONGEST:
        raise refused(node, "takes one character and a place from 1 on: SPLIT_PART(field, '-', 1)")
    other = f"[^{re.escape(sign)}]*"
    before = f"^(?:{other}{re.escape(sign)}){{{place - 1}}}" if place > 1 else "^"
    if place > 1 and isinstance(node, exp.SplitPart):  # a text of fewer parts has an empty one
        before = f"(?:{before}|$)"
    return {"extract": f"{before}({other})"}


def _until(node: exp.SubstringIndex) -> Table:
    """All before the n-th separator; if n is negative, all after the n-th from the end."""
    sign, times = words_of(node.args.get("delimiter")), _whole(node, node.args.get("count"))
    if sign is None or len(sign) != 1 or not 1 <= abs(times) <= _LONGEST:
        raise refused(node, "takes one character and a number: SUBSTRING_INDEX(field, '@', -1)")
    other, mark = f"[^{re.escape(sign)}]*", re.escape(sign)
    if times > 0:
        return {"extract": f"^({other}(?:{mark}{other}){{0,{times - 1}}})" if times > 1 else
                f"^({other})"}  # fmt: skip
    before = f"(?:{other}{mark}){{0,{-times - 1}}}" if times < -1 else ""
    return {"extract": f"({before}{other})$"}


def compared_text(node: exp.Expr, denied: bool, table: Sequence[str]) -> Table | None:
    """The condition that LIKE, a regular expression, or a comparison of a function states.

    None if it is none of these; ``denied`` if NOT stands before it.
    """
    if isinstance(node, exp.Escape):
        return _like(node.this, denied, table, words_of(node.expression))
    if isinstance(node, exp.Like | exp.ILike):
        if isinstance(node.expression, exp.Any | exp.All):
            return _likes(node, denied, table)
        return _like(node, denied, table, "\\")
    if isinstance(node, exp.StartsWith | exp.EndsWith | exp.Contains):
        plain = _plain(_pattern(node, node.expression))
        before = "" if isinstance(node, exp.StartsWith) else "%"
        after = "" if isinstance(node, exp.EndsWith) else "%"
        return _asked(node, table, "like", before + plain + after, denied)
    if isinstance(node, exp.RegexpLike | exp.RegexpILike):
        if node.args.get("flag") is not None:
            raise refused(node, "has no flags: write (?i) in the expression")
        small = "(?i)" if isinstance(node, exp.RegexpILike) else ""
        pattern = small + _expression(node, node.expression)
        return _asked(node, table, "matches", pattern, denied)
    if isinstance(node, exp.SimilarTo):
        raise refused(node, "write LIKE, or a regular expression: product ~ '^a.*$'")
    if isinstance(node, exp.Binary) and (found := _measured(node, denied, table)) is not None:
        return found
    if call_of(node) in _CONTAINS:
        if len(node.expressions) != 2:
            raise refused(node, "must be REGEXP_CONTAINS(field, r'...')")
        subject, pattern = node.expressions
        return _asked(node, table, "matches", _expression(node, pattern), denied, subject)
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
    for text, one in zip(texts, values, strict=True):
        if text is None and (meant := meant_text(one)) is not None:
            raise refused(node, single_quotes(meant))
    if None in texts:
        raise refused(node, "a function of a text is compared with texts: LOWER(product) = 'a'")
    if name == "one_of" and len(texts) == 1:
        return _asked(node, table, "equals", texts[0], False, left)
    return _asked(node, table, name, texts, False, left)


_AT_LEAST: dict[type[exp.Expr], tuple[int, bool]] = {
    exp.GTE: (0, False),
    exp.GT: (1, False),
    exp.LT: (0, True),
    exp.LTE: (1, True),
}
"""What to add to a number to turn a comparison, or its negation, into "at least"."""


def _measured(node: exp.Binary, denied: bool, table: Sequence[str]) -> Table | None:
    """A comparison of a text's length, or of the place of another in it; None if it is neither."""
    left, number = bare(node.this), number_of(node.expression)
    if not isinstance(left, exp.Length | exp.StrPosition) or number is None:
        return None
    more, less = _AT_LEAST.get(type(node), (0, False))
    least = int(number) + more
    if isinstance(left, exp.StrPosition):
        equal = isinstance(node, exp.EQ | exp.NEQ) and number == 0
        if not equal and (least != 1 or type(node) not in _AT_LEAST):
            raise refused(node, "write LIKE '%a%', or LIKE 'a%' for a text at the beginning")
        inside = _plain(_pattern(left, left.args.get("substr")))
        denied = denied != (less or isinstance(node, exp.EQ))
        return _asked(node, table, "like", f"%{inside}%", denied, left.this)
    if isinstance(node, exp.EQ | exp.NEQ):
        pattern, denied = "_" * least, denied != isinstance(node, exp.NEQ)
    else:
        pattern, denied = "_" * least + "%", denied != less
    if number != int(number) or not 0 <= least <= _LONGEST:
        raise refused(node, f"compares a length with a whole number up to {_LONGEST}")
    return _asked(node, table, "like", pattern, denied, left.this)


def _plain(text: str) -> str:
    """The LIKE pattern that matches exactly a text."""
    return "".join(f"\\{one}" if one in "\\%_" else one for one in text)


def _function(node: exp.Expr) -> bool:
    node = bare(node)
    if isinstance(node, exp.SplitPart) or (
        isinstance(node, exp.Bracket) and isinstance(node.this, exp.Split)
    ):
        return True
    kinds = (exp.Lower, exp.Upper, exp.Trim, exp.Left, exp.Right, exp.Substring)
    return isinstance(node, (*kinds, exp.RegexpExtract, exp.RegexpSubstr, exp.SubstringIndex))


def _like(node: exp.Expr, denied: bool, table: Sequence[str], escape: str | None) -> Table:
    pattern = words_of(bare(node.expression))
    if pattern is None and (text := meant_text(node.expression)) is not None:
        raise refused(node, single_quotes(text))
    if pattern is None or escape is None or len(escape) != 1:
        raise refused(node, "LIKE needs a field and one text: product LIKE 'a%'")
    if escape != "\\":  # with another escape character a backslash is literal
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


def _likes(node: exp.Like | exp.ILike, denied: bool, table: Sequence[str]) -> Table:
    """LIKE ANY (...) and LIKE ALL (...): several patterns, one or all of which must match."""
    if node.args.get("negate") and isinstance(node.expression, exp.Any):
        raise refused(node, "systems read it in two ways: write NOT (field LIKE ANY (...))")
    given = bare(node.expression.this)
    many = isinstance(given, exp.Tuple | exp.Array)
    parts = []
    for pattern in given.expressions if many else [given]:
        one = node.copy()
        one.set("expression", pattern.copy())
        parts.append(_like(one, denied, table, "\\"))
    each = isinstance(node.expression, exp.All) != denied
    return parts[0] if len(parts) == 1 else {"all" if each else "any": parts}


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
        text = meant_text(given)
        known = "needs a text that is known before: r'...'"
        raise refused(node, known if text is None else single_quotes(text))
    return found


def _expression(node: exp.Expr, given: exp.Expr | None) -> str:
    pattern = _pattern(node, given)
    try:
        expression(pattern)
    except ValueError as error:
        raise refused(node, str(error)) from None
    return pattern


def _whole(node: exp.Expr, given: exp.Expr | None) -> int:
    number = whole_of(given)
    if number is None:
        raise refused(node, "needs whole numbers of characters")
    return number


def words_of(node: exp.Expr | None) -> str | None:
    """The text of a literal; None if it is not a text."""
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return str(node.this)
    return None
