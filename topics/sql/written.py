"""Settings of a pipeline as the text of a TOML table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 100  # longer lists get a line for each element


def table(settings: Mapping[str, Any], name: str = "pipeline") -> str:
    """Write settings as one of the tables of a name, by default ``[[pipeline]]``.

    Args:
        settings: texts, numbers, truth values, and lists and tables of them.

    >>> print(table({"name": "a", "budget": {"epsilon": 1}, "key": ["b"]}), end="")
    [[pipeline]]
    name = "a"
    budget = { epsilon = 1 }
    key = ["b"]
    """
    lines = [f"{_key(setting)} = {_line(value)}" for setting, value in settings.items()]
    return "\n".join([f"[[{name}]]", *lines]) + "\n"


def _line(value: Any) -> str:
    text = _value(value)
    if isinstance(value, str) and "\n" in value and "'''" not in value and "\r" not in value:
        return f"'''\n{value}'''"
    if not isinstance(value, list) or len(text) <= WIDTH:
        return text
    return "[\n" + "".join(f"  {_value(one)},\n" for one in value) + "]"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Decimal):
        return format(value, "f")
    # A JSON text is a TOML text, but for one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)
