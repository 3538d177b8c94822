"""Simulation of a configuration on a file, in memory, with the workers' own stages.

Only for public or synthetic data: the report shows exact figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from ..agents.clock.ledger import Ledger
from ..agents.clock.timeline import Timeline
from ..agents.deployment.compile import compile_config
from ..agents.deployment.model import Deployment, Input, Pipeline
from ..agents.deployment.published.statement import charge_body, limits
from ..client import published_threshold
from ..client.survey import NARROW, VALUE
from ..errors import ConfigError
from ..formats.events.decode import Decoded, Decoder, RawRecord, View
from ..formats.events.reasons import Bad, Reason
from ..formats.events.types import paths_of
from ..formats.events.unusable import in_words, unusable, value_at
from ..topics.config.load import Config
from ..topics.config.pipelines.schedule import Due
from ..topics.names import Names
from ..topics.records import Beat, ClockRecord, Start, Trigger
from . import devices
from .engine import OfflineEngine
from .files import check_columns, read_file
from .judged import SimulationReport, counts_of, dates, figures, judge, last_rows

__all__ = ["SimulationReport", "read_file", "simulate"]

MONTHS = 1 << 62
QUOTED = 60  # characters of a value that a message quotes
PERTURBED = (
    "the file holds values: they were perturbed as devices would do it (definition: local), "
    "and their reports aggregated"
)
Progress = Callable[[int, int, int], None]
"""It is told how many triggers have fired, how many there are, and of how many windows."""
AS_THEY_ARE = "the file holds reports (definition: local): they were aggregated as they are"


def simulate(
    config: Config,
    rows: list[dict[str, Any]],
    source_name: str,
    secret: bytes,
    progress: Progress | None = None,
) -> tuple[dict[str, SimulationReport], OfflineEngine]:
    """Run rows in event-time order, without a cluster; return reports by pipeline, and the engine.

    Rows with raw values for a survey (`topl`) are first turned into the reports that devices would
    have made; rows that are reports are used unchanged. Noise and digests come from the root key
    ``secret``; ``progress`` is called before the first trigger and after each.

    Raises:
        ConfigError: the input is unknown, or no row has a time.
    """
    source, deployment = _deployment(config, source_name)
    pipeline = devices.surveyed(source, rows)
    if pipeline is None:
        return _run(source, deployment, rows, secret, progress)
    crowd = devices.crowd(source, pipeline, rows, secret)
    within = devices.NOTHING
    if crowd.survey.rounds > 1:
        within = _told(source, deployment, pipeline, crowd, rows, secret, within, NARROW)
    told = _told(source, deployment, pipeline, crowd, rows, secret, within, VALUE)
    reported, fates = crowd.report(rows, told, within)
    reports, engine = _run(source, deployment, reported, secret, progress)
    mine = reports[pipeline.name]
    mine.counts |= fates
    mine.note = PERTURBED
    mine.windows = list(_means(pipeline, crowd, engine))
    lost = sum(number for fate, number in fates.items() if fate != devices.REPORTED)
    mine.cut = lost / max(sum(fates.values()), 1)
    return reports, engine


def _told(
    source: Input, deployment: Deployment, pipeline: Pipeline, crowd: devices.Crowd,
    rows: list[dict[str, Any]], secret: bytes, within: devices.Told, group: int,
) -> devices.Told:  # fmt: skip
    """Find what a group's devices learn from releases; later groups do not affect it."""
    alone = replace(source, pipelines=(pipeline,))
    ranged, _ = crowd.report(rows, devices.NOTHING, within)
    _, engine = _run(alone, replace(deployment, inputs=(alone,)), ranged, secret, None)
    found: dict[int, tuple[int, int]] = {}
    for out in engine.outs[pipeline.release_topic]:
        theta = published_threshold(out.value or b"", crowd.survey, group=group)
        if theta is not None:
            found.setdefault(_window_of(pipeline, out.value or b""), (out.timestamp or 0, theta))
    window = sorted(found)
    time, step = ([found[w][i] for w in window] for i in (0, 1))
    return devices.Told(np.array(window, np.int64), np.array(time, np.int64) * 1000, np.array(step))


def _window_of(p: Pipeline, manifest: bytes) -> int:
    start = datetime.fromisoformat(json.loads(manifest)["window"]["start"])
    return p.windows.window((start - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))


def _run(
    source: Input,
    deployment: Deployment,
    rows: list[dict[str, Any]],
    secret: bytes,
    progress: Progress | None,
) -> tuple[dict[str, SimulationReport], OfflineEngine]:
    check_columns(source, rows)
    records = [RawRecord(i, 0, None, _json(row)) for i, row in enumerate(rows)]
    decoder = Decoder(
        source.fields, [p.fields for p in source.pipelines], [p.mechanism for p in source.pipelines]
    )
    decoded = decoder.decode(records)
    good = np.ones(len(records), bool)
    good[list(decoded.bad)] = False
    if rows and not good.any():
        raise ConfigError(_unplaced(source, decoded.bad, rows))
    # Bad records have no time, so they arrive first and become dead letters.
    arrival = np.where(good, decoded.time, -MONTHS)
    order = np.argsort(arrival, kind="stable")
    records = [records[i]._replace(offset=n) for n, i in enumerate(order.tolist())]
    times = arrival[order]
    bar = _Bar(source, progress)
    entries = list(_clock(source, times, bar))
    raw = {(source.topic, 0): records}
    names = Names(deployment.name, "simulated")
    engine = OfflineEngine(deployment, names, secret, raw, list(enumerate(entries)))
    engine.run(lambda _: bar.step(engine))
    decoded = decoder.decode(records)
    placed = [rows[i] for i in order.tolist()]
    reports = {
        p.name: _report(source, p, v, decoded, placed, engine)
        for p, v in zip(source.pipelines, decoded.views, strict=True)
    }
    return reports, engine


