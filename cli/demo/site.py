"""Start and end of everything that the demo runs."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...agents.clock.genesis import Beginning, read_ledger
from ...agents.deployment.cluster.topic_specs import ANY_TIME, TopicSpec, public_topics
from ...agents.deployment.compile import compile_config
from ...agents.deployment.model import Deployment
from ...agents.kafka.access.owners import claimants
from ...agents.kafka.cluster import Cluster
from ...deploy.broker import Broker
from ...deploy.process import KERNEL, Child, end_process
from ...deploy.settings import free_port
from ...errors import EngineError
from ...topics.config.access.secret import noise_key, signing_key
from ...topics.config.load import Config, load
from ...topics.config.model import Kafka
from ...topics.names import OWNERS, Names
from .workload import DATA

PARTITIONS = {"trips": 2, "clicks": 4}
STATE = "demo.json"
HOST = "127.0.0.1"
PATIENCE = 60.0


class Site:
    """A folder, a broker and workers.

    Args:
        folder: a new folder for configuration, key, tables and logs.
        bootstrap: an existing cluster; by default one is started here.
        keep: leave everything running when this process ends.

    Attributes:
        scraped: ports of the first worker's public and operator metrics, if it is kept.
        page: address of the live page, once it is served; empty before.
    """

    def __init__(self, folder: Path, bootstrap: str | None, keep: bool) -> None:
        self.folder = folder
        self.keep = keep
        self.scraped = (0, 0)
        self.page = ""
        self.bootstrap = bootstrap or ""
        self._broker: Broker | None = None
        self._workers: list[Child] = []
        self._owned: tuple[list[str], str] | None = None
        self._told: list[int] = []
        self.topics: list[str] = []

    @property
    def config_path(self) -> Path:
        """The configuration of this run."""
        return self.folder / "hush.toml"

    def start_broker(self) -> None:
        """Start Kafka, downloading it the first time, unless a cluster was named."""
        if not self.bootstrap:
            self._broker = Broker(self.folder / "broker", detached=self.keep, quiet=False)
            self._broker.start()
            self.bootstrap = self._broker.bootstrap
        text = (DATA / "hush.toml").read_text("utf-8")
        kafka = f'[kafka]\nbootstrap = "{self.bootstrap}"\n\n[engine]'
        self.config_path.write_text(text.replace("[engine]", kafka, 1), "utf-8")
        key = self.folder / "hush.key"
        key.touch(0o600)
        key.write_text(secrets.token_hex(32), "utf-8")

    def create_topics(self) -> tuple[Config, Deployment, Names]:
        """Create all topics and the ledger; an `EngineError` if any of them exists."""
        config = load(self.config_path, environ={})
        cluster = Cluster(config.kafka)
        cluster.wait()
        deployment = compile_config(config, PARTITIONS)
        specs = [TopicSpec(n, p, ANY_TIME, True, "raw events") for n, p in PARTITIONS.items()]
        self._claim(cluster, [*specs, *public_topics(deployment)], deployment.name)
        replication = -1 if self._broker is None else 1
        self.topics = cluster.create(specs, replication)
        now, secret = int(time.time() * 1e6), noise_key(config)
        begins = Beginning(
            cluster, deployment, replication, now, secret, signing=signing_key(config)
        )
        self.topics += begins.begin()
        return config, deployment, read_ledger(cluster, deployment.name).names(deployment.name)

    def _claim(self, cluster: Cluster, specs: list[TopicSpec], prefix: str) -> None:
        """Refuse a cluster that has such topics: the demo deletes its own at the end."""
        names = {spec.name for spec in specs} - {OWNERS}  # shared with others
        taken = [t for t in cluster.topics() if t in names or t.startswith(f"{prefix}.")]
        if taken:
            raise EngineError(
                f"{self.bootstrap} has topics that the demo would use: {', '.join(sorted(taken))}; "
                "delete them if they belong to an earlier demo, or use another cluster"
            )
        self._owned = sorted(names), f"{prefix}."

    def start_workers(self, number: int) -> None:
        """Start processes of ``hush worker``, which end with this one unless they are kept."""
        for place in range(number):
            command = [sys.executable, "-m", "hushstream", "worker"]
            command += ["-c", str(self.config_path), "--member", f"worker-{place + 1}"]
            if self.keep and place == 0:  # one is enough: the others differ only in what they own
                self.scraped = free_port(), free_port()
                for name, port in zip(("public", "operator"), self.scraped, strict=True):
                    command += ["--set", f"engine.{name}_port={port}"]
            log = self.folder / f"worker-{place + 1}.log"
            self._workers.append(Child(command, log, kernel=KERNEL and not self.keep))

    def serve_page(self) -> None:
        """Serve the live page in a process that ends with the workers; raises `EngineError`."""
        port, log = free_port(), self.folder / "live.log"
        command = [sys.executable, "-m", "hushstream", "live", "-c", str(self.config_path)]
        child = Child([*command, "--port", str(port)], log, kernel=KERNEL and not self.keep)
        self._workers.append(child)
        self.page = f"http://{HOST}:{port}/"
        until = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection((HOST, port), 1).close()
                return
            except OSError:
                if child.returncode is not None or time.monotonic() > until:
                    raise EngineError("the live page was not served") from None
                time.sleep(0.1)

    def check(self) -> None:
        """Check that all processes run, and that no signal asked to stop.

        Raises:
            EngineError: a process has ended; the message holds the end of its log.
            SystemExit, KeyboardInterrupt: a library swallowed a signal that asked to stop.
        """
        if self._told:
            raise _end_by(self._told[0])
        for place, worker in enumerate(self._workers):
            if worker.returncode is not None:
                log = self.folder / f"worker-{place + 1}.log"
                last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-12:])
                raise EngineError(f"worker {place + 1} ended ({worker.returncode}):\n{last}")
        if self._broker is not None and self._broker.pid is None:
            raise EngineError(f"the broker ended:\n{self._broker.tail()}")

    def remember(self) -> None:
        """Leave everything running, and record the processes for `stop_kept`."""
        for worker in self._workers:
            worker.untie()
        state = {
            "workers": [w.pid for w in self._workers],
            "broker": self._broker.pid if self._broker else None,
            "bootstrap": self.bootstrap,
            "owned": self._owned,
        }
        (self.folder / STATE).write_text(json.dumps(state), "utf-8")

    def stop(self) -> None:
        """End workers, then the broker, and remove the folder."""
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        for worker in self._workers:
            if not worker.wait(10):
                worker.send(signal.SIGKILL)
                worker.wait(5)
        if self._broker is not None:
            self._broker.stop(timeout=10)
        elif self._owned is not None:
            _delete_topics(self.bootstrap, *self._owned)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def site(bootstrap: str | None, keep: bool) -> Iterator[Site]:
    """Make a site that ends with the block, even after an error; it is kept only after success."""
    with _terminable() as told:
        made = Site(Path(tempfile.mkdtemp(prefix="hush-demo-")), bootstrap, keep)
        made._told = told
        ended_well = False
        try:
            yield made
            ended_well = True
        finally:
            with _handled(signal.SIG_IGN):  # the cleanup takes seconds at most
                if keep and ended_well:
                    made.remember()
                else:
                    made.stop()


@contextlib.contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP in the block."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)


@contextlib.contextmanager
def _terminable() -> Iterator[list[int]]:
    """Make SIGINT, SIGTERM and SIGHUP end the block cleanly; yield the signals received.

    If a signal arrives inside a C library, the library may swallow the handler's exception or
    raise another. So the block ends by the signal, whatever error ends it.
    """
    told: list[int] = []

    def leave(number: int, _: object) -> None:
        told.append(number)
        raise _end_by(number)

    with _handled(leave):
        try:
            yield told
        except Exception as error:
            if told:
                raise _end_by(told[0]) from error
            raise
        if told:
            raise _end_by(told[0])


def _end_by(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def stop_kept(folder: Path) -> bool:
    """Stop a demo that ``--keep`` left in ``folder``, and remove it; False if there is none."""
    record = folder / STATE
    if not record.is_file():
        return False
    state = json.loads(record.read_text("utf-8"))
    for pid in state["workers"]:
        end_process(pid, str(folder / "hush.toml"), 10)
    if state["broker"]:
        end_process(state["broker"], str(folder), 20)
    elif state["owned"]:
        _delete_topics(state["bootstrap"], *state["owned"])
    shutil.rmtree(folder, ignore_errors=True)
    return True


def _delete_topics(bootstrap: str, names: list[str], prefix: str) -> None:
    """Delete the demo's topics from an existing cluster; best effort, as it may be gone."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    with contextlib.suppress(KafkaException):
        existing = client.list_topics(timeout=10).topics
        mine = [t for t in existing if t in names or t.startswith(prefix)]
        if OWNERS in existing and claimants(Cluster(Kafka(bootstrap=bootstrap))) <= {prefix[:-1]}:
            mine.append(OWNERS)  # no other deployment has used it
        for done in (client.delete_topics(mine) if mine else {}).values():
            done.result(10)
