"""The Grafana dashboards as data: one for operators, one of public metrics, one of released values.

``python -m hushstream.deploy.dashboards FOLDER`` writes them as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import released

WIDTH = 12  # of a panel, in columns of 24
HIGH, LOW = 8, 5  # a row of charts, and one of single values
SCHEMA = 39

Steps = tuple[tuple[float, str], ...]  # (lower bound of values, their colour)
ALARM: Steps = ((0, "green"), (1, "red"))
BAD, LIMIT = "/ refused$/", "/ limit$/"  # patterns of series drawn in their own style


class Panel(NamedTuple):
    """One panel: title, unit, queries (legend → PromQL) and kind of visualisation.

    Without `steps` a single value has no colour: Grafana's default thresholds do not fit the unit.
    """

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    description: str = ""
    steps: Steps = ()
    special: tuple[str, ...] = ()
    wide: bool = False  # alone in its row: names of many single values need room


CAP = "members, unit, period"  # labels of a cap; all its members export the same value
RELEASES = (
    Panel(
        "Releases",
        "short",
        {
            "{{pipeline}} {{outcome}}": "sum by (pipeline, outcome) (hush_releases_total)",
        },
        "stat",
        "Triggers by outcome; `refused` means that the budget's limit is reached.",
        special=(BAD,),
        wide=True,
    ),
    Panel(
        "Since the last scheduled trigger",
        "s",
        {
            "{{pipeline}}": "time() - max by (pipeline) (hush_last_release_timestamp_seconds)",
        },
        "stat",
    ),
    Panel(
        "Workers ready",
        "short",
        {"ready": "sum(hush_ready)"},
        "stat",
        steps=((0, "red"), (1, "green")),
    ),
    Panel(
        "Epsilon spent, per unit",
        "short",
        {
            "{{pipeline}} per {{unit}}": "max by (pipeline, unit) (hush_epsilon_spent)",
            "{{pipeline}} added up": "max by (pipeline, unit) (hush_epsilon_sum)",
            "{{pipeline}} limit": "max by (pipeline, unit) (hush_epsilon_limit)",
        },
        description="For a unit that is active in each epoch: of all epochs together, and their "
        "plain sum. A limit is held against the first; of a shared budget it is of all members.",
        special=(LIMIT,),
    ),
    Panel(
        "Delta spent, per unit",
        "sci",
        {
            "{{pipeline}} per {{unit}}": "max by (pipeline, unit) (hush_delta_spent)",
            "{{pipeline}} limit": "max by (pipeline, unit) (hush_delta_limit)",
        },
        special=(LIMIT,),
    ),
    Panel(
        "Budget remaining",
        "percentunit",
        {
            "{{pipeline}}": "min by (pipeline) (hush_budget_remaining_ratio)",
        },
        "bargauge",
        "Share of the configured limit over all epochs; an alert comes below a tenth.",
        ((0, "red"), (0.1, "orange"), (0.25, "green")),
        wide=True,
    ),
    Panel(
        "Standard deviation of the noise",
        "short",
        {
            "{{pipeline}} {{level}}": "max by (pipeline, level) (hush_noise_stddev)",
        },
        "stat",
        "At a window's last trigger. Records cut off by the contribution bound are not included.",
    ),
    Panel(
        "Versions",
        "short",
        {
            "{{version}} on Python {{python}}": "count by (version, python) (hush_build_info)",
        },
        "stat",
        "Processes of each.",
    ),
    Panel(
        "Cap for each unit: epsilon",
        "short",
        {"{{members}}, {{unit}}, {{period}}": f"max by ({CAP}) (hush_epsilon_cap)"},
        "stat",
        "Promised over a period, or for good, by all of these pipelines together. How many "
        "records that leaves out is not public.",
    ),
    Panel(
        "Cap for each unit: delta",
        "sci",
        {"{{members}}, {{unit}}, {{period}}": f"max by ({CAP}) (hush_delta_cap)"},
        "stat",
    ),
)

PROCESS = "{{instance}} {{process}}"
# Two other outcomes count written records, not events.
EVENTS = 'sum by (pipeline, outcome) (rate(hush_events_total{outcome!~"manifests|released"}[1m]))'

OPERATOR = (
    Panel(
        "Events",
        "eps",
        {
            "{{pipeline}} {{outcome}}": (
                f"{EVENTS} > 0 or sum by (pipeline, outcome) "
                '(rate(hush_events_total{outcome="seen"}[1m]))'
            ),
        },
        description="Outcomes that occur, and all that were seen.",
    ),
    Panel(
        "Dead letters",
        "recps",
        {
            "{{pipeline}} in all": "sum by (pipeline) (rate(hush_dead_letters_total[5m]))",
            "{{pipeline}} {{reason}}": (
                "sum by (pipeline, reason) (rate(hush_dead_letters_total[5m])) > 0"
            ),
        },
        description="Reasons that occur.",
    ),
    Panel(
        "Age of the last beat used",
        "s",
        {
            "{{pipeline}}": "time() - max by (pipeline) (hush_watermark_timestamp_seconds)",
        },
    ),
    Panel(
        "Records fetched and not yet applied",
        "short",
        {
            "{{store}}": "sum by (store) (hush_lag_records)",
        },
    ),
    Panel(
        "Delay of releases",
        "s",
        {
            f"{{{{pipeline}}}} p{share}": (
                f"histogram_quantile(0.{share}, sum by (pipeline, le) "
                "(rate(hush_release_delay_seconds_bucket[5m])))"
            )
            for share in (50, 95)
        },
    ),
    Panel(
        "Time of a step, 95th percentile",
        "s",
        {
            "{{stage}}": (
                "histogram_quantile(0.95, sum by (stage, le) "
                "(rate(hush_step_duration_seconds_bucket[5m])))"
            ),
        },
    ),
    Panel("State on disk", "bytes", {"{{store}}": "sum by (store) (hush_state_size_bytes)"}),
    Panel(
        "Rows still to restore, and rows that copies lack",
        "short",
        {
            "{{store}}": "sum by (store) (hush_recovery_remaining_records)",
            "{{store}}, copy": "sum by (store) (hush_standby_lag_records)",
        },
    ),
    Panel(
        "Age of snapshots in the object store",
        "s",
        {"{{store}}": "time() - max by (store) (hush_snapshot_timestamp_seconds)"},
        wide=True,
    ),
    Panel(
        "Memory of processes",
        "bytes",
        {PROCESS: "process_resident_memory_bytes"},
        "timeseries",
        "Resident.",
    ),
    Panel(
        "Address space of processes",
        "bytes",
        {PROCESS: "process_virtual_memory_bytes"},
        "timeseries",
        "Virtual memory: most of it is never touched, and takes no room.",
    ),
    Panel("Processor", "percentunit", {PROCESS: "rate(process_cpu_seconds_total[5m])"}),
    Panel(
        "Open files, of those allowed",
        "percentunit",
        {PROCESS: "process_open_fds / process_max_fds"},
    ),
    Panel("Running for", "s", {PROCESS: "time() - process_start_time_seconds"}, "stat"),
    Panel(
        "Failed transactions of the clock",
        "short",
        {
            "failed": "sum(increase(hush_ledger_write_failures_total[1h]))",
            "snapshots": "sum(increase(hush_snapshot_failures_total[1h]))",
        },
        "stat",
        "In the last hour.",
        ALARM,
    ),
    Panel(
        "Loss alarms",
        "short",
        {"{{pipeline}} {{cause}}": "max by (pipeline, cause) (hush_loss_alarm)"},
        "stat",
        "1: more than `engine.loss_share` of the records are lost.",
        ALARM,
        wide=True,
    ),
)

DASHBOARDS = {
    "releases.json": ("hush-releases", "Hushstream: releases and budget", RELEASES),
    "operator.json": ("hush-operator", "Hushstream: operator (functions of raw data)", OPERATOR),
}


def _thresholds(steps: Steps) -> dict[str, Any]:
    """The steps as Grafana has them; the first step has no number."""
    numbers = [None, *(number for number, _ in steps[1:])]
    colours = [colour for _, colour in steps]
    return {
        "mode": "absolute",
        "steps": [{"value": n, "color": c} for n, c in zip(numbers, colours, strict=True)],
    }


LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
FIELDS: dict[str, dict[str, Any]] = {
    "timeseries": {"min": 0, "custom": {"showPoints": "never", "spanNulls": False}},
    "stat": {},
    "bargauge": {"min": 0, "max": 1},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {
            "showLegend": True, "displayMode": "table", "placement": "right",
            "calcs": ["lastNotNull"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {  # the name beside the value even for one series
        "reduceOptions": LAST, "textMode": "value_and_name", "colorMode": "value",
        "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
    },
    "bargauge": {
        "reduceOptions": LAST, "orientation": "horizontal", "displayMode": "basic",
        "valueMode": "color", "showUnfilled": True,
    },
}  # fmt: skip
SHORT = {  # a store's name without deployment and genesis, which would fill a legend
    "id": "renameByRegex",
    "options": {
        "regex": r"/^[^.]+\.[0-9a-f]+\.(.+?)(?:-changelog)?-(\d+)$/",
        "renamePattern": "$1 $2",
    },
}
SPECIAL: dict[str, list[dict[str, Any]]] = {
    BAD: [
        {"id": "color", "value": {"mode": "thresholds"}},
        {"id": "thresholds", "value": _thresholds(ALARM)},
    ],
    LIMIT: [  # each limit in its own colour: one pipeline may well pass another's
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}},
    ],
}


def dashboard(uid: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """Return Grafana's model of a dashboard."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    variable = {
        "name": "DS_PROMETHEUS",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "hush-prometheus"},
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["hushstream"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": [
            _panel(number, panel, place, source)
            for number, (panel, place) in enumerate(zip(panels, _places(panels), strict=True), 1)
        ],
    }