def _unplaced(source: Input, bad: Bad, rows: list[dict[str, Any]]) -> str:
    """Say why no record can be placed in time; quotes one value, as the file is public."""
    path, how = source.fields.time or "", source.fields.time_format
    timeless = [
        n for n, reason in bad.items() if isinstance(reason, Reason) and reason.path == path
    ]
    if not path or not timeless:
        reasons = unusable(bad, rows, paths_of(source.fields, [p.fields for p in source.pipelines]))
        return f"no record of the file can be used: {in_words(reasons)}"
    row = next((n for n in timeless if value_at(rows[n], path) is not None), None)
    if row is None:
        return f"no record of the file has a time: none has a value in the field {path!r}"
    value = json.dumps(value_at(rows[row], path), default=str, ensure_ascii=False)[:QUOTED]
    return (
        f"no record of the file has a time: the field {path!r} of row {row + 1} holds {value}, "
        f"which time.format = {how!r} does not read"
    )


def _report(
    source: Input, p: Pipeline, view: View, decoded: Decoded, rows: list[dict[str, Any]],
    engine: OfflineEngine,
) -> SimulationReport:  # fmt: skip
    if p.mechanism.survey is None:
        report = judge(p, view, decoded, engine)
        kinds = paths_of(source.fields, [p.fields])
        report.unusable = in_words(unusable(view.bad | decoded.bad, rows, kinds))
        return report
    report = SimulationReport(p.name, counts=counts_of(p, engine), note=AS_THEY_ARE)
    for window, released in sorted(last_rows(p, engine).items()):
        report.windows.append(
            {"window": window, **dates(p, window), "released": len(released)}
        )  # reports do not reveal the values
    return report


def _means(p: Pipeline, crowd: devices.Crowd, engine: OfflineEngine) -> Iterator[dict[str, Any]]:
    """Per window: the last released mean, and the mean of all values, also of silent devices."""
    windows, last = p.windows.windows(crowd.time), last_rows(p, engine)
    for window in np.unique(windows).tolist():
        values = crowd.value[windows == window]
        rows, truth = last.get(window, {}), float(values.mean())
        said = rows.get(b"", {}).get("values", {}).get("mean") or {}
        yield {
            "window": window,
            **dates(p, window),
            "values": len(values),
            "mean": said.get("value"),
            "stddev": said.get("stddev"),
            "truth": truth,
            "released": len(rows),
            "figures": {"mean": figures(rows, "mean", {b"": truth})},
        }


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=str).encode()


def _deployment(config: Config, source_name: str) -> tuple[Input, Deployment]:
    compiled = compile_config(config)
    for source in compiled.inputs:
        if source.name == source_name:
            alone = source.in_json()
            return alone, _alone(compiled, alone)
    known = ", ".join(i.name for i in config.input)
    raise ConfigError(f"input {source_name!r} is unknown; expected one of {known}")


def _alone(compiled: Deployment, source: Input) -> Deployment:
    names = [p.name for p in source.pipelines]
    return replace(compiled.only(names), inputs=(source,))


class _Bar:
    """Tells fired triggers: before the first one, and whenever more have fired."""

    def __init__(self, source: Input, progress: Progress | None) -> None:
        self._source, self._progress = source, progress
        self._done = self._triggers = self._windows = 0

    def begin(self, found: Sequence[tuple[Pipeline, Due]]) -> None:
        """Tell how many triggers of how many windows there will be."""
        self._triggers = len(found)
        self._windows = len({(p.name, due.window) for p, due in found})
        self._tell()

    def step(self, engine: OfflineEngine) -> None:
        """Tell if further triggers have fired on all partitions."""
        made = ((p, engine.counts[p.name, "manifests"]) for p in self._source.pipelines)
        done = sum(number // p.cells_partitions for p, number in made)
        if done > self._done:
            self._done = done
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._triggers, self._windows)


def _clock(
    source: Input, times: np.ndarray[Any, np.dtype[np.int64]], bar: _Bar
) -> Iterator[ClockRecord]:
    """The clock log of a clock that triggers exactly on schedule, in event time."""
    if not len(times):
        raise ConfigError("the file holds no record: a row below the header, or a JSON object")
    real = times[times > -MONTHS]
    first, last = int(real[0]), int(real[-1])
    ledger = Ledger()
    timelines = {}
    for p in source.pipelines:
        window = 0 if p.external else p.windows.first(first)
        timelines[p.name] = Timeline(p.traits.horizon)
        start = Start(p.name, window, first)
        timelines[p.name].apply(start)
        yield start
    found = list(_schedule(source, timelines, last))
    bar.begin(found)
    for p, due in found:
        # Records up to the scheduled time have arrived; a cut is also a beat.
        cut = int(np.searchsorted(times, due.scheduled, side="right"))
        yield _trigger(source, p, due, cut, timelines[p.name], ledger)
    yield Beat(last + 1, {source.topic: [len(times)]})


def _schedule(
    source: Input, timelines: dict[str, Timeline], last: int
) -> Iterator[tuple[Pipeline, Due]]:
    found = []
    for p in source.pipelines:
        end = p.windows.settled(last)
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
    final = due.index == p.windows.triggers(due.window)
    trigger = Trigger(
        due.scheduled, {source.topic: [cut]}, p.name, timeline.ordinal + 1, due.window, due.index,
        final, due.scheduled, epoch, charge.seq, charge.hash(), p.config_hash, "simulation",
        "", ledger.epochs(p.name), *limits(p),
    )  # fmt: skip
    timeline.apply(trigger)
    return trigger
