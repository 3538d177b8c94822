"""The demo: a complete deployment, three pipelines and their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...agents.clock.genesis import read_ledger
from ...agents.deployment.model import Pipeline
from ...agents.kafka.cluster import Cluster
from ...errors import EngineError
from ...formats.events.keys import decode_key
from ...topics.config.load import Config
from ...topics.frames import CellsFrame, decode
from ...topics.names import Names
from ...topics.records import TriggerRequest, encode
from .plot import draw
from .report import Result, Show
from .site import Site
from .watch import Watch
from .workload import START, Event, Replay, clicks, trips

PATIENCE = 180.0  # seconds without progress: a first start compiles loops
AHEAD = 12  # triggers that may be in flight


def run(site: Site, users: int, workers: int, picture: Path, console: Console) -> None:
    """Start everything, replay the streams, wait for the releases and show them.

    Raises:
        EngineError, BrokerError: a process failed; the message holds the end of its log.
    """
    began = time.monotonic()
    show = Show(console)
    if not site.bootstrap:
        console.print("Starting Apache Kafka on the loopback interface; the first run fetches it.")
    site.start_broker()
    show.step(f"Apache Kafka is running at {site.bootstrap}", began)
    config, deployment, names = site.create_topics()
    show.step(f"{len(site.topics)} topics created, ledger begun", began)
    site.start_workers(workers)
    with console.status("preparing the two streams"):
        streams = [trips(), clicks(users)]
    show.step(f"{workers} worker{'s' * (workers > 1)} started", began)
    watch = Watch(config, deployment, names)
    try:
        _Player(site, config, names, watch, streams, console).play()
    finally:
        watch.close()
    show.step("replayed and released", began)
    cluster = Cluster(config.kafka)
    pipelines = sorted(deployment.pipelines, key=lambda p: p.number)
    results = [_result(cluster, names, p, streams, watch) for p in pipelines]
    for result in results:
        show.table(result)
    show.budget(read_ledger(cluster, deployment.name), results)
    show.operator(results)
    draw(results, picture)
    if site.keep:
        site.serve_page()
    show.ending(picture, results, site, time.monotonic() - began)


class _Player:
    """Producer of the streams up to each trigger time, followed by a request for the trigger."""

    def __init__(
        self,
        site: Site,
        config: Config,
        names: Names,
        watch: Watch,
        streams: list[Replay],
        console: Console,
    ) -> None:
        self._site = site
        self._names = names
        self._watch = watch
        self._streams = streams
        # Clicks are keyed by user and partitioned as Java clients do; trips have no key.
        self._producer = Cluster(config.kafka).producer(
            **{
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._bars = Progress(
            TextColumn("  {task.description:<18}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._sent = {
            s.topic: self._bars.add_task(f"{s.topic} replayed", total=s.size) for s in streams
        }
        self._done = {
            name: self._bars.add_task(f"{name} released", total=len(s.parts))
            for s in streams
            for name in s.pipelines
        }

    def play(self) -> None:
        """Replay everything; every trigger follows the records of its day or hour."""
        with self._bars:
            for step in range(max(len(s.parts) for s in self._streams)):
                live = [s for s in self._streams if step < len(s.parts)]
                for stream in live:
                    self._produce(stream, stream.parts[step])
                self._producer.flush()
                for stream in live:
                    self._request(stream, START + (step + 1) * stream.step)
                self._until(partial(self._fired, live, step))
            self._until(self._all_released)

    def _produce(self, stream: Replay, events: list[Event]) -> None:
        produce, topic = self._producer.produce, stream.topic
        for event in events:
            produce(topic, event.value, event.key)
        self._producer.poll(0)
        self._bars.advance(self._sent[stream.topic], len(events))

    def _request(self, stream: Replay, at: int) -> None:
        request = TriggerRequest(f"demo-{stream.topic}-{at}", at, list(stream.pipelines))
        self._producer.produce(self._names.requests, encode(request), partition=0)
        self._producer.flush()

    def _fired(self, live: list[Replay], step: int) -> bool:
        """Whether the clock has cut, so that later records belong to the next trigger.

        Releases may lag a little: that keeps workers busy, and the bars move together.
        """
        return all(
            self._watch.seen[name].scheduled >= START + (step + 1) * stream.step
            and len(self._watch.seen[name].released) >= step - AHEAD
            for stream in live
            for name in stream.pipelines
        )

    def _all_released(self) -> bool:
        return all(
            len(self._watch.seen[name].released) >= len(stream.parts)
            for stream in self._streams
            for name in stream.pipelines
        )

    def _until(self, reached: Callable[[], bool]) -> None:
        moved, before = time.monotonic(), self._state()
        while not reached():
            self._site.check()
            self._watch.poll(0.05)
            for name, task in self._done.items():
                self._bars.update(task, completed=len(self._watch.seen[name].released))
            if (state := self._state()) != before:
                moved, before = time.monotonic(), state
            if time.monotonic() - moved > PATIENCE:
                raise EngineError(f"no progress for {PATIENCE:.0f} s; giving up")
        for name, task in self._done.items():
            self._bars.update(task, completed=len(self._watch.seen[name].released))

    def _state(self) -> list[tuple[int, int]]:
        return [(s.triggers, len(s.released)) for s in self._watch.seen.values()]


def _result(
    cluster: Cluster, names: Names, p: Pipeline, streams: list[Replay], watch: Watch
) -> Result:
    """The last release that closed a window, with the true and the accepted counts."""
    seen = watch.seen[p.name]
    place = seen.finals[-1] if seen.finals else seen.released[-1]
    moment = np.datetime64(place[0].removesuffix("Z"), "us").astype(np.int64)
    window = p.windows.window(int(moment))
    (stream,) = (s for s in streams if p.name in s.pipelines)
    truth = stream.truth[p.name].get(window, {})
    listed = None if p.public_keys is None else {_shown(k) for k in p.public_keys}
    return Result(
        p,
        place,
        seen,
        {k: n for k, n in truth.items() if listed is None or k in listed},
        _kept(cluster, names, p, window),
        stream.size,
    )


def _kept(cluster: Cluster, names: Names, p: Pipeline, window: int) -> dict[str, int]:
    """Exact records per key that the contribution bound accepted, from the internal cells log."""
    kept: dict[str, int] = {}
    for partition in range(p.cells_partitions):
        for message in cluster.read(*names.place(names.cells(p.name), partition)):
            frame = decode(message.value())
            if isinstance(frame, CellsFrame) and frame.window == window:
                counts = frame.part.sums[:, 0].tolist()
                for key, number in zip(frame.part.key.tolist(), counts, strict=True):
                    shown = _shown(key)
                    kept[shown] = kept.get(shown, 0) + number
    return kept


def _shown(key: bytes) -> str:
    parts: tuple[Any, ...] = tuple(decode_key(key))
    return " / ".join(str(part) for part in parts)
