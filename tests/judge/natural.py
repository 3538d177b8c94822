"""Lists of keys that follow from a configuration alone, as the documentation describes."""

import itertools
import json
from typing import Any

from .records import key_bytes, value_in

PARTS = {
    "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "weekday": (1, 7), "dayofweek": (1, 7),
    "dow": (0, 6), "hour": (0, 23), "minute": (0, 59),
}  # fmt: skip


def natural(config: dict[str, Any]) -> list[list[Any]]:
    """Every combination of the values of the key's columns; one empty key without columns."""
    columns = [values(config["derive"][name]) for name in config["key"]]
    return [list(key) for key in itertools.product(*columns)]


def values(how: dict[str, Any]) -> list[Any]:
    """All distinct values of a column."""
    if how["kind"] == "timepart":
        first, last = PARTS[how["part"]]
        return [*range(first, last + 1)]
    if how["kind"] == "lookup":
        every = [*(value_in(how, text) for text in how["rows"]), how["otherwise"]]
    else:
        every = [json.loads(one) for one in how["values"]]
    return [json.loads(one)[0] for one in dict.fromkeys(key_bytes([value]) for value in every)]
