"""A real Apache Kafka on the loopback interface: one KRaft node, without container or root.

    >>> from hushstream.deploy.broker import Broker
    >>> Broker().status
    'stopped'

As a context manager it starts, waits until it serves, and removes everything at the end::

    with Broker() as broker:
        print(broker.bootstrap)
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..errors import BrokerError
from ..topics.private_files import private_folder
from . import class_archive
from .jars import fetch, read_lock
from .java import find_java
from .process import KERNEL, Child
from .settings import (
    ALONE,
    HOST,
    JVM_FLAGS,
    BrokerNode,
    cluster_id,
    free_port,
    port_is_free,
    properties,
    server_settings,
)

Status = Literal["stopped", "starting", "running", "failed"]

ATTEMPTS = 4  # to start: others may take a port after it was chosen
TAKEN = b"Address already in use"

_SILENT = logging.getLogger("hushstream.deploy.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Broker:
    """One local Kafka node that can be stopped, killed and started again on its data and port.

    Args:
        data: data folder, created if absent and kept; by default a temporary one that `stop`
            removes (`kill` leaves it for the next start).
        port: TCP port for clients; by default a free one, kept for the broker's life.
        overrides: additional broker settings (``server.properties`` names).
        detached: leave it running when this process ends.
        quiet: hide the progress bar while Kafka is downloaded.
        node: its process, network and cluster.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        detached: bool = False,
        quiet: bool = False,
        node: BrokerNode = ALONE,
    ) -> None:
        self._node = node
        self._temporary = data is None
        self._data = data.expanduser().resolve() if data else None
        self._port = port
        self._overrides = dict(overrides or {})
        self._detached = detached
        self._quiet = quiet
        self._child: Child | None = None
        self._ready = False
        self._owner = os.getpid()
        self._lock = threading.RLock()

    @property
    def data(self) -> Path:
        """Folder with data, settings and log."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="hush-broker-"))
        if not self._data.is_dir():
            private_folder(self._data)
        return self._data

    @property
    def port(self) -> int:
        """TCP port for clients."""
        if self._port is None:
            self._port = free_port()
        return self._port

    @property
    def bootstrap(self) -> str:
        """Address for clients, ``host:port``."""
        return f"{self._node.host}:{self.port}"

    @property
    def log(self) -> Path:
        """File with the server's output; every start appends to it."""
        return self.data / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._child.pid if self._child and self._child.returncode is None else None

    @property
    def status(self) -> Status:
        """State of the server; ``failed`` means that it ended by itself."""
        if self._child is None:
            return "stopped"
        if self._child.returncode is not None:
            return "failed"
        return "running" if self._ready else "starting"

    def start(self, timeout: float = 120.0) -> Self:
        """Start it on its data and port and wait until it serves; do nothing if it runs.

        Raises:
            BrokerError: Kafka or Java is missing, the port is taken, or the server did not start
                within ``timeout`` seconds; the message ends with its log.
        """
        with self._lock:
            if self.pid is not None:
                return self
            ours = self._port is None
            for left in reversed(range(ATTEMPTS)):
                said = self.log.stat().st_size if self.log.is_file() else 0
                try:
                    self._start(timeout)
                    break
                except BrokerError:
                    if not left or not self.log.is_file():
                        raise
                    if TAKEN not in self.log.read_bytes()[said:]:
                        raise
                    if ours:  # else it is the controller's port, which each start chooses anew
                        self._port = None
            return self

    def stop(self, timeout: float = 20.0) -> None:
        """Shut it down (SIGTERM, finally SIGKILL) and remove its data if they are temporary."""
        with self._lock:
            self._end(signal.SIGTERM, timeout)
            if self._temporary and self._data is not None:
                shutil.rmtree(self._data, ignore_errors=True)
                self._data = None

    def kill(self) -> None:
        """End it with SIGKILL, as in a crash; `start` restarts it on the same data."""
        with self._lock:
            self._end(signal.SIGKILL, 10)

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        if self._data is None or not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, timeout: float) -> None:
        self._ready = False
        command = self._prepare()
        if not self._detached:
            atexit.register(self._at_exit)
        # An interrupted start would leave an unknown server behind. So even a detached child is
        # tied to this process until it serves.
        self._child = Child(command, self.log, kernel=KERNEL and not self._detached)
        try:
            self._wait_until_ready(timeout)
            if self._detached:
                self._child.untie()
        except BaseException:
            self._end(signal.SIGKILL, 10)
            raise

    def _prepare(self) -> list[str]:
        """Fetch Kafka, write the settings and format an empty folder; return the command line."""
        if not (self._node.within or port_is_free(self.port)):
            raise BrokerError(f"port {self.port} of {HOST} is in use: choose another with --port")
        found, classpath = find_java(), classpath_of_kafka(self._quiet)
        java = [str(found), f"-Xmx{self._node.heap_mb}m", *JVM_FLAGS, "-cp", classpath]
        java[1:1] = self._node.java_flags or class_archive.options(found, classpath)
        private_folder(self.data, whole=False)  # what lies below are raw records
        config = self.data / "server.properties"
        logs = self.data / "kafka"
        settings = server_settings(self.port, self._controller_port(), logs, self._overrides)
        config.write_text(properties(settings), "utf-8")
        if not (logs / "meta.properties").is_file():
            self._format(java, config)
        return [*self._node.within, *java, "kafka.Kafka", str(config)]

    def _controller_port(self) -> int:
        while (port := free_port()) == self.port:
            pass
        return port

    def _format(self, java: list[str], config: Path) -> None:
        cluster = self._node.cluster or cluster_id()
        arguments = ["format", "--config", str(config), "--cluster-id", cluster]
        arguments += [word for name, level in self._node.features.items()
                      for word in ("--feature", f"{name}={level}")]  # fmt: skip
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", *arguments], capture_output=True, text=True
        )
        if done.returncode:
            raise BrokerError(f"formatting {self.data} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        cluster = _formatted_for(self.data / "kafka")
        while not self._ready:
            if self.pid is None:
                raise BrokerError(f"the broker ended at start; end of {self.log}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the broker is not ready after {timeout:.0f} s; "
                    f"end of {self.log}:\n{self.tail()}"
                )
            self._ready = _listens(self._node.host, self.port) and serves(
                self.bootstrap, cluster=cluster
            )
            if not self._ready:
                time.sleep(0.05)

    def _end(self, number: signal.Signals, timeout: float) -> None:
        child, self._child, self._ready = self._child, None, False
        if child is None:
            return
        atexit.unregister(self._at_exit)
        child.send(number)
        if not child.wait(timeout):
            child.send(signal.SIGKILL)
            child.wait(10)

    def _at_exit(self) -> None:
        if os.getpid() == self._owner:  # not in a forked copy of this process
            self.stop(timeout=5)


def classpath_of_kafka(quiet: bool) -> str:
    """Return the class path of a broker; download missing jars."""
    jars = fetch(quiet=quiet)
    return os.pathsep.join(str(jars / jar.filename) for jar in read_lock())


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=0.5):
        return True
    return False


def _formatted_for(logs: Path) -> str | None:
    """Id of the cluster that a data folder belongs to."""
    lines = (logs / "meta.properties").read_text("utf-8").splitlines()
    found = [line.partition("=")[2] for line in lines if line.startswith("cluster.id=")]
    return found[0] if found else None


def serves(bootstrap: str, timeout: float = 2.0, *, cluster: str | None = None) -> bool:
    """Whether a broker at ``bootstrap`` answers within ``timeout`` seconds, as part of its cluster.

    Another server may have taken the port, so the cluster id is compared, unless it is None.
    """
    client = AdminClient({"bootstrap.servers": bootstrap}, logger=_SILENT)
    try:
        told = client.list_topics(timeout=timeout)
    except KafkaException:
        return False
    return bool(told.brokers) and cluster in (None, told.cluster_id)
