"""The Grafana dashboards as data: one for operators, one of public metrics only.

``python -m hushstream.deploy.dashboards FOLDER`` writes them as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, HEIGHT = 12, 8
SCHEMA = 39


class Panel(NamedTuple):
    """One panel: title, unit, queries (legend → PromQL) and kind of visualisation."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    description: str = ""


RELEASES = (
    Panel(
        "Releases",
        "short",
        {
            "{{pipeline}} {{outcome}}": "sum by (pipeline, outcome) (hush_releases_total)",
        },
        "stat",
        "Triggers by outcome; `refused` means that the budget's limit is reached.",
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
        "Epsilon spent, per unit",
        "short",
        {
            "{{pipeline}} per {{unit}}": "max by (pipeline, unit) (hush_epsilon_spent)",
            "{{pipeline}} limit": "max by (pipeline, unit) (hush_epsilon_limit)",
        },
        description="Sum over epochs: the cost for a unit that is active in each of them.",
    ),
    Panel(
        "Delta spent, per unit",
        "sci",
        {
            "{{pipeline}} per {{unit}}": "max by (pipeline, unit) (hush_delta_spent)",
            "{{pipeline}} limit": "max by (pipeline, unit) (hush_delta_limit)",
        },
    ),
    Panel(
        "Budget remaining",
        "percentunit",
        {
            "{{pipeline}}": "min by (pipeline) (hush_budget_remaining_ratio)",
        },
        "gauge",
        "Share of the configured limit over all epochs.",
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
    Panel("Workers ready", "short", {"ready": "sum(hush_ready)"}, "stat"),
    Panel(
        "Versions",
        "short",
        {
            "{{version}} on Python {{python}}": "count by (version, python) (hush_build_info)",
        },
        "stat",
    ),
)

PROCESS = "{{instance}} {{process}}"

OPERATOR = (
    Panel(
        "Events",
        "ops",
        {
            "{{pipeline}} {{outcome}}": "sum by (pipeline, outcome) (rate(hush_events_total[1m]))",
        },
    ),
    Panel(
        "Dead letters",
        "ops",
        {
            "{{pipeline}} {{reason}}": (
                "sum by (pipeline, reason) (rate(hush_dead_letters_total[5m]))"
            ),
        },
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
        "Rows still to restore",
        "short",
        {
            "{{store}}": "sum by (store) (hush_recovery_remaining_records)",
        },
    ),
    Panel(
        "Memory of processes",
        "bytes",
        {
            f"{PROCESS} resident": "process_resident_memory_bytes",
            f"{PROCESS} virtual": "process_virtual_memory_bytes",
        },
    ),
    Panel("Processor", "percentunit", {PROCESS: "rate(process_cpu_seconds_total[5m])"}),
    Panel(
        "Open files, of those allowed",
        "percentunit",
        {PROCESS: "process_open_fds / process_max_fds"},
    ),
    Panel("Running for", "s", {PROCESS: "time() - process_start_time_seconds"}, "stat"),
    Panel(
        "Loss alarms",
        "short",
        {"{{pipeline}} {{cause}}": "max by (pipeline, cause) (hush_loss_alarm)"},
        "stat",
        "1: more than `engine.loss_share` of the records are lost.",
    ),
    Panel(
        "Failed transactions of the clock",
        "short",
        {"failed": "sum(increase(hush_ledger_write_failures_total[1h]))"},
        "stat",
    ),
)

DASHBOARDS = {
    "releases.json": ("hush-releases", "Hushstream: releases and budget", RELEASES),
    "operator.json": ("hush-operator", "Hushstream: operator (functions of raw data)", OPERATOR),
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
        "panels": [_panel(number, panel, source) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
        for place, (legend, query) in enumerate(panel.queries.items())
    ]
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [target | {"datasource": source} for target in targets],
    }


def write(folder: Path) -> None:
    """Write every dashboard into ``folder``."""
    for name, (uid, title, panels) in DASHBOARDS.items():
        text = json.dumps(dashboard(uid, title, panels), indent=2, ensure_ascii=False)
        (folder / name).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
