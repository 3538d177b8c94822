"""Prometheus' answers to a dashboard's queries, in the form of Grafana's data source."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ..servers.prometheus import Prometheus


class Series(NamedTuple):
    """One line of a panel: its query, legend, labels, times (seconds) and values."""

    refId: str  # Grafana's spelling
    name: str
    labels: dict[str, str]
    times: list[float]
    values: list[float | None]  # None: no number


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Fill a legend like Grafana.

    >>> legend("{{pipeline}} per {{ unit }}{{none}}", {"pipeline": "p", "unit": "rider"})
    'p per rider'
    """
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), pattern)


def answers(
    prometheus: Prometheus, board: dict[str, Any], begin: float, end: float, step: int
) -> dict[int, list[Series]]:
    """All series of each panel, by the panel's id.

    Args:
        prometheus: server to query.
        board: the shipped dashboard.
        begin: start of the time range, seconds since 1970.
        end: end of the time range, seconds since 1970.
        step: seconds between two points.
    """
    found: dict[int, list[Series]] = {}
    for panel in board["panels"]:
        found[panel["id"]] = []
        for target in panel["targets"]:
            words = {"query": target["expr"], "start": f"{begin}", "end": f"{end}"}
            told = prometheus.ask("query_range", step=str(step), **words)
            for one in told["result"]:
                times, values = zip(*((float(t), float(v)) for t, v in one["values"]), strict=True)
                known = [v if math.isfinite(v) else None for v in values]
                name = legend(target["legendFormat"], one["metric"])
                line = Series(target["refId"], name, one["metric"], list(times), known)
                found[panel["id"]].append(line)
    return found
