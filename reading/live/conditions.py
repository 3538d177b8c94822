"""Conditions of a declared configuration as people read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...agents.clock.ledger import number
from ...mechanisms.parts.bounds.stated import plain

Told = Mapping[str, Any]


def in_words(condition: Told) -> str:
    """Write a condition in its normal form as text.

    >>> in_words({"kind": "between", "field": "fare", "low": "3/2", "high": None, "low_open": True})
    'fare > 1.5'
    """
    written = _WRITTEN.get(condition["kind"])
    return json.dumps(condition, sort_keys=True) if written is None else written(condition)


def _between(told: Told) -> str:
    ends = [
        f"{told['field']} {sign}{'' if told.get(f'{end}_open') else '='} {_value(told[end])}"
        for end, sign in (("low", ">"), ("high", "<"))
        if told[end] is not None
    ]
    return " and ".join(ends)


def _numbers(told: Told) -> str:
    return _among(told, [_value(value) for value in told["values"]])


def _texts(told: Told) -> str:
    return _among(told, list(map(_quoted, told["values"])))


def _among(told: Told, values: list[str]) -> str:
    if len(values) == 1:
        return f"{told['field']} {'≠' if told['denied'] else '='} {values[0]}"
    return f"{told['field']} {'not ' * told['denied']}in ({', '.join(values)})"


def _fits(told: Told) -> str:
    """A text after functions; each is written with its arguments."""
    field = str(told["field"])
    for name, *arguments in told["steps"]:
        field = f"{name}({', '.join([field, *(json.dumps(one) for one in arguments)])})"
    if told["test"] == "in":
        return _texts({**told, "field": field})
    return f"{field} {'not ' * told['denied']}{told['test']} {_quoted(told['values'][0])}"


def _row(told: Told) -> str:
    test = in_words({"field": "its value", **told["test"]})
    missing = ", or there is none" * told["denied"]
    return f"{told['field']} has a row in table {told['sha256'][:12]} and {test}{missing}"


def _all(told: Told) -> str:
    return " and ".join(map(_part, told["parts"]))


def _any(told: Told) -> str:
    return " or ".join(map(_part, told["parts"]))


def _part(told: Told) -> str:
    text = in_words(told)
    return f"({text})" if told["kind"] in ("every", "some") else text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(text: str) -> str:
    return str(plain(number(text)))


_WRITTEN: Mapping[str, Callable[[Told], str]] = {
    "between": _between,
    "numberin": _numbers,
    "textin": _texts,
    "textfits": _fits,
    "truthis": lambda told: f"{told['field']} is {json.dumps(told['value'])}",
    "present": lambda told: f"{told['field']} is {'there' if told['value'] else 'missing'}",
    "rowfits": _row,
    "every": _all,
    "some": _any,
}
