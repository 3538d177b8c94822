"""The data source Infinity, as far as the dashboards use it.

Its JSON parser takes `root_selector` and the selectors of columns as gjson paths; this reads only
plain names and numbers, joined by dots. The parser sorts columns by name.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import Any

KINDS = {"string": "string", "number": "number", "timestamp_epoch": "time"}


def filled(text: str, variables: dict[str, str]) -> str:
    """Put variables into a text.

    >>> filled("${pipeline}!", {"pipeline": "zones"})
    'zones!'
    """
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text, text
    return text


def at(path: str, value: Any) -> Any:
    """The value at a path; None if there is none.

    >>> at("a.1", {"a": [3, 4]}), at("a.9", {"a": [3, 4]}), at("b.c", {})
    (4, None, None)
    """
    for step in path.split("."):
        if isinstance(value, list):
            value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def rows(base: str, query: dict[str, Any], variables: dict[str, str]) -> list[Any]:
    """Send a query, and return the list below the root.

    Args:
        base: address of the provisioned data source.
        query: query of a dashboard.
        variables: values of the dashboard's variables, by name.
    """
    told = query["url_options"]
    assert (query["type"], query["source"], query["parser"]) == ("json", "url", "backend")
    assert told["method"] == "GET"
    params = [(one["key"], filled(one["value"], variables)) for one in told["params"]]
    url = f"{base.rstrip('/')}{query['url']}?{urllib.parse.urlencode(params)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found = at(query["root_selector"], json.load(answer))
    return found if isinstance(found, list) else []


def frame(base: str, query: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    """The frame for panels: columns of the listed rows, sorted by name."""
    found = rows(base, query, variables)
    fields = [
        {
            "name": one["text"] or one["selector"],
            "type": KINDS[one["type"]],
            "values": [at(one["selector"], row) for row in found],
        }
        for one in query["columns"]
    ]
    return {"refId": query["refId"], "fields": sorted(fields, key=lambda one: str(one["name"]))}


def chosen(base: str, board: dict[str, Any]) -> dict[str, str]:
    """The first choice of each of a dashboard's variables, one after the other, like Grafana."""
    variables: dict[str, str] = {}
    for one in board["templating"]["list"]:
        if one["type"] != "query":
            continue
        query = one["query"]["infinityQuery"]
        found = rows(base, query, variables)
        columns = {column["text"]: column["selector"] for column in query["columns"]}
        path = columns.get("__value") or next(iter(columns.values()), None)
        first = found[0] if found else ""
        variables[one["name"]] = str(at(path, first) if path and found else first)
    return variables


def answers(base: str, board: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """The frames of each panel, by the panel's id."""
    variables = chosen(base, board)
    return {
        panel["id"]: [frame(base, target, variables) for target in panel["targets"]]
        for panel in board["panels"]
    }
