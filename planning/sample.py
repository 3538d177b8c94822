"""A public or synthetic file as the workload of one pipeline, for choosing its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..agents.deployment.model import Input, Pipeline
from ..errors import ConfigError
from ..formats.events.decode import Decoded, Decoder, RawRecord, View
from ..formats.events.types import paths_of
from ..formats.events.unusable import in_words, unusable
from ..mechanisms.columns import I64
from ..mechanisms.stated_shape import Shape
from ..mechanisms.workload import Sample, Workload
from ..offline.simulate import check_columns, read_file
from ..topics.config.schedule import Schedule
from ..topics.config.values import format_duration

WINDOWS = 8  # a longer sample is cut: every candidate is played over all of it
_WHOLE = 0.8


class _Window(NamedTuple):
    number: int
    rows: NDArray[np.intp]  # of the view, in event-time order
    ends: tuple[int, ...] | None


def sample_of(pipeline: Pipeline, source: Input, path: Path) -> Sample:
    """Read the records of a file that a pipeline would use, cut into windows and micro-batches.

    Windows that the file covers only in part are left out if it covers others in full.

    Args:
        pipeline: decides fields, keys and windows.
        source: its input.
        path: of public or synthetic records: settings tuned on the protected stream leak it.

    Raises:
        ConfigError: the file cannot be read, or holds nothing that the pipeline can use.
    """
    rows = read_file(path)
    if not rows:
        raise ConfigError(f"{path}: the file holds no record")
    decoder = Decoder(source.in_json().fields, [pipeline.fields], [pipeline.mechanism])
    decoded = decoder.decode(
        [RawRecord(i, 0, None, json.dumps(row, default=str).encode()) for i, row in enumerate(rows)]
    )
    (view,) = decoded.views
    if not len(view.rows):
        check_columns(replace(source, pipelines=(pipeline,)), rows)
        kinds = paths_of(source.fields, [pipeline.fields])
        most = in_words(unusable(view.bad | decoded.bad, rows, kinds), 4) or "no listed key"
        raise ConfigError(f"{path}: no record that pipeline {pipeline.name!r} can use: {most}")
    timed = source.fields.time_format != "record"
    windows, notes = _windows(pipeline.windows, decoded.time[view.rows], timed)
    if len(view.rows) < len(rows):
        notes.append(f"{len(rows) - len(view.rows):,} of {len(rows):,} records cannot be used")
    epochs = tuple(_epochs(pipeline, windows, decoded, view))
    used = np.concatenate([one.rows for one in windows])
    units = len({decoded.unit[i] for i in view.rows[used].tolist()})
    return Sample(epochs, units, len(np.unique(view.key[used])), len(used), tuple(notes))


def shape_sample(p: Pipeline, shape: Shape) -> Sample:
    """Make a sample of a stated shape; the same records come again in each window of an epoch.

    Raises:
        ConfigError: the pipeline needs more than a shape says.
    """
    if p.fields.columns:
        raise ConfigError(
            f"pipeline {p.name!r} sums values, which a shape does not describe; give a --sample"
        )
    if p.public_keys is not None and shape.keys != len(p.public_keys):
        raise ConfigError(
            f"pipeline {p.name!r} has {len(p.public_keys)} public keys, the shape {shape.keys}"
        )
    work = shape.workload()
    windows = range(min(p.windows.per_epoch, WINDOWS))
    epoch = tuple(work._replace(window=i) for i in windows)
    return Sample((epoch,), shape.users, len(set(work.key.tolist())), shape.records * len(epoch))


def _windows(schedule: Schedule, time: I64, timed: bool) -> tuple[list[_Window], list[str]]:
    """The windows to play, and what was left out or falls short."""
    order = np.argsort(time, kind="stable")
    if not timed:
        return [_Window(0, order, None)], ["without times of their own, records are spread evenly"]
    number = schedule.windows(time[order])
    cuts = np.flatnonzero(np.diff(number)) + 1
    found = [_window(schedule, time, rows) for rows in np.split(order, cuts)]
    spans = [int(np.ptp(time[one.rows])) if len(one.rows) else 0 for one in found]
    whole = [one for one, n in zip(found, spans, strict=True) if n >= _WHOLE * schedule.length]
    notes = []
    if not whole:
        whole, least = found, format_duration(max(spans) // 1_000_000 * 1_000_000)
        length = format_duration(schedule.length)
        notes.append(
            f"it spans at most {least} of a window of {length}. Thresholds and noise do not shrink "
            "with a sample: a whole window releases more keys than this, and other settings suit it"
        )
    elif len(whole) < len(found):
        notes.append(
            f"windows that are not covered in full are left out: {len(found) - len(whole)}"
        )
    if len(whole) > WINDOWS:
        notes.append(f"the first {WINDOWS} of {len(whole)} windows are played")
    return whole[:WINDOWS], notes


def _window(schedule: Schedule, time: I64, rows: NDArray[np.intp]) -> _Window:
    number = schedule.window(int(time[rows[0]]))
    ends = np.searchsorted(time[rows], np.array(schedule.times(number)), side="right")
    return _Window(number, rows, tuple(ends.tolist()))  # the last trigger is the window's end


def _epochs(
    pipeline: Pipeline, windows: list[_Window], decoded: Decoded, view: View
) -> Iterator[tuple[Workload, ...]]:
    place = _numbers(pipeline, view)
    for _, group in groupby(windows, key=lambda one: pipeline.windows.epoch(one.number)):
        mine = list(group)
        units: dict[Any, int] = {}
        numbered = []
        for one in mine:
            rows = view.rows[one.rows].tolist()
            numbered.append([units.setdefault(decoded.unit[i], len(units)) for i in rows])
        yield tuple(
            _workload(pipeline, one, unit, len(units), view, place)
            for one, unit in zip(mine, numbered, strict=True)
        )


def _numbers(pipeline: Pipeline, view: View) -> NDArray[np.int32]:
    """(k,) number of each key; its place in the public list, if there is one."""
    if pipeline.public_keys is None:
        return np.arange(len(view.keys), dtype=np.int32)
    places = {key: i for i, key in enumerate(pipeline.public_keys)}
    return np.array([places[key] for key in view.keys], np.int32)


def _workload(
    pipeline: Pipeline,
    one: _Window,
    unit: list[int],
    users: int,
    view: View,
    place: NDArray[np.int32],
) -> Workload:
    public = pipeline.public_keys
    return Workload(
        np.array(unit, np.int32),
        place[view.key[one.rows]],
        users,
        len(view.keys) if public is None else len(public),
        view.value[one.rows] if pipeline.fields.columns else None,
        view.sign[one.rows],
        one.ends,
        pipeline.windows.ordinal(one.number),
    )