def _places(panels: tuple[Panel, ...]) -> Iterator[dict[str, int]]:
    """Yield places: a wide panel alone, others in pairs, which must have the same height."""
    left = top = 0
    for panel in panels:
        width = 2 * WIDTH if panel.wide else WIDTH
        height = HIGH if panel.kind == "timeseries" else LOW
        yield {"x": left, "y": top, "w": width, "h": height}
        left += width
        if left == 2 * WIDTH:
            left, top = 0, top + height


def _panel(
    number: int, panel: Panel, place: dict[str, int], source: dict[str, str]
) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
        for place, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **FIELDS[panel.kind], **_colours(panel)},
            "overrides": [
                {"matcher": {"id": "byRegexp", "options": name}, "properties": SPECIAL[name]}
                for name in panel.special
            ],
        },
        "options": OPTIONS[panel.kind],
        "transformations": [SHORT] if "{{store}}" in panel.queries else [],
        "targets": [target | {"datasource": source} for target in targets],
    }


def _colours(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {"color": {"mode": "palette-classic"}}
    if not panel.steps:
        return {"color": {"mode": "fixed", "fixedColor": "text"}}
    return {"color": {"mode": "thresholds"}, "thresholds": _thresholds(panel.steps)}


def write(folder: Path) -> None:
    """Write every dashboard into ``folder``."""
    boards = {name: dashboard(*told) for name, told in DASHBOARDS.items()}
    for name, board in (boards | {"values.json": released.dashboard()}).items():
        text = json.dumps(board, indent=2, ensure_ascii=False)
        (folder / name).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
