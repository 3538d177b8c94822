"""Harsher faults: outages, clocks that jump, full disks, damaged and old tables, storms, floods."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from _chaos import SESSION, SLOW, Monkey, Told
from _flooding import FLOODS, ORIGIN, feed, share
from _load import PARTITIONS
from _trio import NODES, Trio
from confluent_kafka.admin import AdminClient
from hushstream.agents.state.folders import discard

DISK = 1 << 30  # bytes of each worker's RAM disk
OUTAGE = (1.0, 120.0)  # seconds, log-uniform
START = 45.0  # seconds for a worker to become ready
KEPT = 8  # copies of tables
KEPT_DISK = ".disk"  # ending of a folder that is being moved to or from a separate disk
FLOOD = 24_000  # keys of a flood, about 10 MB for each aggregate shard
HARSH = {
    "kill": 3, "wipe": 2, "pause": 2, "clock": 2, "add": 1, "remove": 1, "broker": 1, "outage": 1,
    "freeze": 1, "jump": 3, "full": 2, "corrupt": 3, "old": 3, "rolling": 1, "storm": 2,
    "flood": 2,
}  # fmt: skip
LEADERS = {"leader": 6}
AHEAD = r"ahead of the broker|behind the broker"


@dataclass
class Harsh(Monkey):
    """Adds faults of machines and operators to those of processes.

    Attributes:
        longest: longest outage of the broker in seconds.
        mounts: folders that are separate disks.
        effects: counts of what was damaged, put back or flooded.
        now: event time of the load, microseconds.
    """

    longest: float = OUTAGE[1]
    mounts: list[Path] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    now: Callable[[], int] = lambda: ORIGIN
    _before: dict[str, int] = field(default_factory=dict)
    _copies: list[Path] = field(default_factory=list)
    _shifts: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def begin(self, workers: int) -> None:
        """Build the library that shifts clocks, then begin as usual."""
        library = self.local.folder / "shift.so"
        source = Path(__file__).with_name("_shift.c")
        if "jump" in self.kinds:
            subprocess.run(
                ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
            )
            self.local.prefix = lambda member: self._shifted(library, member)
        for file in self.local.folder.glob("*.shift"):  # of a piece that was killed
            file.unlink()
        self._copies = sorted((self.local.folder / "copies").glob("*"), key=lambda c: int(c.name))
        self._count = int(self._copies[-1].name) if self._copies else 0
        super().begin(workers)

    def settle(self) -> None:
        """Correct the clocks, and let everything come back."""
        super().settle()
        for member in self._shifts:
            self._shift(member, 0)

    def leave(self) -> None:
        """Stop all workers; move their tables from the separate disks to this one."""
        super().leave()
        for place in self.mounts:
            kept = place.with_name(f"{place.name}{KEPT_DISK}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(place, kept)
            subprocess.run(["umount", "-l", place], check=True)
            place.rmdir()
            kept.rename(place)
        self.mounts.clear()

    def close(self) -> None:
        """Unmount the disks, and stop watching."""
        super().close()
        for place in self.mounts:
            subprocess.run(["umount", "-l", place], check=False)

    def _start(self, name: str) -> None:
        if name not in self.local.workers:
            self._before[name] = self._readiness(name)
            if "full" in self.kinds:
                self._mount(self.local.data(name))
        super()._start(name)

    def _readiness(self, name: str) -> int:
        """Number of times a worker has logged that it opened its assignment."""
        log = self.local.log(name)
        return len(re.findall("ready:", log.read_text(errors="replace"))) if log.exists() else 0

    def _victim(self) -> str:
        """A worker, mostly one that is ready, sometimes one that is starting."""
        return super()._victim() if self.random.random() < 0.3 else self._serving()

    def _serving(self) -> str:
        """Wait for a worker that has opened its tables; a busy machine takes a while."""
        until = time.monotonic() + START
        while time.monotonic() < until:
            running = sorted(set(self.local.workers) - self._stopped)
            if ready := [n for n in running if self._readiness(n) > self._before[n]]:
                return self.random.choice(ready)
            self._pass(0.5)
        return super()._victim()

    def _mount(self, place: Path) -> None:
        """Mount a separate disk for a worker, with the tables that the last piece left."""
        if place in self.mounts:
            return
        self.mounts.append(place)
        place.mkdir(parents=True, exist_ok=True)
        if place.is_mount():  # of a piece that was killed
            return
        kept = place.with_name(f"{place.name}{KEPT_DISK}")
        if not kept.exists():
            place.rename(kept)
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", place]
        subprocess.run(command, check=True)
        shutil.copytree(kept, place, dirs_exist_ok=True)
        shutil.rmtree(kept)

    # -- clocks -------------------------------------------------------------------------------

    def _shifted(self, library: Path, member: str) -> list[str]:
        file = self._shifts.setdefault(member, self.local.folder / f"{member}.shift")
        if not file.exists():
            self._shift(member, 0)
        return ["/usr/bin/env", f"LD_PRELOAD={library}", f"CLOCK_SHIFT={file}"]

    def _shift(self, member: str, seconds: float) -> None:
        file = self._shifts[member]
        with file.open("r+b" if file.exists() else "wb") as place:
            place.write(struct.pack("q", int(seconds * 1e6)))

    def _jump(self) -> None:
        """Set a wall clock forwards or back, and correct it a little later."""
        name = self._serving()
        size = math.exp(self.random.uniform(math.log(1), math.log(7200)))
        self._shift(name, size * self.random.choice([-1, 1]))
        self._told[name] = Told("jump", AHEAD, lambda: self._shift(name, 0))
        self._soon(2, 20, lambda: self._shift(name, 0))
        self._forget(name)

    # -- brokers ------------------------------------------------------------------------------

    def _outage(self) -> None:
        """Take all brokers away for a while."""
        seconds = math.exp(self.random.uniform(math.log(OUTAGE[0]), math.log(self.longest)))
        self.broker.kill()
        self._pass(seconds)
        self.broker.start(SLOW)

    def _freeze(self) -> None:
        """Let a broker accept connections without answering."""
        node = self.broker.nodes[self.random.choice(NODES)] if self._three else self.broker
        pid = node.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        self._pass(self.random.uniform(1, 15))
        os.kill(pid, signal.SIGCONT)

    @property
    def _three(self) -> bool:
        return isinstance(self.broker, Trio)

    def _leader(self) -> None:
        """Kill the leader of some partition; the others go on without it."""
        client = AdminClient({"bootstrap.servers": self.local.bootstrap, "log_level": 0})
        topics = client.list_topics(timeout=20).topics
        name = self.random.choice(sorted(topics))
        leader = self.random.choice(sorted(p.leader for p in topics[name].partitions.values()))
        assert isinstance(self.broker, Trio)
        self.broker.kill(leader if leader in NODES else self.random.choice(NODES))
        self._pass(self.random.uniform(1, 15))
        self.broker.start(SLOW)
        self._pass(5)  # otherwise two of three would be behind at the next fault

    # -- disks and tables ---------------------------------------------------------------------

    def _full(self) -> None:
        """Fill a worker's disk for a while; half of the time the worker starts on the full disk."""
        name = self._serving()
        if starts := self.random.random() < 0.5:
            self.local.kill(name)
            self._again(name)
        filler = self.local.data(name) / "filler"
        with filler.open("wb") as file:
            for megabytes in range(64):  # the worker writes meanwhile
                disk = os.statvfs(filler)
                with contextlib.suppress(OSError):
                    left = disk.f_bavail * disk.f_frsize - (megabytes << 20)
                    os.posix_fallocate(file.fileno(), 0, left)
                    break

        def mend() -> None:
            filler.unlink(missing_ok=True)

        self._told[name] = Told("full", r"(?i)no space left|disk", mend)
        self._soon(*((15, 25) if starts else (3, 12)), mend)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Stop attributing a worker's end to the fault after a minute."""
        told = self._told[name]

        def forget() -> None:
            if self._told.get(name) is told:  # unless a later fault expects another end
                del self._told[name]

        self._soon(60, 60, forget)

    def _corrupt(self) -> None:
        """Crash a worker and damage its files: flip bits, or cut off an end."""
        name = self._crashed()
        kinds = ("*.sst", "*.log", "MANIFEST-*", "CURRENT")
        files = sorted(f for kind in kinds for f in self.local.data(name).rglob(kind))
        for file in self.random.sample(files, min(len(files), self.random.randint(1, 4))):
            self._damage(file)
            self.effects["damaged files"] += 1
        self._again(name)

    def _damage(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        if not data or self.random.random() < 0.4:
            file.write_bytes(data[: self.random.randint(0, len(data))])
            return
        for _ in range(self.random.choice([1, 1, 8, 64])):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        file.write_bytes(data)

    def _old(self) -> None:
        """Put back an earlier copy of a folder of tables, maybe another worker's."""
        name = self._crashed()
        folder = self.local.data(name)
        if self._copies and self.random.random() < 0.7:
            copy = self.random.choice(self._copies)
            discard(folder)
            shutil.copytree(copy, folder, dirs_exist_ok=True)
            self.effects["old folders"] += 1
        self._copy(folder)
        self._again(name)

    def _copy(self, folder: Path) -> None:
        self._count += 1
        copy = self.local.folder / "copies" / str(self._count)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("filler"))
        if len(self._copies) >= KEPT:
            shutil.rmtree(self._copies.pop(0))
        self._copies.append(copy)

    def _crashed(self) -> str:
        name = self._serving()
        self.local.kill(name)
        (self.local.data(name) / "filler").unlink(missing_ok=True)
        return name

    def _again(self, name: str) -> None:
        self._soon(0, 4, lambda: self._start(name))

    # -- records ------------------------------------------------------------------------------

    def _flood(self) -> None:
        """Write hostile records, enough to split steps by bytes."""
        name = self.random.choice(sorted(FLOODS))
        flood = FLOODS[name](share(name, FLOOD), self.now())
        here = (one for one in flood if one.topic in self.local.raw)
        with contextlib.suppress(AssertionError):  # records that an outage kept out do not exist
            feed(self.local, here, PARTITIONS, self.look, idle=1)
        self.effects[f"floods of {name}"] += 1

    # -- many at once -------------------------------------------------------------------------

    def _rolling(self) -> None:
        """Stop every worker cleanly and start it again, one after the other."""
        for name in sorted(set(self.local.workers) - self._stopped):
            if name not in self.local.workers or self._readiness(name) == self._before[name]:
                continue  # it is gone, or not up yet
            self._clean(name, 60)
            before = self._readiness(name)
            self._start(name)
            until = time.monotonic() + 20
            while self._readiness(name) == before and time.monotonic() < until:
                self._pass(0.3)

    def _storm(self) -> None:
        """Kill all workers at once, half of the time with the broker; some lose their tables."""
        with_broker = self.random.random() < 0.5
        for name in sorted(self.local.workers):
            self._stopped.discard(name)
            self.local.kill(name)
            if self.random.random() < 0.3:
                discard(self.local.data(name))
            self._again(name)
        if with_broker:
            self.broker.kill()
            self._pass(self.random.uniform(SESSION, 8))
            self.broker.start(SLOW)
