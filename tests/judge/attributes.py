"""Attributes of units, specified a second time: each unit's newest at a clock record."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from .conditions import Bad, at
from .records import levels, refuse

KINDS = ("attribute", "attribute_cases")

Beside = tuple[int, bytes | None, bytes | None]  # offset, key, value
Unit = tuple[Any, ...]
Home = Callable[[Unit, int], bool]


def topic_of(config: dict[str, Any]) -> str | None:
    """The topic that states attributes for a pipeline; None if it has none."""
    every = config.get("derive", {}).values()
    return next((one["of"]["topic"] for one in every if one["kind"] in KINDS), None)


def encoding_of(config: dict[str, Any]) -> str:
    """The format of the topic that states attributes."""
    every = config.get("derive", {}).values()
    return next((one["of"]["format"] for one in every if one["kind"] in KINDS), "json")


def asked(how: Any) -> set[str]:
    """Every path that a column reads."""
    if isinstance(how, list):
        return set().union(*map(asked, how))
    if not isinstance(how, dict):
        return set()
    inner = [asked(value) for name, value in how.items() if name != "of"]
    return set().union({how["field"]} if "field" in how else set(), *inner)


def scalar(record: Any, path: str) -> Any:
    """The value of an attribute; None if it cannot be used."""
    try:
        value = at(record, path, (str, int, float, bool))
    except Bad:
        return None
    if isinstance(value, str):
        return value if 0 < len(value.encode()) <= 512 else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Stated:
    """What units have stated in one partition of the topic of attributes.

    Args:
        clock: all records of the clock log.
        log: the partition of the topic of attributes with the same number as the raw partition.
        here: whether a unit belongs to a partition.
    """

    def __init__(
        self, config: dict[str, Any], partition: int, clock: Iterable[Any], log: Iterable[Beside],
        here: Home,
    ) -> None:  # fmt: skip
        self._asked = [one for one in config["derive"].values() if one["kind"] in KINDS]
        self._partition, self._here = partition, here
        self._ends = [
            (self._end(entry, config["input"]["topic"]), self._end(entry, topic_of(config)))
            for entry in clock
        ]
        self._log, self._read = list(log), 0
        self._known: dict[Unit, dict[str, Any]] = {}

    def _end(self, entry: Any, topic: str | None) -> int:
        ends = entry.get("offsets", {}).get(topic, [])
        return ends[self._partition] if self._partition < len(ends) else 0

    def until(self, offset: int) -> Callable[[Unit], dict[str, Any]]:
        """What units have stated when the record at ``offset`` counts; offsets never decrease."""
        covered = 0
        for raw, beside in self._ends:
            covered = max(covered, beside)
            if raw > offset:
                break
        while self._read < len(self._log) and self._log[self._read][0] < covered:
            self._take(*self._log[self._read][1:])
            self._read += 1
        return lambda unit: self._known.get(unit, {})

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            if value is None:
                text = (key or b"").decode()
                gone = [(text,)] + [(int(text),) for _ in "x" if text == str(_number(text))]
                for unit in gone:
                    self._known.pop(unit, None)
                return
            record = json.loads(value.decode(), parse_constant=refuse)
            if not isinstance(record, dict) or levels(record) > 64:
                return
            how = self._asked[0]["of"]
            unit = (at(record, how["unit"][0], (str, int)),)
            told = {path: scalar(record, path) for path in asked(self._asked)}
        except (Bad, ValueError, RecursionError):
            return
        if unit != (None,) and self._here(unit, self._partition):
            self._known[unit] = told


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
