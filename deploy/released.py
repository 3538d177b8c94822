"""The Grafana dashboard of released values: the data source Infinity reads them from `hush live`.

It queries only what `hush live` shows to everyone. The data source is provisioned with the address
of `hush live` and may query no other: a query names only its path.
"""

from __future__ import annotations

from typing import Any

PLUGIN = "yesoreyeram-infinity-datasource"
SOURCE = {"type": PLUGIN, "uid": "${DS_HUSH}"}
MOST_ROWS = 200  # most that `hush live` returns at once

VIEW = "/view.json"
NAME = ("name", "${pipeline}")
VALUE = ("value", "${value}")
KEY = ("key", "${key}")

Column = tuple[str, str, str]  # its place in a row, its name and its type
ESTIMATE: tuple[Column, ...] = (
    ("estimate.0", "Value", "number"),
    ("estimate.2", "Low", "number"),
    ("estimate.3", "High", "number"),
)


def query(
    path: str, root: str, columns: tuple[Column, ...], *params: tuple[str, str]
) -> dict[str, Any]:
    """Return a query of the plugin's own JSON parser.

    Args:
        path: path of the document, on the provisioned address.
        root: place of its list.
        columns: columns of the list's rows; none for a list of texts.
        params: parameters of the address; the plugin escapes them.
    """
    return {
        "refId": "A",
        "type": "json",
        "source": "url",
        "parser": "backend",
        "format": "table",
        "url": path,
        "url_options": {
            "method": "GET",
            "data": "",
            "params": [{"key": key, "value": value} for key, value in params],
        },
        "root_selector": root,
        "columns": [{"selector": s, "text": text, "type": kind} for s, text, kind in columns],
        "filters": [],
    }


def _variable(name: str, label: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"queryType": "infinity", "query": "", "infinityQuery": asked},
        "refresh": 2,  # whenever the time range changes: pipelines and keys come and go
        "sort": 0,
        "includeAll": False,
        "multi": False,
    }


VARIABLES = (
    {
        "name": "DS_HUSH",
        "label": "Data source",
        "type": "datasource",
        "query": PLUGIN,
        "current": {"text": "Hushstream", "value": "hush-live"},
    },
    _variable(
        "pipeline", "Pipeline", query("/summary.json", "pipelines", (("name", "", "string"),)),
    ),
    _variable("value", "Value", query(VIEW, "values", (), NAME)),
    _variable(
        "key",
        "Key",
        query(
            VIEW, "rows", (("key", "__text", "string"), ("id", "__value", "string")),
            NAME, VALUE, ("size", f"{MOST_ROWS}"),
        ),
    ),
)  # fmt: skip

TABLE = {
    "id": 1,
    "type": "table",
    "title": "Newest values",
    "description": "Of the newest window, with standard deviation and error bar. Pipelines that "
    "release cells, slots or a distribution have no rows.",
    "datasource": SOURCE,
    "gridPos": {"x": 0, "y": 0, "w": 12, "h": 12},
    "fieldConfig": {
        "defaults": {"unit": "none", "color": {"mode": "fixed", "fixedColor": "text"}},
        "overrides": [],
    },
    "options": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
    "transformations": [
        {  # the plugin sorts columns by name
            "id": "organize",
            "options": {
                "indexByName": {
                    name: place
                    for place, name in enumerate(
                        ("Key", "Value", "Deviation", "Low", "High", "Release")
                    )
                }
            },
        }
    ],
    "targets": [
        query(
            VIEW, "rows",
            (
                ("key", "Key", "string"), *ESTIMATE,
                ("estimate.1", "Deviation", "number"), ("trigger", "Release", "number"),
            ),
            NAME, VALUE, ("size", f"{MOST_ROWS}"),
        )
        | {"datasource": SOURCE}
    ],
}  # fmt: skip

HIDDEN = {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": False, "viz": False}}
NO_LINE = {"id": "custom.lineWidth", "value": 0}
TREND = {
    "id": 2,
    "type": "timeseries",
    "title": "How the value of the key moved",
    "description": "At each release, with its error bar; each window begins anew. Of cells the "
    "sum is shown.",
    "datasource": SOURCE,
    "gridPos": {"x": 12, "y": 0, "w": 12, "h": 12},
    "fieldConfig": {
        "defaults": {
            "unit": "short",
            "color": {"mode": "fixed", "fixedColor": "blue"},
            "custom": {"showPoints": "always", "pointSize": 4, "spanNulls": False},
        },
        "overrides": [
            {"matcher": {"id": "byName", "options": "Low"}, "properties": [NO_LINE, HIDDEN]},
            {
                "matcher": {"id": "byName", "options": "High"},
                "properties": [
                    NO_LINE, HIDDEN, {"id": "custom.fillBelowTo", "value": "Low"},
                    {"id": "custom.fillOpacity", "value": 20},
                ],
            },
            {
                "matcher": {"id": "byRegexp", "options": "/^(Low|High)$/"},
                "properties": [{"id": "custom.showPoints", "value": "never"}],
            },
        ],
    },
    "options": {
        "legend": {
            "showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "transformations": [  # windows overlap, and their releases come in between
        {"id": "sortBy", "options": {"sort": [{"field": "Released"}]}}
    ],
    "targets": [
        query(
            VIEW, "trend.points", (("at", "Released", "timestamp_epoch"), *ESTIMATE),
            NAME, VALUE, KEY,
        )
        | {"datasource": SOURCE}
    ],
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return Grafana's model of it."""
    return {
        "uid": "hush-values",
        "title": "Hushstream: released values",
        "tags": ["hushstream"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(VARIABLES)},
        "panels": [TABLE, TREND],
    }
