"""Alarms about mass loss of records, inside the trust boundary.

The number of lost records is a function of raw data, and so is the bare fact that it exceeds a
tenth, which one record can decide. So these alarms never reach the worker's log, which has other
readers. They go to a file in the worker's own folder, beside its tables, and to the operator's
metrics.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

LEAST = 100  # records below which a share is not judged
REPEAT_SECONDS = 600.0
FILE_BYTES = 1 << 20

CAUSES: Mapping[str, str] = {
    "dead": "could not be used and are dead letters: the dead-letter topic says why",
    "misplaced": (
        "came in another partition than the input's partitioner says and are dead letters: "
        'kcat and librdkafka use "crc32" by default (consistent_random), Java clients "murmur2"; '
        "records without a key have no place at all"
    ),
    "late": (
        "were late or from the far future, or their epoch was refused, and do not count: look at "
        "the producers' clocks, the unit of the time field, lateness and the budget's limit"
    ),
    "cut": (
        "were more than their unit may contribute and were cut off: `hush plan --sample` with "
        "public or synthetic data shows what another bound would keep"
    ),
}

Counts = Mapping[tuple[str, str], int]


class LossWatch:
    """Watches shares of lost records by pipeline and cause.

    Args:
        share: share of lost records above which an alarm is raised; 0: never.
        path: path of the file; its older half is dropped when it exceeds a mebibyte.
        show: called with pipeline, cause and whether there is an alarm; for the operator's metrics.
    """

    def __init__(self, share: Fraction, path: Path, show: Callable[[str, str, bool], None]) -> None:
        self._share = share
        self._path = path
        self._show = show
        self._counts: Counter[tuple[str, str]] = Counter()
        self._told: dict[tuple[str, str], float] = {}
        self._raised: set[tuple[str, str]] = set()
        self._active: set[str] = set()  # pipelines with records since the last look

    def count(self, counts: Counts) -> None:
        """Add the counts of one committed step."""
        if self._share:
            self._counts.update(counts)
            self._active.update(pipeline for pipeline, _ in counts)

    def look(self) -> None:
        """Compare the shares since the last look; fewer than `LEAST` records wait for the next.

        Where no record has come, nothing is lost any more.
        """
        for pipeline, cause in [one for one in self._raised if one[0] not in self._active]:
            self._judge(pipeline, cause, False)
        self._active.clear()
        for name in {pipeline for pipeline, _ in self._counts}:
            mine = {what: n for (pipeline, what), n in self._counts.items() if pipeline == name}
            shares = _shares(mine)
            for cause, (lost, total) in shares.items():
                if total >= LEAST:
                    self._judge(name, cause, lost > self._share * total)
            if any(total >= LEAST for _, total in shares.values()):
                for what in mine:
                    del self._counts[name, what]

    def _judge(self, pipeline: str, cause: str, alarm: bool) -> None:
        self._show(pipeline, cause, alarm)
        place, now = (pipeline, cause), time.monotonic()
        (self._raised.add if alarm else self._raised.discard)(place)
        if alarm and now - self._told.get(place, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._told[place] = now
            share = f"{float(self._share):.3g}"
            with contextlib.suppress(OSError):  # the part that cannot go on reports a full disk
                self._write(
                    f"pipeline {pipeline}: more than {share} of its records {CAUSES[cause]}"
                )

    def _write(self, text: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        if self._path.exists() and self._path.stat().st_size > FILE_BYTES:
            kept = self._path.read_bytes()[-FILE_BYTES // 2 :]
            self._path.write_bytes(kept[kept.find(b"\n") + 1 :])
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(opened, "a") as file:
            file.write(f"{moment} WARNING {text}\n")


def _shares(counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Count lost records and all records, by cause."""
    dead = sum(n for what, n in counts.items() if what.startswith("invalid:"))
    misplaced = counts.get("invalid:wrong_partition", 0)
    late = counts.get("late", 0) + counts.get("future", 0)
    # A pipeline has one of the two: records that ingest shards sent on, or that they bounded.
    good = counts.get("routed", 0) or counts.get("seen", 0)
    total = dead + late + good
    found = {
        "dead": (dead - misplaced, total),
        "misplaced": (misplaced, total),
        "late": (late, total),
    }
    if "accepted" in counts:
        seen = counts.get("seen", 0)
        found["cut"] = (max(seen - counts["accepted"], 0), seen)
    return found
