"""The steps of a run: each prints what it does, how long it took and what it saw."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..tree import ROOT
from . import image, judge
from .compose import PROJECT, Compose, crash, health, names, taken_ports, until
from .engine import EngineError, docker, inspect
from .standins import lent, make

HERE = Path(__file__).parent
BUILD = 3600.0  # seconds
GRACE = 45.0  # `stop_grace_period` of a worker
ORDER = ("kafka", "raw-topic", "topics", "worker", "prometheus")
PANELS = ROOT / "deploy" / "grafana" / "dashboards" / "releases.json"
RATE = "$__rate_interval"


class Run:
    """One run, from the build to the removal of the last container.

    Args:
        stand_ins: whether to build missing base images from packages.
        keep: whether to keep the image and the stand-ins' names at the end.
        say: called with every line of progress.
    """

    def __init__(self, *, stand_ins: bool, keep: bool, say: Callable[[str], None]) -> None:
        self._stand_ins = stand_ins
        self._keep = keep
        self._say = say
        self._begin = time.monotonic()
        self.seen: list[str] = []

    def go(self) -> None:
        """Do all steps; remove everything, whatever happens.

        Raises:
            EngineError: something is wrong.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hush-e2e-")))
            folder.chmod(0o755)
            key = folder / "hush.key"
            key.write_text(secrets.token_hex(32), "utf-8")
            key.chmod(0o640)
            log = Path(tempfile.gettempdir()) / "hush-e2e.log"
            log.unlink(missing_ok=True)
            self._compose = Compose(key, HERE / "hush.toml", log)
            self._key = key
            self._clear()
            if self._stand_ins:
                make(self._say)
            for name in stack.enter_context(lent()):
                self._note(f"stand-in for {name}")
            if not self._keep:
                stack.callback(self._forget, self._image_id())
            stack.callback(self._down)
            try:
                self._steps()
            except EngineError:
                self._say(self._tail())
                raise

    def _steps(self) -> None:
        with self._step("image: build"):
            self._compose.do("build", timeout=BUILD)
        with self._step("image: the locked core alone"):
            self._image()
        with self._step("up, in order"):
            self._up()
        with self._step("rights, and the noise key"):
            self._rights()
        with self._step("events in, a release out"):
            judge.produce(4000, "first")
            took = until(lambda: any(row.is_row for row in judge.releases()), "rows in a release")
            self._note(f"first rows {took:.0f} s after the events")
        with self._step("Prometheus: pages and panels"):
            self._metrics(1)
        with self._step("three workers"):
            self._scale(3)
        with self._step("a worker crashes"):
            self._crash()
        with self._step("rolling restart"):
            self._roll()
        with self._step("back to one worker"):
            self._scale(1)
        with self._step("no second release"):
            self._once()
        with self._step("stop within the grace, and start again"):
            self._stop()

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        begin = time.monotonic()
        self._say(f"[{begin - self._begin:5.0f} s] {title} …")
        yield
        self._note(f"{title}: {time.monotonic() - begin:.1f} s")

    def _note(self, text: str) -> None:
        self.seen.append(text)
        self._say(f"          {text}")

    def _clear(self) -> None:
        """Start clean: a killed run may have left its project."""
        if self._compose.left():
            self._say("removing what an earlier run has left")
            self._compose.down()
        if ports := taken_ports():
            raise EngineError(
                f"another program has the ports {ports} of this machine: end it first"
            )

    def _image(self) -> None:
        said, packages, size = image.examine()
        if said:
            raise EngineError(f"the image: {'; '.join(said)}")
        self._note(f"{packages} packages, {size / 1e6:.0f} MB with its base")

    def _up(self) -> None:
        self._compose.up(1)
        self._healthy("worker", 1)
        self._healthy("prometheus", 1)
        state = {one: self._compose.containers(one)[0]["State"] for one in ORDER}
        begun = [_time(state[one]["StartedAt"]) for one in ORDER]
        if begun != sorted(begun):
            raise EngineError(f"started out of order: {dict(zip(ORDER, begun, strict=True))}")
        for one in ("raw-topic", "topics"):
            if state[one]["Running"] or state[one]["ExitCode"]:
                raise EngineError(f"{one} has not ended with 0:\n{self._compose.logs(one)}")

    def _rights(self) -> None:
        found = self._compose.containers()
        told = names(found) + docker("compose", "-p", PROJECT, "logs", "--no-color")
        if any(text in told for text in judge.texts_of_key(self._key.read_text("utf-8"))):
            raise EngineError("`docker inspect` or a log shows the noise key")
        for one in found:
            name, host = one["Name"].lstrip("/"), one["HostConfig"]
            if one["Config"]["User"].split(":")[0] in ("", "0", "root"):
                raise EngineError(f"{name} runs as root")
            if one["Config"]["Image"] != image.IMAGE:
                continue
            if not host["ReadonlyRootfs"] or host["CapDrop"] != ["ALL"]:
                raise EngineError(f"{name}: its root can be written, or it has capabilities")
            if "no-new-privileges:true" not in host["SecurityOpt"]:
                raise EngineError(f"{name} may gain privileges")
        try:
            self._compose.do("exec", "-T", "worker", "touch", "/etc/hush/new")
        except EngineError:
            return
        raise EngineError("a worker wrote outside /data and /tmp")

    def _metrics(self, workers: int) -> None:
        took = until(lambda: judge.scraped(workers), f"both pages of {workers} scraped", 120)
        self._note(f"both pages of {workers} scraped after {took:.0f} s")
        panels = json.loads(PANELS.read_text("utf-8"))["panels"]
        queries = [t["expr"].replace(RATE, "1m") for p in panels for t in p.get("targets", ())]
        for query in queries:
            until(partial(judge.values, query), f"data for {query}", 120)
        self._note(f"all {len(queries)} queries of the public dashboard have data")

    def _scale(self, workers: int) -> None:
        before = judge.newest(judge.releases())
        self._compose.up(workers)
        self._healthy("worker", workers)
        ports = {p for one in self._compose.containers("worker") for p in _ports(one)}
        if len(ports) != workers:
            raise EngineError(f"{workers} workers have the ports {sorted(ports)} of this machine")
        self._released_after(before)
        self._metrics(workers)

    def _crash(self) -> None:
        before = judge.newest(judge.releases())
        judge.produce(4000, "crash")
        victim = self._compose.containers("worker")[0]
        if crash(victim):
            back = until(lambda: _again(victim), "the worker is back", 60)
            self._note(f"restarted by the engine, healthy after {back:.1f} s")
        else:
            docker("start", victim["Id"])
            self._note(
                "killed and started by hand: only root may crash it behind the engine's back"
            )
        self._healthy("worker", 3)
        self._released_after(before)

    def _roll(self) -> None:
        before = judge.newest(judge.releases())
        for one in self._compose.containers("worker"):
            begin = time.monotonic()
            docker("restart", one["Id"])
            until(partial(_again, one), "healthy again")
            self._note(f"one worker restarted and healthy: {time.monotonic() - begin:.1f} s")
        self._released_after(before)

    def _released_after(self, before: int) -> None:
        took = until(lambda: judge.newest(judge.releases()) > before, "the next release", 300)
        self._note(f"the next release is there {took:.0f} s later")

    def _once(self) -> None:
        committed = judge.releases()
        if twice := judge.second_releases(committed, judge.releases("read_uncommitted")):
            raise EngineError(f"released twice: {twice[:3]}")
        triggers = {row.scheduled for row in committed}
        self._note(f"{len(committed)} records of {len(triggers)} triggers, each of them once")

    def _stop(self) -> None:
        begin = time.monotonic()
        self._compose.do("stop")
        took = time.monotonic() - begin
        codes = {c["Name"]: c["State"]["ExitCode"] for c in self._compose.containers("worker")}
        if set(codes.values()) != {0} or took > GRACE:
            raise EngineError(f"stopping took {took:.0f} s, and workers ended with {codes}")
        self._note(f"stopped in {took:.1f} s, exit code 0")
        begin = time.monotonic()
        self._compose.up(1)
        self._healthy("worker", 1)
        self._note(f"up again and healthy: {time.monotonic() - begin:.1f} s")
        self._released_after(judge.newest(judge.releases()))
        self._once()

    def _healthy(self, service: str, count: int) -> None:
        until(lambda: self._compose.healthy(service, count), f"{count} × {service} healthy")

    def _tail(self) -> str:
        try:
            return "".join(self._compose.logs(one) for one in ("kafka", "topics", "worker"))
        except EngineError as error:
            return str(error)

    def _down(self) -> None:
        begin = time.monotonic()
        self._say("taking everything down …")
        self._compose.down()
        if left := self._compose.left():
            raise EngineError(f"left behind: {left}")
        self._note(f"down: {time.monotonic() - begin:.1f} s")

    def _image_id(self) -> str:
        return docker("image", "ls", "-q", "--no-trunc", f"{image.IMAGE}:latest").strip()

    def _forget(self, before: int) -> None:
        """Give the image's name back to the previous image, or to none."""
        if (now := self._image_id()) != before:
            docker(*(["tag", before, image.IMAGE] if before else ["rmi", image.IMAGE]))
            if before and now:
                docker("rmi", now)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00")


def _ports(container: dict[str, Any]) -> list[str]:
    published = container["NetworkSettings"]["Ports"] or {}
    return [bound["HostPort"] for found in published.values() for bound in found or ()]


def _again(before: dict[str, Any]) -> bool:
    """Tell whether a container was restarted since it was inspected, and is healthy."""
    (now,) = inspect([before["Id"]])
    new = now["State"]["StartedAt"] != before["State"]["StartedAt"]
    return bool(new and now["State"]["Running"] and health(now) == "healthy")
