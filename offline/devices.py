"""Turn raw values into the reports of simulated devices; only `hush simulate` does this.

Workers must not do this, because perturbing a value requires seeing it. A device knows its user,
its values, the survey, and earlier records of the release topic; so do the devices here.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Input, Pipeline
from ..client.survey import NARROW, RANGE, SLOTS, Survey
from ..errors import ConfigError
from ..formats.events.decode import Decoder, RawRecord
from ..mechanisms.columns import F64, I64
from ..mechanisms.keys import Keys
from ..mechanisms.noise import STEADY, KeyedNoise
from ..mechanisms.topl import fit as local
from ..mechanisms.topl.groups import user_of

Row = dict[str, Any]
SECOND = 1_000_000
REPORTED, UNTOLD, SPENT = "reported", "no threshold yet", "no report left"


@dataclass(frozen=True)
class Told:
    """Thresholds that devices learn: ``theta[i]`` of ``window[i]`` from ``time[i]`` on.

    Windows are distinct and in order: a window has one threshold.
    """

    window: I64
    time: I64
    theta: I64

    def at(self, window: I64, time: I64) -> I64:
        """Thresholds of (n,) windows at (n,) times in microseconds; 0 before the first one."""
        if not len(self.window):
            return np.zeros(len(time), np.int64)
        place = np.minimum(np.searchsorted(self.window, window), len(self.window) - 1)
        known = (self.window[place] == window) & (self.time[place] <= time)
        return np.where(known, self.theta[place], 0)


NOTHING = Told(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Crowd:
    """The devices that own the values of a file; columns are in time order."""

    survey: Survey  # survey of the devices
    paths: dict[str, str]  # paths of a report's fields
    value_path: str  # path of values in the file; the field is empty in a report
    row: NDArray[np.intp]  # (n,) position of each value in the file
    user: list[str]  # (n,) texts
    # window, time, slot, value, group: (n,) columns; times in microseconds
    window: I64
    time: I64
    slot: I64
    value: F64
    group: I64
    words: NDArray[np.uint64]  # (n, 3) the randomness of devices

    def report(
        self, rows: Sequence[Row], told: Told, within: Told = NOTHING
    ) -> tuple[list[Row], Counter[str]]:
        """Replace the values of the file by reports, and count the values by outcome.

        ``told`` has the thresholds that the devices learn, ``within`` the ranges of the narrow
        group. ``rows`` are not modified, and keep their order. A row without a report stays,
        because it has a time, but no aggregator accepts it.
        """
        step = told.at(self.window, self.time)
        step = np.where(self.group == NARROW, within.at(self.window, self.time), step)
        theta = np.where(self.group == RANGE, 0, step)
        silent = (self.group != RANGE) & (theta == 0)
        spent = self._spent(~silent)
        made = ~(silent | spent)
        code = self._codes(theta, made)
        out = list(rows)
        columns = zip(self.slot.tolist(), self.group.tolist(), theta.tolist(), code, strict=True)
        for place, fields in zip(self.row.tolist(), columns, strict=True):
            out[place] = self._record(rows[place], fields)
        fates = {REPORTED: made, UNTOLD: silent, SPENT: spent}
        return out, Counter({name: int(fate.sum()) for name, fate in fates.items() if fate.any()})

    def _spent(self, able: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(n,) whether the device has used up its reports in the slot's period."""
        used: dict[tuple[str, int], set[int]] = defaultdict(set)
        out = np.zeros(len(able), bool)
        for i in np.flatnonzero(able).tolist():
            slot = int(self.slot[i])
            mine = used[self.user[i], self.survey.period_of(slot)[0]]
            out[i] = slot not in mine and len(mine) == self.survey.reports
            if not out[i]:
                mine.add(slot)
        return out

    def _codes(self, theta: I64, made: NDArray[np.bool_]) -> list[int]:
        """Outputs of the channels; without a report -1, an impossible output."""
        code = np.full(len(theta), -1)
        for step in np.unique(theta[made]).tolist():
            now = np.flatnonzero(made & (theta == step))
            top = step or self.survey.buckets
            code[now] = local.simulate(
                self.survey, self.value[now], self.group[now], top, self.words[now]
            )
        return code.tolist()

    def _record(self, row: Row, fields: tuple[int, int, int, int]) -> Row:
        record = dict(row)
        put(record, self.value_path, None)
        put(record, self.paths["survey"], self.survey.number)
        for name, value in zip(("slot", "group", "theta", "code"), fields, strict=True):
            put(record, self.paths[name], value)
        return record


