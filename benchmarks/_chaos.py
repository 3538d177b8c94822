"""Faults at random points of a running deployment: processes die, sleep, come and go."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from _cluster import PATIENCE, Local
from _unwell import STALL, TOLD, Watch
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hushstream.agents.state.folders import discard
from hushstream.errors import OutageError

SESSION = 3.0
LAST = 3_000  # last lines of a log, which must say why a worker ended
SLOW = 600.0  # seconds: other load on the machine may slow everything down
BROKER = {"group.min.session.timeout.ms": "1000"}

# Dealt like cards: each kind occurs this often in as many points as there are cards.
KINDS = {"kill": 3, "wipe": 3, "pause": 3, "clock": 3, "add": 1, "remove": 1, "broker": 1}


class Brokers(Protocol):
    """One broker or several, to kill and start."""

    def start(self, timeout: float) -> Any: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Told:
    """The end of a worker that a fault intends: an exit code, and a line that says why.

    Attributes:
        kind: the fault.
        line: pattern that one of the worker's last lines must match.
        mend: an operator's action before the worker is started again.
    """

    kind: str
    line: str
    mend: Callable[[], Any] = lambda: None


@dataclass
class Monkey:
    """Injects faults, and brings back a little later whatever it took down.

    Attributes:
        kinds: number of cards of each kind of fault in the deck.
        counts: faults so far, by kind.
        stopped: workers that ended as their fault intended, by kind.
        died: workers that ended unexpectedly, with the end of their log.
        unwell: workers that were restarted because they were no longer live, with the reason.
        gap: seconds between two faults, on average.
        names: number of workers so far.
        removed: workers that were removed; they are the first to be added again.
        meanwhile: called every now and then.
    """

    local: Local
    broker: Brokers
    random: random.Random
    kinds: Mapping[str, int] = field(default_factory=lambda: KINDS)
    counts: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    died: list[str] = field(default_factory=list)
    unwell: list[str] = field(default_factory=list)
    gap: float = 1.9
    names: int = 0
    removed: list[str] = field(default_factory=list)
    meanwhile: Callable[[], Any] = lambda: None
    _later: list[tuple[float, Callable[[], Any]]] = field(default_factory=list)
    _deck: list[str] = field(default_factory=list)
    _stopped: set[str] = field(default_factory=set)
    _told: dict[str, Told] = field(default_factory=dict)
    _failed: Counter[str] = field(default_factory=Counter)
    _watch: Watch = field(default_factory=Watch)

    def begin(self, workers: int) -> None:
        """Start the first workers, or those of the last piece, and wait until they serve."""
        self.local.environ = self._watch.began
        self.local.settings["engine.stall_timeout"] = f"{STALL:g}s"
        names = [f"w{n + 1}" for n in range(self.names)]
        names = [name for name in names if name not in self.removed]
        for name in names:
            self._start(name)
        names += [self._fresh() for _ in range(workers - len(names))]
        self.local.wait_ready(names, SLOW)

    def point(self) -> str:
        """One fault at a random moment."""
        self._pass(self.gap * self.random.uniform(0.15, 1.85))
        if not self._deck:
            deck = sum(self.kinds.values())
            self._deck = self.random.sample([*self.kinds], counts=[*self.kinds.values()], k=deck)
        kind = self._deck.pop()
        self.inject(kind)
        self.counts[kind] += 1
        return kind

    def inject(self, kind: str) -> None:
        """One fault of that kind."""
        getattr(self, f"_{kind}")()

    def settle(self) -> None:
        """Let everything come back."""
        while self._later:
            self._pass(0.2)
        while len(self.local.workers) < 2:
            self._fresh()

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            due = [action for at, action in self._later if at <= now]
            self._later = [(at, action) for at, action in self._later if at > now]
            for action in due:
                action()
            self._look()
            self.meanwhile()
            if now >= until:
                return
            time.sleep(0.05)

    def look(self) -> None:
        """Restart whatever has ended, and note it."""
        self._pass(0)

    def leave(self) -> None:
        """Stop all workers cleanly, as soon as they are up; the next piece starts them again."""
        until = time.monotonic() + SLOW
        while self.local.starting() and time.monotonic() < until:
            self._pass(0.5)
        for name in sorted(self.local.workers):
            self._clean(name)

    def _clean(self, name: str, timeout: float = PATIENCE) -> None:
        """Stop a worker; if it does not end cleanly, note it."""
        code = self.local.stop(name, timeout)
        if code != 0:
            self.died.append(f"worker {name} was stopped and ended with {code}")

    def close(self) -> None:
        """Stop watching; call it after the workers have ended."""
        self._watch.close()

    def _look(self) -> None:
        for name, child in list(self.local.workers.items()):
            if name in self._stopped:
                self._watch.excuse(name)
            elif child.returncode is None and self._watch.unwell(name):
                self._restart(name)
            elif child.returncode is not None:
                self._ended(name, child.returncode)
                del self.local.workers[name]
                self._start(name)

    def _restart(self, name: str) -> None:
        """Restart a worker that is no longer live."""
        lines = self.local.log(name).read_text(errors="replace").splitlines()
        told = [line for line in lines if TOLD in line][-3:]
        self.unwell.append(f"worker {name}: {'; '.join(told) or 'it said nothing'}")
        self.local.kill(name)
        self._start(name)

    def _ended(self, name: str, code: int) -> None:
        """Handle a worker's end: a fault intended it and its log says why, or it died."""
        said, told = self.local.errors(name), self._told.pop(name, None)
        last = self.local.tail(name, LAST)
        if told is not None and code == 4 and re.search(told.line, last):
            self.stopped[told.kind] += 1
        else:
            wanted = f" after {told.kind}" if told else ""
            self.died.append(f"worker {name} ended with {code}{wanted}:\n{said}")
            self._failed[name] += 1
            if self._failed[name] > 1:  # a bad folder blocks all else
                discard(self.local.data(name))
        if told is not None:
            told.mend()

    def _fresh(self) -> str:
        if self.removed:
            name = self.removed.pop(0)
        else:
            self.names += 1
            name = f"w{self.names}"
        self._start(name)
        return name

    def _start(self, name: str) -> None:
        if name not in self.local.workers:
            self.local.start(name)

    def _soon(self, least: float, most: float, action: Callable[[], Any]) -> None:
        self._later.append((time.monotonic() + self.random.uniform(least, most), action))

    def _victim(self) -> str:
        running = sorted(set(self.local.workers) - self._stopped)
        return self.random.choice(running) if running else self._fresh()

    def _kill(self) -> None:
        name = self._victim()
        self.local.kill(name)
        self._soon(0, 4, lambda: self._start(name))

    def _wipe(self) -> None:
        name = self._victim()
        self.local.kill(name)
        discard(self.local.data(name))
        self._soon(0, 4, lambda: self._start(name))

    def _pause(self, name: str | None = None) -> None:
        name = name or self._victim()
        self.local.workers[name].send(signal.SIGSTOP)
        self._stopped.add(name)
        self._soon(SESSION + 0.5, SESSION + 4, lambda: self._resume(name))

    def _resume(self, name: str) -> None:
        self._stopped.discard(name)
        if name in self.local.workers:
            self.local.workers[name].send(signal.SIGCONT)

    def _clock(self) -> None:
        """Take the clock from its owner, who dies or sleeps."""
        owner = self._owner()
        if owner is None or owner in self._stopped:
            self._kill()
        elif self.random.random() < 0.5:
            self._pause(owner)
        else:
            self.local.kill(owner)
            self._soon(0, 4, lambda: self._start(owner))

    def _owner(self) -> str | None:
        client = AdminClient({"bootstrap.servers": self.local.bootstrap, "log_level": 0})
        with contextlib.suppress(KafkaException, OutageError):
            names = self.local.names
            group = client.describe_consumer_groups([names.group])[names.group].result(10)
            for member in group.members:
                assigned = member.assignment.topic_partitions if member.assignment else []
                if any(tp.topic == names.clock for tp in assigned):
                    owner = member.group_instance_id
                    return owner if owner in self.local.workers else None
        return None

    def _add(self) -> None:
        self._fresh() if len(self.local.workers) < 4 else self._kill()

    def _remove(self) -> None:
        running = sorted(set(self.local.workers) - self._stopped)
        if len(running) < 2:
            self._fresh()
            return
        name = self.random.choice(running)
        self.local.stop(name)
        self.removed.append(name)

    def _broker(self) -> None:
        self.broker.kill()
        self._pass(self.random.uniform(0, 3))
        self.broker.start(SLOW)
