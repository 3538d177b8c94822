"""The reference of all settings as Markdown, generated from the model's docstrings and types.

``python -m hushstream.topics.config.describe docs/configuration.md`` rewrites the generated part
of that page, which begins at a marker.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from dataclasses import MISSING, Field, fields
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from ...formats.events.expressions.looked_up import PublicTable
from ..calendar import CalendarSpan
from . import change
from .merge import tables
from .toml.read import hints_of
from .toml.values import Duration, Instant, Secret, format_duration

MARKER = "<!-- Everything below is generated from topics/config/model.py. -->"

IMPLIED = {"parameters"}  # a mechanism's settings are written beside its kind

_TYPES: dict[Any, str] = {
    str: "text",
    Secret: "text",
    PublicTable: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    Fraction: "number",
    Duration: "duration",
    CalendarSpan: "calendar",
    Instant: "time",
}


def reference() -> str:
    """Return a Markdown section for each kind of table, and one on what holds a setting.

    A kind used in several tables has one section, named after a pipeline's table if there is one.
    Rows that an earlier section already has are only named, not repeated.
    """
    places: dict[type[Any], list[str]] = {}
    for name, kind in tables():
        places.setdefault(kind, []).append(name)
    shown: dict[str, str] = {}
    sections = []
    for name, kind in tables():
        title, *others = sorted(dict.fromkeys(places[kind]), key=_rank)
        if name == title:
            sections.append(_section(title, others, kind, shown))
    return "\n".join([*sections, change.reference()])


def _rank(name: str) -> tuple[bool, int]:
    """Tables of a pipeline before others, then the shortest name."""
    return not name.lstrip("[").startswith("pipeline"), len(name)


def documented(kind: type[Any]) -> dict[str, str]:
    """Return the text of each attribute in the docstrings of a settings class and its bases.

    >>> from hushstream.topics.config.pipelines.pipeline import WindowSettings
    >>> documented(WindowSettings)["origin"]
    'a time at which a window begins.'
    """
    return {n: text for one in kind.__mro__[::-1] for n, text in _attributes(one).items()}


def _attributes(kind: type[Any]) -> dict[str, str]:
    _, _, block = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    block = block.partition("\n\n")[0]
    entries = re.split(r"^    (?=\w[\w, ]*: )", block, flags=re.MULTILINE)[1:]
    pairs = (entry.split(": ", 1) for entry in entries)
    return {name: " ".join(text.split()) for names, text in pairs for name in names.split(", ")}


def settings_of(kind: type[Any]) -> list[tuple[str, ...]]:
    """List name, type, default and meaning of each setting of a class, in Markdown."""
    hints = hints_of(kind)
    texts = documented(kind)
    return [
        (f.name, _type(hints[f.name]), _default(f, hints[f.name]), texts[f.name])
        for f in fields(kind)
    ]


def _section(title: str, others: list[str], kind: type[Any], shown: dict[str, str]) -> str:
    """A section; ``shown`` maps each row already on the page to its table, and grows."""
    summary = (inspect.getdoc(kind) or "").partition("\n\nAttributes:")[0]
    also = f" Also for {', '.join(f'`{other}`' for other in others)}." if others else ""
    rows: list[str] = []
    same: dict[str, list[str]] = {}
    for name, written, default, text in settings_of(kind):
        if name in IMPLIED or (name == "kind" and "kind = " in title):
            continue
        row = f"- `{name}`{_said(written, default)}: {text}"
        if row in shown:
            same.setdefault(shown[row], []).append(f"`{name}`")
        else:
            shown[row] = title
            rows.append(row)
    rows += [f"- {', '.join(names)}: as in `{table}`." for table, names in same.items()]
    return f"## `{title}`\n\n{summary}{also}\n\n" + "\n".join(rows) + "\n"


def _said(written: str, default: str) -> str:
    """Type and default in brackets, without the page's defaults: type text, no default value."""
    unsaid = ("text", "none", "see below")
    said = "; ".join(word for word in (written, default) if word not in unsaid)
    return f" ({said})" if said else ""


def _type(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _type(get_args(hint)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if origin in (typing.Union, types.UnionType):
        members = dict.fromkeys(_type(m) for m in get_args(hint) if m is not types.NoneType)
        return (
            "value" if _TYPES[str] in members and _TYPES[bool] in members else " or ".join(members)
        )
    if origin is tuple:
        inner = _type(get_args(hint)[0])
        return f"list of ({inner})" if " " in inner else f"list of {inner}s"
    return _TYPES.get(hint, "table")


def _default(setting: Field[Any], hint: Any) -> str:
    if setting.default is MISSING:
        return "required" if setting.default_factory is MISSING else "see below"
    value = setting.default
    if value in (None, (), ""):
        return "none"
    if Duration in _leaves(hint):
        return f"`{format_duration(value)}`"
    if isinstance(value, Fraction):
        return f"`{float(value):g}`"
    if isinstance(value, tuple):
        return f"`{', '.join(getattr(item, 'kind', str(item)) for item in value)}`"
    if Instant in _leaves(hint):
        return "`1970-01-01T00:00:00Z`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _leaves(hint: Any) -> set[Any]:
    parts = get_args(hint)
    return set().union(*map(_leaves, parts)) if parts else {hint} if _hashable(hint) else set()


def _hashable(hint: Any) -> bool:
    return getattr(hint, "__hash__", None) is not None


def rewrite(page: str) -> str:
    """Return a page with everything below the marker regenerated."""
    return page.partition(MARKER)[0] + MARKER + "\n\n" + reference()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(rewrite(target.read_text("utf-8")), "utf-8")
