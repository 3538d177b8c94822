"""Answers of the workers' own pages, for operators: readiness, and alarms about lost records.

Late records that are not kept are counted nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from ...agents.worker.health.namesake import Identity
from ...topics.config.model import Engine

PAGE_SECONDS = 1.0
DIRECT = build_opener(ProxyHandler({}))  # workers are not reachable through a desktop's proxy
ALARM, EVENTS = "hush_loss_alarm", "hush_events_total"
LATE = ("late", "future")


@dataclass(frozen=True)
class Losses:
    """Lost records that one or several workers have counted since they started."""

    alarms: frozenset[tuple[str, str]]  # pipeline and cause
    late: Mapping[str, int]  # by pipeline, including records from the far future

    @classmethod
    def read(cls, page: str) -> Losses:
        """Read an operator's page.

        Raises:
           ValueError: it is not a metrics page.
        """
        alarms, late = set(), dict[str, int]()
        for family in text_string_to_metric_families(page):
            for one in family.samples:
                name = one.labels.get("pipeline", "")
                if one.name == ALARM and one.value:
                    alarms.add((name, one.labels["cause"]))
                elif one.name == EVENTS and one.labels["outcome"] in LATE:
                    late[name] = late.get(name, 0) + int(one.value)
        return cls(frozenset(alarms), late)

    def body(self) -> dict[str, Any]:
        """Make a JSON object of it."""
        return {"alarms": [list(one) for one in sorted(self.alarms)], "late": dict(self.late)}


def together(found: Iterable[Losses]) -> Losses:
    """Add up what several workers lost."""
    alarms, late = set[tuple[str, str]](), dict[str, int]()
    for one in found:
        alarms |= one.alarms
        for name, records in one.late.items():
            late[name] = late.get(name, 0) + records
    return Losses(frozenset(alarms), late)


def ready(host: str, port: int) -> bool | None:
    """Ask a worker whether it is ready; None: it is not reachable from here."""
    if not port:
        return None
    try:
        with DIRECT.open(f"http://{_place(host)}:{port}/ready", timeout=PAGE_SECONDS):
            return True
    except HTTPError as error:
        return False if error.code == 503 else None
    except (OSError, ValueError, HTTPException):
        return None


def page_of(identity: Identity | None, host: str, engine: Engine) -> tuple[str, int] | None:
    """Find the address of a worker's operator page; None if it has none.

    Args:
        identity: the worker's description of itself; None: it gives none.
        host: the worker's address as the broker sees it.
    """
    if not engine.operator_port:
        return None
    here = identity is not None and identity.host == os.uname().nodename
    everywhere = engine.operator_host in ("0.0.0.0", "::", "")
    return (engine.operator_host if here and not everywhere else host), engine.operator_port


def losses(place: tuple[str, int]) -> Losses | None:
    """Ask an operator page for lost records; None: it is not reachable from here."""
    host, port = place
    try:
        url = f"http://{_place(host)}:{port}/internal/metrics"
        with DIRECT.open(url, timeout=PAGE_SECONDS) as answer:
            return Losses.read(answer.read().decode())
    except (OSError, ValueError, KeyError, HTTPException):
        return None


def _place(host: str) -> str:
    return f"[{host}]" if ":" in host else host
