"""What Prometheus answers to the queries of a dashboard, in Grafana's words."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ..servers.prometheus import Prometheus


class Series(NamedTuple):
    """One line of a panel: what its legend says, times (seconds since 1970) and values."""

    name: str
    times: list[float]
    values: list[float]

    @property
    def last(self) -> float | None:
        """The last value that is a number; None if there is none."""
        return next((v for v in reversed(self.values) if math.isfinite(v)), None)


def legend(form: str, labels: dict[str, str]) -> str:
    """Fill a legend as Grafana does.

    >>> legend("{{pipeline}} per {{ unit }}{{none}}", {"pipeline": "p", "unit": "rider"})
    'p per rider'
    """
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), form)


def renamed(panel: dict[str, Any], name: str) -> str:
    """Apply a panel's transformations to a name.

    >>> told = {"regex": "/^x-(.*)$/", "renamePattern": "$1"}
    >>> renamed({"transformations": [{"id": "renameByRegex", "options": told}]}, "x-y")
    'y'
    """
    for one in panel["transformations"]:
        assert one["id"] == "renameByRegex"
        told = one["options"]
        pattern = re.sub(r"\$(\d)", r"\\\1", told["renamePattern"])
        name = re.sub(told["regex"].strip("/"), pattern, name)
    return name


def answers(
    prometheus: Prometheus, board: dict[str, Any], begin: float, end: float, step: int
) -> dict[int, list[Series]]:
    """All series of each panel, by the panel's id.

    Args:
        prometheus: who is asked.
        board: the dashboard as it is shipped.
        begin: seconds since 1970.
        end: likewise.
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
                name = renamed(panel, legend(target["legendFormat"], one["metric"]))
                found[panel["id"]].append(Series(name, list(times), list(values)))
    return found
