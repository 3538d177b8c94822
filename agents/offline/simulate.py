"""Simulation of a configuration on a file, in memory, with the workers' own stages.

Only for public or synthetic data: the report shows exact figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from ...client import published_threshold
from ...errors import ConfigError
from ...mechanisms.keys import Keys
from ...topics.config.aggregates import COUNT
from ...topics.config.load import Config
from ...topics.events.decode import Decoder, RawRecord
from ...topics.events.types import paths_of
from ...topics.names import Names
from ...topics.records import Beat, ClockRecord, Start, Trigger
from ...topics.schedule import Due
from ..clock.ledger import Ledger, charge_body, limits
from ..clock.timeline import Timeline
from ..deployment.compile import compile_config
from ..deployment.model import Deployment, Input, Pipeline
from . import devices
from .engine import OfflineEngine
from .files import read_file

__all__ = ["SimulationReport", "read_file", "simulate"]

MONTHS = 1 << 62
PERTURBED = (
    "the file holds values: they were perturbed as devices would do it (definition: local), "
    "and their reports aggregated"
)
AS_THEY_ARE = "the file holds reports (definition: local): they were aggregated as they are"


@dataclass
class SimulationReport:
    """Comparison of the last release of each window with the truth.

    Attributes:
        windows: one entry per window: keys and records in truth and released, errors.
        counts: number of records by outcome.
        note: text for people about the preparation of the records.
    """

    pipeline: str
    windows: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    note: str = ""


def simulate(
    config: Config,
    rows: list[dict[str, Any]],
    source_name: str,
    secret: bytes,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, SimulationReport], OfflineEngine]:
    """Run rows in event-time order through the input ``source_name``.

    Rows with raw values for a survey (`topl`) are first turned into the reports that devices would
    have made of them; rows that are reports are used as they are.

    Args:
        config: as for a worker; its cluster is not used.
        rows: decoded records.
        source_name: an input of the configuration.
        secret: the root key, for noise and digests.
        progress: called after a step with the number of events that it used.

    Returns:
        A report by pipeline, and the engine with all records.

    Raises:
        ConfigError: the input is unknown, or no row has a time.
    """
    source, deployment = _deployment(config, source_name)
    pipeline = devices.surveyed(source, rows)
    if pipeline is None:
        return _run(source, deployment, rows, secret, progress)
    crowd = devices.crowd(source, pipeline, rows, secret)
    reported, fates = crowd.report(rows, _told(source, deployment, pipeline, crowd, rows, secret))
    reports, engine = _run(source, deployment, reported, secret, progress)
    mine = reports[pipeline.name]
    mine.counts |= fates
    mine.note = PERTURBED
    mine.windows = list(_means(pipeline, crowd, engine))
    return reports, engine


def _told(
    source: Input, deployment: Deployment, pipeline: Pipeline, crowd: devices.Crowd,
    rows: list[dict[str, Any]], secret: bytes,
) -> devices.Told:  # fmt: skip
    """The thresholds that devices learn from releases; they depend on the range group alone."""
    alone = replace(source, pipelines=(pipeline,))
    ranged, _ = crowd.report(rows, devices.NOTHING)
    _, engine = _run(alone, replace(deployment, inputs=(alone,)), ranged, secret, None)
    found: dict[int, tuple[int, int]] = {}
    for out in engine.outs[pipeline.release_topic]:
        theta = published_threshold(out.value or b"", crowd.survey)
        if theta is not None:
            found.setdefault(_window_of(pipeline, out.value or b""), (out.timestamp or 0, theta))
    window = sorted(found)
    time, step = ([found[w][i] for w in window] for i in (0, 1))
    return devices.Told(np.array(window, np.int64), np.array(time, np.int64) * 1000, np.array(step))


def _window_of(p: Pipeline, manifest: bytes) -> int:
    start = datetime.fromisoformat(json.loads(manifest)["window"]["start"])
    return p.windows.window((start - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))


def _check_columns(source: Input, rows: list[dict[str, Any]]) -> None:
    """Refuse rows of which none has a field that is read of each record."""
    found = {name for row in rows for name in row}
    signs = {p.fields.sign for p in source.pipelines}
    paths = set(paths_of(source.fields, [p.fields for p in source.pipelines])) - signs
    missing = sorted(path for path in paths if path.split(".")[0] not in found)
    if rows and missing:
        raise ConfigError(
            f"no record has the field {missing[0]!r}, which input {source.name!r} or one of its "
            f"pipelines reads; there is {', '.join(sorted(found)) or 'none'}"
        )


def _run(
    source: Input,
    deployment: Deployment,
    rows: list[dict[str, Any]],
    secret: bytes,
    progress: Callable[[int], None] | None,
) -> tuple[dict[str, SimulationReport], OfflineEngine]:
    _check_columns(source, rows)
    records = [RawRecord(i, 0, None, _json(row)) for i, row in enumerate(rows)]
    decoder = Decoder(
        source.fields, [p.fields for p in source.pipelines], [p.mechanism for p in source.pipelines]
    )
    decoded = decoder.decode(records)
    good = np.ones(len(records), bool)
    good[list(decoded.bad)] = False
    # Bad records have no time, so they arrive first and become dead letters.
    arrival = np.where(good, decoded.time, -MONTHS)
    order = np.argsort(arrival, kind="stable")
    records = [records[i]._replace(offset=n) for n, i in enumerate(order.tolist())]
    times = arrival[order]
    entries = list(_clock(source, times))
    raw = {(source.topic, 0): records}
    names = Names(deployment.name, "simulated")
    engine = OfflineEngine(
        deployment, names, secret, raw, list(enumerate(entries)), progress=progress
    )
    engine.run()
    decoded = decoder.decode(records)
    reports = {
        p.name: _report(p, v, decoded.time, engine)
        for p, v in zip(source.pipelines, decoded.views, strict=True)
    }
    return reports, engine


def _means(p: Pipeline, crowd: devices.Crowd, engine: OfflineEngine) -> Iterator[dict[str, Any]]:
    """Per window: the last released mean, and the mean of all values, silent devices included."""
    windows, last = p.windows.windows(crowd.time), _last_rows(p, engine)
    for window in np.unique(windows).tolist():
        values = crowd.value[windows == window]
        said = last.get(window, {}).get(b"", {}).get("values", {}).get("mean", {})
        yield {
            "window": window,
            "values": len(values),
            "mean": said.get("value"),
            "stddev": said.get("stddev"),
            "truth": float(values.mean()),
        }


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=str).encode()


def _deployment(config: Config, source_name: str) -> tuple[Input, Deployment]:
    for source in compile_config(config).inputs:
        if source.name == source_name:
            alone = source.in_json()
            return alone, Deployment(config.deployment.name, (alone,))
    known = ", ".join(i.name for i in config.input)
    raise ConfigError(f"input {source_name!r} is unknown; expected one of {known}")


def _clock(source: Input, times: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[ClockRecord]:
    """The clock log of a clock that triggers exactly on schedule, in event time."""
    real = times[times > -MONTHS]
    if not len(real):
        raise ConfigError("no record of the file has a time: check the input's time and unit")
    first, last = int(real[0]), int(real[-1])
    ledger = Ledger()
    timelines = {}
    for p in source.pipelines:
        window = 0 if p.external else p.windows.window(first)
        timelines[p.name] = Timeline(p.mechanism.horizon)
        start = Start(p.name, window, first)
        timelines[p.name].apply(start)
        yield start
    for p, due in _schedule(source, timelines, last):
        # Records up to the scheduled time have arrived; a cut is a beat too.
        cut = int(np.searchsorted(times, due.scheduled, side="right"))
        yield _trigger(source, p, due, cut, timelines[p.name], ledger)
    yield Beat(last + 1, {source.topic: [len(times)]})


def _schedule(
    source: Input, timelines: dict[str, Timeline], last: int
) -> Iterator[tuple[Pipeline, Due]]:
    found = []
    for p in source.pipelines:
        end = p.windows.times(p.windows.window(last))[-1]
        found += [
            (due.scheduled, p.number, p, due) for due in p.windows.due(timelines[p.name], end)
        ]
    for _, _, p, due in sorted(found, key=lambda f: (f[0], f[1], f[3].window)):
        yield p, due


def _trigger(
    source: Input, p: Pipeline, due: Due, cut: int, timeline: Timeline, ledger: Ledger
) -> Trigger:
    epoch = p.windows.epoch(due.window)
    charge = ledger.charges.get((p.name, epoch))
    if charge is None:
        body = charge_body(p, epoch, "simulation", "simulation")
        if not ledger.records:
            ledger.take(ledger.next("genesis", 0, {"genesis": "simulated"}).encode())
        charge = ledger.take(ledger.next("charge", due.scheduled, body).encode())
    final = due.index == p.mechanism.horizon
    trigger = Trigger(
        due.scheduled, {source.topic: [cut]}, p.name, timeline.ordinal + 1, due.window, due.index,
        final, due.scheduled, epoch, charge.seq, charge.hash(), p.config_hash, "simulation",
        "", ledger.epochs(p.name), *limits(p),
    )  # fmt: skip
    timeline.apply(trigger)
    return trigger


def _report(p: Pipeline, view: Any, time: Any, engine: OfflineEngine) -> SimulationReport:
    report = SimulationReport(p.name)
    for (name, outcome), number in sorted(engine.counts.items()):
        if name == p.name and number:
            report.counts[outcome] = number
    if p.mechanism.survey is not None:
        report.note = AS_THEY_ARE
    if p.mechanism.key_form == "code":  # cells and slots have no exact count to compare with
        report.windows = [{"released": sum(1 for _ in _rows(p, engine))}]
        return report
    truth = _truth(p, view, time)
    released = _last_rows(p, engine)
    for window in sorted(truth):
        report.windows.append(_compare(p, window, truth[window], released.get(window, {})))
    return report


def _truth(p: Pipeline, view: Any, time: Any) -> dict[int, dict[bytes, int]]:
    """Records per window and key, without any bound."""
    windows = p.windows.windows(time[view.rows])
    out: dict[int, dict[bytes, int]] = {}
    for window in np.unique(windows).tolist():
        counted = np.bincount(view.key[windows == window], minlength=len(view.keys))
        live = np.flatnonzero(counted)
        keys: Keys = view.keys.take(live)
        out[window] = dict(zip(keys.tolist(), counted[live].tolist(), strict=True))
    return out


def _rows(p: Pipeline, engine: OfflineEngine) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for out in engine.outs.get(p.release_topic, ()):
        body = json.loads(out.value or b"{}")
        if body["schema"] == "hush.release/2":
            yield (out.key or b"").split(b"|", 2)[2], body


def _last_rows(p: Pipeline, engine: OfflineEngine) -> dict[int, dict[bytes, dict[str, Any]]]:
    out: dict[int, dict[bytes, dict[str, Any]]] = {}
    starts: dict[str, int] = {}
    for key, body in _rows(p, engine):
        if body["final"]:
            start = body["window"]["start"]
            if start not in starts:
                moment = np.datetime64(start.removesuffix("Z"), "us").astype(np.int64)
                starts[start] = p.windows.window(int(moment))
            out.setdefault(starts[start], {})[key] = body
    return out


def _compare(
    p: Pipeline, window: int, truth: dict[bytes, int], rows: dict[bytes, dict[str, Any]]
) -> dict[str, Any]:
    name = next((a.label for a in p.aggregates if a.parts == (COUNT,)), None)
    values = {k: b["values"][name]["value"] for k, b in rows.items() if name in b["values"]}
    errors = np.array([values.get(k, 0) - truth.get(k, 0) for k in {*truth, *values}], float)
    covered = sum(n for k, n in truth.items() if k in rows)
    return {
        "window": window,
        "keys": len(truth),
        "released": len(rows),
        "records": sum(truth.values()),
        "covered": covered,
        "l1": float(np.abs(errors).sum()) if values else None,
        "l2": float(np.sqrt((errors**2).sum())) if values else None,
        "linf": float(np.abs(errors).max(initial=0)) if values else None,
    }
