"""Keys whose domain is public by nature: a total, hours, weekdays, cases over constants.

``public_keys = "natural"`` stands for the list of all possible keys. The configuration determines
it, so no unit can make a key appear or vanish: nothing is selected, no threshold hides a key, and
no part of δ is spent on it. The charged configuration has the list's digest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..formats.events.expressions.derived import DOMAINS
from ..formats.events.expressions.looked_up import PublicTable, Value
from ..formats.events.expressions.looked_up import domain_of as all_values

NATURAL = "natural"
MOST = 10_000  # keys of a natural list


def fill_in_keys(data: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Replace ``"natural"`` by the list of all keys; yield mistakes and places."""
    pipelines = data.get("pipeline")
    for place, table in enumerate(pipelines if isinstance(pipelines, list) else ()):
        if not isinstance(table, dict) or table.get("public_keys") != NATURAL:
            continue
        key = table.get("key", [])
        names = [key] if isinstance(key, str) else key if isinstance(key, list) else []
        derive = table.get("derive", {})
        found, wrong = natural_keys(names, derive if isinstance(derive, dict) else {})
        if wrong:
            yield ("pipeline", place, "public_keys"), wrong
        table["public_keys"] = found or [["" for _ in names]]
        if not names:
            table.pop("key", None)


def natural_keys(
    names: Sequence[Any], derive: Mapping[str, Any]
) -> tuple[list[list[Value]], str | None]:
    """All keys of some columns, and the reason if there is no such list.

    Args:
        names: columns of the key; without any there is one key, the total.
        derive: settings of derived columns, by name.
    """
    domains = [domain_of(derive.get(str(name))) for name in names]
    open_ = [name for name, domain in zip(names, domains, strict=True) if domain is None]
    if open_:
        return [], (
            f'"natural" has no list of {open_[0]!r}: records say which values it has. Leave '
            "public_keys out, or list the keys; parts of the time but years and dates, cases and "
            "lookups have such a list"
        )
    known = [domain for domain in domains if domain is not None]
    number = math.prod(map(len, known))
    if number > MOST:
        return [], f'"natural" would be {number:,} keys, and at most {MOST:,} are possible'
    return [list(key) for key in itertools.product(*known)], None


def domain_of(settings: Any) -> list[Value] | None:
    """All values of a derived column, from its settings; None if they depend on records."""
    if not isinstance(settings, Mapping):
        return None
    if isinstance(table := settings.get("lookup"), PublicTable):
        if {"text", "bucket", "round"} & settings.keys():
            return None  # its values follow from a function, which is read later
        return list(all_values(table, settings.get("otherwise", "")))
    if "time" in settings:
        found = DOMAINS.get(str(settings["time"]))
        return None if found is None else list(found)
    if "cases" not in settings or not isinstance(settings["cases"], list):
        return None
    cases = [one.get("then") for one in settings["cases"] if isinstance(one, Mapping)]
    values = [*cases, settings.get("otherwise")]
    apart = {(type(value), value): value for value in values if value is not None}
    return list(apart.values())
