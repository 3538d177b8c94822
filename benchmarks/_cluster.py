"""A deployment on a broker of this machine: its topics, its workers, its releases.

Used by benchmarks and tests. Workers are real processes (``hush worker``), so that they can be
killed, stopped and resumed.
"""

from __future__ import annotations

import json
import secrets
import signal
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _arrivals import Arrivals
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.clock import genesis as admin
from hushstream.agents.clock.kept_tables import KeptTables
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.registry.announced import announced
from hushstream.deploy.process import Child
from hushstream.formats.bytes_in import schema_id
from hushstream.formats.events.decode import utc
from hushstream.formats.values.codec import Described, to_json
from hushstream.topics.config.access.secret import noise_key, own_keys, signing_key
from hushstream.topics.config.load import Config, load
from hushstream.topics.names import Names
from hushstream.topics.records import Trigger, TriggerRequest, decode_clock, encode

PATIENCE = 180.0  # seconds; waits are short unless the machine is very busy
Known = dict[int, Described]  # schemas of a topic by their numbers
Manifest = tuple[str, str, int, int]
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}


class Local:
    """One deployment in a folder.

    Args:
        folder: where its configuration, key, state and logs are kept.
        bootstrap: a broker that runs.
        toml: the configuration.
        raw: raw topics to create, with their numbers of partitions.
        replication: number of replicas of all topics.
    """

    process: Callable[[Sequence[str], Path], Child] = Child

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        toml: str,
        raw: Mapping[str, int],
        replication: int = 1,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.bootstrap = bootstrap
        self.toml = folder / "hush.toml"
        self.toml.write_text(toml)
        for key in (folder / "hush.key", folder / "hush-signing.key"):
            if not key.exists():
                key.write_text(secrets.token_hex(32))
                key.chmod(0o600)
        self.raw = dict(raw)
        self.workers: dict[str, Child] = {}
        self.prefix: Callable[[str], list[str]] = lambda member: []
        self.environ: Callable[[str], dict[str, str]] = lambda member: {}
        self.settings: dict[str, str] = {}  # further settings of workers
        self.loud = True  # workers log everything, not one line a minute for each cause
        self._replication = replication
        self._requests = 0

    # -- configuration and topics -------------------------------------------------------------

    def config(self, **flags: Any) -> Config:
        """The configuration with this broker and folder."""
        own = {"kafka.bootstrap": self.bootstrap, "engine.data_dir": str(self.folder / "state")}
        made = load(self.toml, flags=own | flags, environ={})
        if not made.lookup:
            return made
        tables = KeptTables(made.kafka, made.deployment.name)
        return load(self.toml, flags=own | flags, environ={}, tables=tables)

    @property
    def cluster(self) -> Cluster:
        """Administration of the broker."""
        return Cluster(self.config().kafka)

    @property
    def secret(self) -> bytes:
        """The noise key."""
        return noise_key(self.config(), {})

    @property
    def deployment(self) -> Deployment:
        """The compiled pipelines."""
        config = self.config()
        return compile_config(config, self.raw).with_keys(own_keys(config))

    def begin(self) -> Names:
        """Create raw topics, then everything of the deployment."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        existing = self.cluster.topics()
        new = [
            NewTopic(t, n, self._replication, config=ANY_TIME)
            for t, n in self.raw.items()
            if t not in existing
        ]
        for future in (client.create_topics(new) if new else {}).values():
            future.result()
        until = time.monotonic() + PATIENCE
        while not self.raw.keys() <= self.cluster.topics().keys():  # not yet known
            assert time.monotonic() < until, self.raw
            time.sleep(0.05)
        now = int(time.time() * 1e6)
        admin.Beginning(
            self.cluster, self.deployment, self._replication, now, self.secret,
            signing=signing_key(self.config(), {}),
        ).begin()  # fmt: skip
        return self.names

    @property
    def names(self) -> Names:
        """Names of all topics."""
        config = self.config()
        ledger = admin.read_ledger(Cluster(config.kafka), config.deployment.name)
        return ledger.names(config.deployment.name)

    # -- workers ------------------------------------------------------------------------------

    def start(self, member: str) -> Child:
        """Start a worker process; it is tied to this one."""
        settings = {
            "engine.data_dir": str(self.folder / "state"),
            "engine.public_port": "0",
            "engine.operator_port": "0",
            "engine.trim_interval": "1s",
            **self.settings,
        }
        words = [w for name, value in settings.items() for w in ("--set", f"{name}={value}")]
        loud = ["-v"] if self.loud else []
        command = [sys.executable, "-m", "hushstream", *loud, "worker", "-c", str(self.toml)]
        command += ["--bootstrap", self.bootstrap, "--member", member, *words]
        if given := [f"{name}={value}" for name, value in self.environ(member).items()]:
            command = ["/usr/bin/env", *given, *command]
        command = [*self.prefix(member), *command]
        self.workers[member] = self.process(command, self.log(member))
        return self.workers[member]

    def log(self, member: str) -> Path:
        """Output of a worker."""
        return self.folder / f"{member}.log"

    def data(self, member: str) -> Path:
        """State folder of a worker."""
        return self.folder / "state" / member

    def kill(self, member: str) -> None:
        """End a worker as a crash would."""
        child = self.workers.pop(member)
        child.send(signal.SIGKILL)
        assert child.wait(PATIENCE), member

    def stop(self, member: str, timeout: float = PATIENCE) -> int | None:
        """End a worker as an operator would; returns its exit code."""
        child = self.workers.pop(member)
        child.send(signal.SIGTERM)
        if not child.wait(timeout):
            child.send(signal.SIGKILL)
            child.wait(PATIENCE)
        return child.returncode

    def wait_ready(self, members: Sequence[str], timeout: float = PATIENCE) -> None:
        """Wait until each worker has logged once that it is ready."""
        until = time.monotonic() + timeout
        for member in members:
            while "ready:" not in self.log(member).read_text(errors="replace"):
                child = self.workers.get(member)
                if child is None or child.returncode is not None or time.monotonic() > until:
                    raise AssertionError(f"worker {member} did not start:\n{self.tail(member)}")
                time.sleep(0.1)

    def starting(self) -> bool:
        """Whether a worker is starting and not ready yet."""
        logs = (self.log(member).read_text(errors="replace") for member in self.workers)
        return any("ready:" not in text.rpartition(" of deployment ")[2] for text in logs)

    def tail(self, member: str, lines: int = 30) -> str:
        """The end of a worker's log."""
        return "\n".join(self.log(member).read_text(errors="replace").splitlines()[-lines:])

    def errors(self, member: str) -> str:
        """Errors with which a worker ended, and the end of its log."""
        lines = self.log(member).read_text(errors="replace").splitlines()
        said = [line for line in lines if " ERROR " in line or line.startswith("hush:")]
        return "\n".join([*said[-8:], "...", *lines[-12:]])

    def close(self) -> None:
        """End all workers."""
        for member in list(self.workers):
            self.kill(member)

    # -- records ------------------------------------------------------------------------------

    def producer(self, **options: Any) -> Producer:
        """A plain producer."""
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0} | options)

    def publish(self, topic: str, values: Sequence[Any], partition: int = 0) -> None:
        """Produce JSON values, or raw bytes, to one partition."""
        producer = self.producer()
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(topic, data, partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE) == 0, topic

    def trigger(self, at: int, pipelines: list[str] | None = None) -> None:
        """Request all external triggers up to a time in microseconds."""
        self._requests += 1
        request = TriggerRequest(f"request-{self._requests}", at, pipelines)
        producer = self.producer()
        producer.produce(self.names.requests, encode(request), partition=0)
        assert producer.flush(PATIENCE) == 0

    def triggers(self) -> list[Trigger]:
        """All triggers of the clock log."""
        records = read_topic(self.config().kafka, self.names.clock, 1)[0].records
        return _triggers(r.value or b"" for r in records)

    def releases(self, pipeline: str) -> list[dict[str, Any]]:
        """Bodies of all committed rows and manifests of a pipeline or view."""
        (topic, partitions), known = self._topics[pipeline], dict[str, Known]()
        logs = read_topic(self.config().kafka, topic, partitions)
        values = [r.value or b"" for log in logs for r in log.records]
        return [json.loads(self._plain(topic, value, known)) for value in values]

    def manifests(self, names: Container[str] | None = None) -> set[Manifest]:
        """(name, window, trigger, shard) of all complete releases, or only those of some names."""
        chosen = [place for name, place in self._topics.items() if names is None or name in names]
        kafka = self.config().kafka
        logs = [(topic, read_topic(kafka, topic, number)) for topic, number in chosen]
        records = ((topic, r.value or b"") for topic, ones in logs for one in ones for r in one[1])
        return self._manifests(records, {})

    def coming(self) -> Arriving:
        """Manifests as they come: call the result with the seconds to wait for the next one.

        Use it as a context.
        """
        return Arriving(self, Arrivals(self.config().kafka, dict(self._topics.values())))

    @property
    def _topics(self) -> dict[str, tuple[str, int]]:
        """Release topic and number of partitions by name of a pipeline or view."""
        made = self.deployment
        views = {v.name: (v.release_topic, 1) for v in made.views}
        return views | {p.name: (p.release_topic, p.release_partitions) for p in made.pipelines}

    def _manifests(
        self, records: Iterable[tuple[str, bytes]], known: dict[str, Known]
    ) -> set[Manifest]:
        texts = (self._plain(topic, value, known) for topic, value in records)
        bodies = [json.loads(text) for text in texts if b"hush.manifest" in text]
        return {
            (b["pipeline"], b["window"]["start"], b["trigger"], b["shard"])
            for b in bodies
            if b["schema"].startswith("hush.manifest")
        }

    def _plain(self, topic: str, value: bytes, known: dict[str, Known]) -> bytes:
        """A release as JSON; schemas of its topic are fetched once."""
        number = schema_id(value)
        if number is not None and number not in known.get(topic, {}):
            known[topic] = announced(self.cluster, topic)
        return to_json(value, known.get(topic, {})) or b"{}"

    def wanted(self, triggers: Sequence[Trigger]) -> set[Manifest]:
        """The manifests that all shards, and all views, must release for these triggers."""
        made = self.deployment
        pipelines = {p.name: p for p in made.pipelines}
        wanted = set()
        for t in triggers:
            start = utc(pipelines[t.pipeline].windows.opens(t.window))
            shards = range(pipelines[t.pipeline].cells_partitions)
            wanted |= {(t.pipeline, start, t.index, shard) for shard in shards}
            views = [v.name for v in made.views if v.source.name == t.pipeline]
            wanted |= {(name, start, t.index, 0) for name in views}
        return wanted

    def wait_released(self, triggers: Sequence[Trigger], timeout: float = PATIENCE) -> None:
        """Wait until everything of these triggers is released."""
        missing, until = self.wanted(triggers), time.monotonic() + timeout
        with self.coming() as coming:
            while missing := missing - coming(0.3):
                if time.monotonic() > until:
                    raise AssertionError(f"not released: {sorted(missing)[:10]}\n{self._logs()}")

    def wait_triggers(self, count: int, timeout: float = PATIENCE) -> list[Trigger]:
        """Wait until the clock has fired ``count`` triggers; returns all of them."""
        until, found = time.monotonic() + timeout, list[Trigger]()
        with Arrivals(self.config().kafka, {self.names.clock: 1}) as arrivals:
            while len(found) < count:
                if time.monotonic() > until:
                    lack = f"{len(found)} triggers of {count} were fired"
                    raise AssertionError(f"{lack}\n{self._logs()}")
                found += _triggers(value for _, value in arrivals.take(0.2))
        return found

    def _logs(self) -> str:
        return "\n".join(f"== {m}\n{self.tail(m)}" for m in self.workers)


class Arriving:
    """Manifests of a deployment as they come; see `Local.coming`."""

    def __init__(self, run: Local, arrivals: Arrivals) -> None:
        self._run, self._arrivals = run, arrivals
        self._known: dict[str, Known] = {}

    def __call__(self, seconds: float) -> set[Manifest]:
        """New manifests, after waiting at most ``seconds`` without any record."""
        return self._run._manifests(self._arrivals.take(seconds), self._known)

    def __enter__(self) -> Arriving:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrivals.close()


def _triggers(records: Iterable[bytes]) -> list[Trigger]:
    clock = map(decode_clock, records)
    return [record for record in clock if isinstance(record, Trigger)]


@contextmanager
def local(
    folder: Path, bootstrap: str, toml: str, raw: Mapping[str, int], replication: int = 1
) -> Iterator[Local]:
    """A deployment that has begun; its workers end with the block."""
    running = Local(folder, bootstrap, toml, raw, replication)
    try:
        running.begin()
        yield running
    finally:
        running.close()
