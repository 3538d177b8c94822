"""Runs in pieces: what a piece leaves for the next one, and measurements over all of them."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
from _chaos import Monkey
from _cluster import Local
from _faults import Harsh
from _growth import growth, logs, tables
from _load import ORIGIN, Load

FILE = "piece.json"
EVERY = 30.0  # seconds between two measurements
MIB = 1 << 20
OPTIONS = ("six", "harsh", "brokers", "network", "rate", "speed", "gap", "longest", "seed")


@dataclass
class Past:
    """A run so far: a JSON file in its folder, replaced as a whole.

    Attributes:
        options: options of the first piece, which hold for all.
        pieces: number of pieces that have begun; each has another seed.
        points: faults.
        now: event time of the load, microseconds.
        sent: records sent.
        workers: workers ``w1``, ``w2``, … so far.
        removed: those of them that do not run.
        counts, stopped, effects, died, unwell: as in `Monkey` and `Harsh`.
        samples: measurements: seconds of the run, then what `Gauge` measures.
        judged: figures of the judgement, after which nothing resumes.
    """

    options: dict[str, Any] = field(default_factory=dict)
    pieces: int = 0
    points: int = 0
    now: int = ORIGIN
    sent: int = 0
    workers: int = 0
    removed: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)
    unwell: list[str] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    judged: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What the last piece in a folder has saved."""
        return cls(**json.loads((folder / FILE).read_bytes()))

    def save(self, folder: Path) -> None:
        """Write it whole or not at all."""
        new = folder / f"{FILE}.new"
        with new.open("w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / FILE)

    def give(self, monkey: Monkey) -> None:
        """Hand the faults so far, and the workers, to a new piece."""
        monkey.names, monkey.removed = self.workers, [*self.removed]
        monkey.counts.update(self.counts)
        monkey.stopped.update(self.stopped)
        monkey.died += self.died
        monkey.unwell += self.unwell
        if isinstance(monkey, Harsh):
            monkey.effects.update(self.effects)

    def take(self, monkey: Monkey, load: Load) -> None:
        """Note how far a piece has come."""
        self.now, self.sent = load.now, load.sent
        self.workers, self.removed = monkey.names, [*monkey.removed]
        self.counts, self.stopped = dict(monkey.counts), dict(monkey.stopped)
        self.died, self.unwell = [*monkey.died], [*monkey.unwell]
        if isinstance(monkey, Harsh):
            self.effects = dict(monkey.effects)

    def figures(self) -> dict[str, Any]:
        """Figures of all pieces, without those of the judgement."""
        names = [name for name in self.samples[0] if name != "at"] if self.samples else []
        at = [sample["at"] for sample in self.samples]
        return {
            "pieces": self.pieces, "points": self.points, "events": self.sent,
            "minutes": round(at[-1] / 60, 1) if at else 0.0,
            "faults": self.counts, "stopped": self.stopped, "effects": self.effects,
            "died": self.died, "unwell": len(self.unwell), "complaints": self.unwell,
            "growth": growth(at, {name: [s[name] for s in self.samples] for name in names}),
        }  # fmt: skip


class Gauge:
    """Measures at even intervals, over all pieces.

    ``rss``, ``files`` and ``state`` are means over the workers that run: MiB of resident memory,
    open files, MiB of tables. ``internal`` and ``topics`` are MiB on all brokers: internal topics,
    and all topics, among them raw records and releases, which are kept for the judgement.

    Args:
        run: the deployment.
        data: folders of the brokers' logs.
        samples: earlier measurements, to which further ones are added.
    """

    def __init__(self, run: Local, data: Sequence[Path], samples: list[dict[str, float]]) -> None:
        self._run, self._data, self._samples = run, data, samples
        self._base = run.names.base
        passed = samples[-1]["at"] + EVERY if samples else 0.0
        self._began = time.monotonic() - passed
        self._due = passed

    def look(self) -> bool:
        """Measure if it is time; returns whether it did."""
        at = time.monotonic() - self._began
        if at < self._due:
            return False
        with suppress(psutil.Error, OSError):  # a worker ended, or a broker deleted a folder
            found = self._measured()
            if found is None:  # no worker runs at the moment
                return False
            self._samples.append({"at": round(at, 1), **found})
            self._due += EVERY * ((at - self._due) // EVERY + 1)
            return True
        return False

    def _measured(self) -> dict[str, float] | None:
        alive = [(n, c) for n, c in self._run.workers.items() if c.returncode is None]
        if not alive:
            return None
        processes = [psutil.Process(child.pid) for _, child in alive]
        sizes = [one for data in self._data for one in logs(data, "").items()]
        found = {
            "rss": sum(p.memory_info().rss for p in processes) / MIB / len(alive),
            "files": sum(p.num_fds() for p in processes) / len(alive),
            "state": sum(tables(self._run.data(n)) for n, _ in alive) / MIB / len(alive),
            "internal": sum(size for topic, size in sizes if topic.startswith(self._base)) / MIB,
            "topics": sum(size for _, size in sizes) / MIB,
        }
        return {name: round(value, 2) for name, value in found.items()}


def begun(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Past:
    """What earlier pieces left, whose options are put in place of the given ones."""
    folder: Path | None = options.keep
    if folder is None:
        if options.pause or options.resume:
            parser.error("--pause and --resume need --keep FOLDER")
        return Past()
    there = (folder / FILE).exists()
    if there and not options.resume:
        parser.error(f"{folder} holds a run: add --resume to go on, or choose another folder")
    if not options.resume:
        return Past({name: getattr(options, name) for name in OPTIONS})
    if not there:
        parser.error(f"{folder} holds no run to resume: {FILE} is missing")
    past = Past.read(folder)
    if past.judged:
        parser.error(f"the run in {folder} was judged: its figures are in {FILE}")
    for name, was in past.options.items():
        if getattr(options, name) not in (was, parser.get_default(name)):
            parser.error(f"the run in {folder} began with --{name} {was}, which cannot change")
        setattr(options, name, was)
    return past


def rotate(folder: Path) -> None:
    """Begin new logs, since some faults search whole logs; those of the last piece are kept."""
    for log in [*folder.glob("*.log"), *folder.glob("broker*/**/broker.log")]:
        log.replace(f"{log}.1")
