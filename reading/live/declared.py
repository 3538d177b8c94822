"""Pipelines as the ledger declares them: all that a viewer needs, all of it public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...agents.clock.ledger import Ledger, number
from ...errors import LedgerError
from ...mechanisms.catalogue import entries
from ...mechanisms.entry import Picture
from ...topics.config.pipelines.schedule import Schedule

MILLI = 1_000  # microseconds
FAR = 3  # windows ahead to search for the next trigger


@dataclass(frozen=True)
class Declared:
    """One pipeline of the ledger."""

    name: str  # of the pipeline
    number: int  # its place in the ledger
    config: Mapping[str, Any]  # its canonical public configuration

    @property
    def mechanism(self) -> str:
        return str(self.config["mechanism"]["kind"])

    @property
    def picture(self) -> Picture:
        """Figure of its releases; a table of keys if the mechanism is not installed."""
        entry = entries().get(self.mechanism)
        return Picture() if entry is None else entry.picture

    @property
    def published(self) -> str | None:
        """Words on what it publishes; None where that is its aggregates."""
        entry = entries().get(self.mechanism)
        return None if entry is None else entry.published(self.config["mechanism"]["parameters"])

    @property
    def shows(self) -> str:
        """Kind of figure that fits its releases."""
        return self.picture.shows

    @property
    def topic(self) -> str:
        return str(self.config["release"]["topic"])

    @property
    def unit(self) -> str:
        return str(self.config["unit_name"])

    @property
    def most(self) -> int | None:
        """Most records of a unit that count in an epoch; None if the bound is not one number."""
        bound = self.config["mechanism"]["parameters"].get("bound")
        return bound if isinstance(bound, int) else None

    @property
    def external(self) -> bool:
        """Whether triggers fire on request instead of on schedule."""
        return bool(self.config["schedule"] == "external")

    @cached_property
    def windows(self) -> Schedule:
        """Windows, epochs and trigger times; times in microseconds since 1970."""
        return Schedule.declared(self.config)

    @cached_property
    def slot(self) -> int | None:
        """Length of a slot in microseconds; None without slots or if they are not of event time."""
        if "time" in self.config["inputs"]:
            return None
        return self.picture.slot(self.config["mechanism"]["parameters"], self.windows.every)

    @property
    def reach(self) -> tuple[float, float] | None:
        """Public range of the values, where there is one."""
        found = [a for a in self.config["aggregate"] or () if "low" in a]
        if not found:
            return self.picture.reach(self.config["mechanism"]["parameters"])
        return float(number(found[0]["low"])), float(number(found[0]["high"]))

    @property
    def measured(self) -> str:
        """Name of the field that is measured; empty where records are counted."""
        fields = [str(a["field"]) for a in self.config["aggregate"] or () if "field" in a]
        return fields[0] if fields else ""

    def next_due(self, after: int) -> int:
        """First scheduled trigger time after a time; both in microseconds since 1970."""
        schedule = self.windows
        if schedule.endless:
            first = schedule.times(0)[0]
            return max(first, after + schedule.every - (after - first) % schedule.every)
        window = schedule.window(after - schedule.lateness)
        times = [t for ahead in range(-1, FAR) for t in schedule.times(window + ahead)]
        return min((t for t in times if t > after), default=after + schedule.length)


def declared(ledger: Ledger) -> dict[str, Declared]:
    """List the pipelines of a ledger by name, in the order in which they were declared.

    Raises `LedgerError` if a declaration lacks what every declaration has.
    """
    try:
        found = [
            Declared(name, int(body["number"]), body["config"])
            for name, body in ledger.pipelines.items()
        ]
        for one in found:  # refuse a damaged declaration here, not later
            _ = one.windows, one.slot, one.topic, one.unit, one.reach, one.external, one.published
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise LedgerError("a pipeline's declaration in the ledger cannot be read") from error
    return {one.name: one for one in sorted(found, key=lambda one: one.number)}
