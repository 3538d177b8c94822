"""A public or synthetic file, or a stated shape, as the workload of one pipeline's proposal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..agents.deployment.model import Input, Pipeline
from ..errors import ConfigError
from ..mechanisms.stated_shape import Shape
from ..mechanisms.workload import Sample
from ..topics.config.toml.values import format_duration
from .cut import Cut, SampleRoom, cut, sample
from .records import Records, read_records
from .variants import numbering

WINDOWS = 8  # most windows of a sample, since every candidate is played over all of it


def sample_of(pipeline: Pipeline, source: Input, path: Path) -> Sample:
    """Read the records of a file that a pipeline would use, cut into windows and micro-batches.

    Windows that the file covers only in part are left out if it covers others in full. The file
    must be public or synthetic, because settings tuned on the protected stream leak it. Raises
    `ConfigError` as `read_records` does.
    """
    records = read_records(pipeline, source, pipeline.fields.columns, path)
    found = cut(records, pipeline.windows)
    first = found._replace(numbers=found.numbers[:WINDOWS], rows=found.rows[:WINDOWS])
    keys = pipeline.public_keys or records.keys
    room = SampleRoom(first.records)
    made = sample(records, pipeline.windows, first, room, *numbering(records, keys))
    return made._replace(notes=tuple(_notes(pipeline, records, found)))


def _notes(pipeline: Pipeline, records: Records, found: Cut) -> Iterator[str]:
    """Notes on what was left out or is incomplete."""
    if not records.timed:
        yield "without times of their own, records are spread evenly"
    elif not found.whole:
        span = max(int(records.time[b - 1] - records.time[a]) for a, b in found.rows)
        yield (
            f"it spans at most {format_duration(span // 1_000_000 * 1_000_000)} of a window of "
            f"{pipeline.windows.shown}. Thresholds and noise do not shrink "
            "with a sample: a whole window releases more keys than this, and other settings suit it"
        )
    elif found.left_out:
        yield f"windows that are not covered in full are left out: {found.left_out}"
    if len(found.rows) > WINDOWS:
        yield f"the first {WINDOWS} of {len(found.rows)} windows are played"
    if len(records.time) < records.read:
        unused = records.read - len(records.time)
        yield f"{unused:,} of {records.read:,} records cannot be used"


def shape_sample(p: Pipeline, shape: Shape) -> Sample:
    """Make a sample of a stated shape, with the same records in each window of an epoch.

    Raises `ConfigError` if the pipeline needs more than a shape describes.
    """
    if p.traits.pairs:
        raise ConfigError(
            f"pipeline {p.name!r} counts distinct values, which a shape does not describe; give a "
            "--sample"
        )
    if p.columns:
        raise ConfigError(
            f"pipeline {p.name!r} sums values, which a shape does not describe; give a --sample"
        )
    if p.public_keys is not None and shape.keys != len(p.public_keys):
        raise ConfigError(
            f"pipeline {p.name!r} has {len(p.public_keys)} public keys, the shape {shape.keys}"
        )
    work = shape.workload()
    if p.windows.calendar is not None:
        edges = np.linspace(0, len(work.unit), p.windows.calendar.usual + 1)
        work = work._replace(ends=tuple(edges[1:].astype(np.int64).tolist()))
    windows = range(min(p.windows.per_epoch, WINDOWS))
    epoch = tuple(work._replace(window=i) for i in windows)
    return Sample((epoch,), shape.users, len(set(work.key.tolist())), shape.records * len(epoch))
