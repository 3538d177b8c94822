"""Everything that the live page knows: ledger, releases, and the words about them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...agents.clock.ledger import Ledger
from ...errors import EngineError, LedgerError
from ...formats.events.decode import RawRecord
from ...topics.assembly import Assembly
from ...topics.config.access.clients import librdkafka_options
from ...topics.config.model import Kafka
from ...topics.names import ledger_topic
from ...topics.releases import Manifest, Row, decode_public
from ..schemas import Schemas
from .budget import local, spent
from .declared import MILLI, Declared, declared
from .health import Evidence, health
from .history import History
from .tail import Tail
from .views import Wish, view

Decode = Callable[[RawRecord], Row | Manifest | None]

MOST_WINDOWS = 1_000  # listed in a summary
MOST_RELEASES = 2_000  # listed for the newest window
MOST_EARLIER = 50  # listed for each other window
PULSE_SECONDS = 2.0
ANSWER_SECONDS = 4.0


@dataclass
class Watched:
    """One pipeline, followed."""

    pipeline: Declared  # as declared
    # guards all other fields
    lock: threading.Lock = field(default_factory=threading.Lock)
    history: History = field(default_factory=History)  # its releases
    # records of incomplete releases
    assembly: Assembly = field(default_factory=lambda: Assembly(""))
    damaged: int = 0  # records that could not be decoded
    tail: Tail | None = None  # the thread that reads its topic
    # turns a record into a row or a manifest
    decode: Decode = lambda record: decode_public(record.headers, record.value)

    def begin(self) -> None:
        """Take records from the start of the topic again; known releases stay."""
        with self.lock:
            self.assembly, self.damaged = Assembly(self.pipeline.name), 0

    def take(self, records: list[RawRecord]) -> bool:
        """Take records of the topic; return whether a release has become complete."""
        before = self.history.version
        with self.lock:
            for record in records:
                try:
                    release = self.assembly.take(self.decode(record))
                except EngineError:
                    self.damaged += 1
                    continue
                if release is not None:
                    self.history.add(release)
        return self.history.version != before

    def evidence(self, refused: Collection[int], until: int | None = None) -> Evidence:
        """Collect the facts about the pipeline's health.

        Args:
            until: end of a retired pipeline, microseconds since 1970; None: it goes on.
        """
        last = self.history.last
        return Evidence(
            read=self.tail is None or self.tail.caught_up.is_set(),
            last=None if last is None else last * MILLI,
            incomplete=self.assembly.incomplete,
            damaged=self.damaged,
            refused=tuple(sorted(refused)),
            silent=self.tail.trouble if self.tail is not None else "",
            until=until,
        )


class Board:
    """Follower of a deployment.

    ``only`` names the pipelines to show (empty: all), ``windows`` is the number of newest windows
    to read, and ``options`` are further options of librdkafka, which win.
    """

    def __init__(
        self,
        kafka: Kafka,
        deployment: str,
        only: Collection[str] = (),
        windows: int = 60,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._kafka, self._name, self._only = kafka, deployment, frozenset(only)
        self._windows, self._options = windows, dict(options or {})
        self._changed = threading.Condition()
        self._version = 0
        self._ended = threading.Event()
        self._panels: dict[str, Watched] = {}
        self._ledger = Ledger()
        self._trouble = ""
        self._answers: bool | None = None
        self._since = _now()
        topic = ledger_topic(deployment)
        self._tail = Tail(
            kafka, topic, self._begin_ledger, self._take_ledger, None, self._options,
            role="verifier",
        )  # fmt: skip

    def start(self) -> None:
        """Start following, in separate threads."""
        self._tail.start()
        threading.Thread(target=self._pulse, name="pulse", daemon=True).start()

    def end(self) -> None:
        """Let all threads end."""
        self._ended.set()
        self._tail.end()
        for panel in list(self._panels.values()):
            if panel.tail is not None:
                panel.tail.end()
        self._say()

    @property
    def ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended.is_set()

    def wait(self, version: int, patience: float) -> int:
        """Wait at most ``patience`` seconds for another version than this one; return it."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self.ended, patience)
            return self._version

    def _say(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def _pulse(self) -> None:
        """Notice when Kafka goes away and when it is back."""
        admin = AdminClient(librdkafka_options(self._kafka) | self._options)
        while not self._ended.wait(PULSE_SECONDS if self._answers is not None else 0):
            try:
                admin.list_topics(ledger_topic(self._name), timeout=ANSWER_SECONDS)
                answers = True
            except KafkaException:
                answers = False
            if answers is not self._answers:
                self._answers, self._since = answers, _now()
                self._say()

    def _begin_ledger(self) -> None:
        self._reading = Ledger()

    def _take_ledger(self, records: list[RawRecord]) -> None:
        try:
            for record in records:
                self._reading.take(record.value or b"")
            found = declared(self._reading)
            self._trouble = ""
        except LedgerError as error:
            self._trouble = str(error)
            self._say()
            raise EngineError(str(error)) from error  # starts over: it may be mended
        self._ledger = self._reading
        for name, pipeline in found.items():
            if name not in self._panels and (not self._only or name in self._only):
                self._open(pipeline)
        self._say()

    def _open(self, pipeline: Declared) -> None:
        schemas = Schemas(self._kafka, pipeline.topic, self._options)
        panel = Watched(pipeline, decode=schemas.decode)

        def take(records: list[RawRecord]) -> None:
            if panel.take(records) or not records:
                self._say()

        span = pipeline.windows.length * self._windows
        until = self._ledger.retired.get(pipeline.name, {}).get("until")
        end = None if until is None else until + pipeline.windows.lateness
        panel.tail = Tail(self._kafka, pipeline.topic, panel.begin, take, span, self._options, end)
        self._panels[pipeline.name] = panel
        panel.tail.start()

    @property
    def deployment(self) -> str:
        """Name of the deployment."""
        return self._name

    @property
    def names(self) -> list[str]:
        """Names of the pipelines that are shown."""
        return list(self._panels)

    def summary(self) -> dict[str, Any]:
        """Everything but values, as a JSON object; times in milliseconds since 1970."""
        now = _now()
        return {
            "now": now,
            "deployment": self._name,
            "link": self._link(),
            "pipelines": [self._told(panel, now) for panel in list(self._panels.values())],
        }

    def _link(self) -> dict[str, Any]:
        """State of the connection, in words; ``read``: whether the ledger was read to its end."""
        body = {"good": False, "read": False, "since": self._since}
        if self._answers is None:
            return body | {"words": "Connecting to Kafka."}
        if not self._answers:
            words = "Kafka does not answer. What was read before is shown."
            return body | {"words": words}
        if self._trouble:
            return body | {"words": f"The ledger cannot be trusted: {self._trouble}."}
        if self._tail.trouble:
            words = f"The ledger {ledger_topic(self._name)} cannot be read: {self._tail.trouble}."
            return body | {"words": words}
        if not self._tail.caught_up.is_set():
            return body | {"words": "Reading the ledger."}
        body["read"] = True
        missing = ", ".join(sorted(self._only - set(self._panels)))
        if missing:
            known = ", ".join(self._ledger.pipelines) or "none"
            return body | {"words": f"The ledger has no pipeline {missing}; it has {known}."}
        if not self._panels:
            return body | {"words": "The ledger has no pipeline yet."}
        return body | {"good": True, "words": "Connected; new releases appear by themselves."}

    def _told(self, panel: Watched, now: int) -> dict[str, Any]:
        p, ledger = panel.pipeline, self._ledger
        refused = [epoch for name, epoch in ledger.refused if name == p.name]
        until = ledger.retired.get(p.name, {}).get("until")
        with panel.lock:
            newest = panel.history.newest
            limit = None if newest is None else newest.told.privacy.pipeline_epsilon_limit
            return {
                "name": p.name, "mechanism": p.mechanism, "form": p.shows, "unit": p.unit,
                "measured": p.measured, "local": local(ledger, p),
                "version": panel.history.version,
                "health": health(p, panel.evidence(refused, until), now * MILLI),
                "budget": spent(ledger, p, limit),
                "windows": listed(panel.history.windows()),
            }  # fmt: skip

    def view(self, name: str, asked: Wish) -> dict[str, Any] | None:
        """Make the view of one pipeline; None if there is none of that name.

        Raises:
            ParameterError: there is no such value.
        """
        panel = self._panels.get(name)
        if panel is None:
            return None
        with panel.lock:
            return {"name": name, "version": panel.history.version} | view(
                panel.pipeline, panel.history, asked
            )


def listed(windows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest windows, each with its newest releases: every viewer gets them at each change.

    >>> [len(one["releases"]) for one in listed([{"releases": range(9_000)}] * 2)]
    [2000, 50]
    """
    most = (MOST_EARLIER if place else MOST_RELEASES for place in range(MOST_WINDOWS))
    return [
        one | {"releases": one["releases"][-number:]}
        for one, number in zip(windows, most, strict=False)
    ]


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