def surveyed(source: Input, rows: Sequence[Row]) -> Pipeline | None:
    """Find the pipeline whose raw values the rows hold; None if the rows are used unchanged.

    Raises `ConfigError` if there are several, since a device answers one survey.
    """
    found = [p for p in source.pipelines if p.mechanism.survey is not None and _raw(p, rows)]
    if len(found) > 1:
        names = " and ".join(repr(p.name) for p in found)
        raise ConfigError(f"{names} are surveys of one input: simulate values for one at a time")
    return found[0] if found else None


def _raw(pipeline: Pipeline, rows: Sequence[Row]) -> bool:
    code, value = (pipeline.fields.inputs or {})["code"], value_path(pipeline)
    reported = any(at(row, code) is not None for row in rows)
    return not reported and any(at(row, value) is not None for row in rows)


def survey_of(pipeline: Pipeline) -> Survey:
    """Look up the survey of a pipeline's devices; raises `ConfigError` if there is none."""
    survey = pipeline.mechanism.survey
    if survey is None:
        raise ConfigError(f"pipeline {pipeline.name!r} is not a survey")
    return survey


def value_path(pipeline: Pipeline) -> str:
    """Look up the path of raw values: the field of the pipeline's one value column."""
    return str(next(a["field"] for a in pipeline.config["aggregate"] if "field" in a))


def crowd(source: Input, pipeline: Pipeline, rows: Sequence[Row], secret: bytes) -> Crowd:
    """Make the devices that own rows; each row has a unit, a time, a value, and perhaps a slot.

    The default slot is the event time in whole seconds. Rows that lack a field, or whose value is
    not finite, stay as they are and count as bad records. The devices' randomness is derived from
    ``secret``. Raises `ConfigError` if the pipeline is not a survey.
    """
    survey, paths = survey_of(pipeline), dict(pipeline.fields.inputs or {})
    raw = [
        RawRecord(i, 0, None, json.dumps(row, default=str).encode()) for i, row in enumerate(rows)
    ]
    decoded = Decoder(source.fields, (), ()).decode(raw)
    value = np.array([_number(at(row, value_path(pipeline))) for row in rows], np.float64)
    slots = [at(row, paths["slot"]) for row in rows]
    slot = np.where([s is None for s in slots], decoded.time // SECOND, list(map(_slot, slots)))
    good = np.isfinite(value) & (slot >= 0) & (slot < SLOTS)
    good[list(decoded.bad)] = False
    kept = np.flatnonzero(good)
    kept = kept[np.argsort(decoded.time[kept], kind="stable")]
    user = [user_of(decoded.unit[i]) for i in kept.tolist()]
    slot = slot[kept]
    group = np.array([survey.group(u) for u in user], np.int64)
    words = _words(pipeline, survey, secret, zip(user, slot.tolist(), strict=True))
    time = decoded.time[kept]
    return Crowd(
        survey, paths, value_path(pipeline), kept, user, pipeline.windows.windows(time), time, slot,
        value[kept], group, words,
    )  # fmt: skip


def _words(
    pipeline: Pipeline, survey: Survey, secret: bytes, places: Iterator[tuple[str, int]]
) -> NDArray[np.uint64]:
    """(n, 3) random words by user and slot: a repeated slot has the same randomness."""
    noise = KeyedNoise(
        secret,
        charge=bytes(32),
        mechanism="devices",
        config=survey.digest.encode(),
        pipeline=pipeline.name,
        window="",
        nonces=STEADY,
    )
    keys = Keys.of(json.dumps(place).encode() for place in places)
    bits = noise.bits("report", keys, np.arange(2, dtype=np.int64), np.ones(2, np.int64))
    return bits.reshape(len(keys), 4)[:, :3]


def at(row: Any, path: str) -> Any:
    """Look up the value at a dotted path of a record; None if it is missing.

    >>> at({"trip": {"fare": 7}}, "trip.fare"), at({"trip": 7}, "trip.fare")
    (7, None)
    """
    for step in path.split("."):
        row = row.get(step) if isinstance(row, dict) else None
    return row


def put(row: Row, path: str, value: Any) -> None:
    """Set the value at a dotted path of ``row``, in place; nested objects are copied first."""
    *parents, leaf = path.split(".")
    for step in parents:
        row[step] = dict(row[step]) if isinstance(row.get(step), dict) else {}
        row = row[step]
    row[leaf] = value


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _slot(value: Any) -> int:
    """The value as a whole number; -1 for anything else."""
    number = _number(value)
    return int(number) if 0 <= number < SLOTS and number == int(number) else -1
