"""Admission: may a worker start? The one decision that `hush worker` and `hush check` share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException

from ...errors import EngineError, LedgerError
from ...mechanisms.noise import fingerprint
from ...topics.config.load import Config
from ...topics.config.secret import noise_key
from ...topics.names import Names, ledger_topic
from ..clock.begins import read_begins
from ..clock.genesis import NoLedgerError, read_ledger, refuse_lost
from ..clock.ledger import Ledger
from ..clock.owners import verify_owned
from ..clock.pinned import verify, verify_key
from ..clock.start import check_clock_log
from ..clock.witness import Witness
from ..deployment.compile import compile_config
from ..deployment.forms import pinned_forms
from ..deployment.model import Deployment
from ..deployment.topic_specs import PUBLIC, TopicSpec, internal_topics, public_topics, sized
from ..kafka.cluster import Cluster
from .evidence import check_tables
from .setup import WorkerSetup

Told = Callable[[str], None]
COMPARED = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


def prepare(
    config: Config, member: str = "", patience: float = 60.0, told: Told | None = None
) -> WorkerSetup:
    """Decide whether a worker may start, from the cluster as it is; see `admit`.

    Args:
        config: as it was read.
        member: name of the worker, and of its folder below ``engine.data_dir``.
        patience: seconds to wait for a cluster that does not answer.
        told: called with each finding in order, also where a later one stops the worker.

    Returns:
        Everything that the worker needs to run.

    Raises:
        ConfigError, LedgerError, EngineError: something does not fit; the message says what to do.
    """
    until = time.monotonic() + patience
    while True:
        found: list[str] = []
        cluster = Cluster(config.kafka, patience)
        try:
            cluster.wait()
            return admit(config, cluster, member, found.append)
        except KafkaException as error:
            # The cluster answered and then went away. What was found before may be stale by the
            # time it is back, so all of it is looked at again.
            if time.monotonic() > until:
                raise EngineError(
                    f"Kafka at {config.kafka.bootstrap} stopped answering: {error.args[0].str()}"
                ) from None
            found.clear()
            time.sleep(1.0)
        finally:
            if told is not None:
                for text in found:
                    told(text)


def admit(config: Config, cluster: Cluster, member: str, told: Told) -> WorkerSetup:
    """Hold key, configuration, topics, ledger and clock log against each other; fail closed.

    Args:
        config: as it was read.
        cluster: it answers.
        member: name of the worker, and of its folder below ``engine.data_dir``.
        told: called with each finding, in order.

    Raises:
        ConfigError, LedgerError, EngineError: something does not fit; the message says what to do.
    """
    # The order matters. Every check relies on those before it: without the right key no seal can
    # be read, and without a whole ledger nothing says which topics are the right ones.
    secret = noise_key(config)
    told(f"noise key, fingerprint {fingerprint(secret)}")
    topics = cluster.topics()
    told(f"cluster at {config.kafka.bootstrap}: {len(topics)} topics")
    ledger = _ledger(cluster, config)
    verify_key(ledger, secret)
    numbers = {name: body["number"] for name, body in ledger.pipelines.items()}
    known = {p.name for p in config.pipeline} <= set(numbers)
    partitions = {i.topic: topics.get(i.topic, 0) for i in config.input}
    _check_inputs(cluster, partitions)
    told(f"input topics: {', '.join(f'{t} ({n} partitions)' for t, n in partitions.items())}")
    deployment = compile_config(config, partitions, numbers if known else None)
    names = verify(cluster, deployment, ledger)
    deployment = pinned_forms(deployment, ledger.pipelines)
    verify_owned(cluster, deployment)
    _check_settings(cluster, deployment, names)
    told("topics: those that the ledger pinned, set and owned as they must be")
    data_dir = Path(config.engine.data_dir) / (member or "worker")
    tables = check_tables(cluster, names, data_dir)
    told(f"local tables: {tables}, none of them ahead of the cluster")
    begins = read_begins(cluster, names, ledger, secret)
    ledger = check_clock_log(config.kafka, cluster, names, ledger, deployment)
    witness = witness_of(config, names, secret)
    if witness is not None:
        witness.check(config.kafka, lambda: read_ledger(cluster, names.deployment))
        told(f"witness {config.engine.witness}: it has seen nothing that the cluster lacks")
    told(f"ledger: {len(ledger.charges)} charges, chain whole, every trigger paid for")
    return WorkerSetup(config, deployment, names, ledger, secret, data_dir, member, begins, witness)


def witness_of(config: Config, names: Names, secret: bytes) -> Witness | None:
    """Make the configured witness; None if the configuration names none."""
    path = config.engine.witness
    return Witness(Path(path), names, secret) if path else None


def _ledger(cluster: Cluster, config: Config) -> Ledger:
    """Read the ledger; where it is missing, look for signs that there was one."""
    try:
        return read_ledger(cluster, config.deployment.name)
    except NoLedgerError:
        refuse_lost(cluster, config.deployment.name)
        topic, data_dir = ledger_topic(config.deployment.name), Path(config.engine.data_dir)
        if data_dir.exists() and any(data_dir.iterdir()):
            raise LedgerError(
                f"there is state in {data_dir}, but no ledger {topic!r}: "
                "restore the ledger topic from its backup, or connect to the cluster that has it; "
                "if the state is another deployment's, name another engine.data_dir"
            ) from None
        raise


def _check_inputs(cluster: Cluster, partitions: dict[str, int]) -> None:
    missing = [topic for topic, number in partitions.items() if not number]
    if missing:
        raise EngineError(
            f"input topic {missing[0]!r} does not exist: create it, or let a producer do so"
        )
    for topic, settings in cluster.settings(partitions).items():
        if "compact" in settings.get("cleanup.policy", "delete"):
            raise EngineError(
                f"input topic {topic!r} is compacted: records vanish from it, and a replay would "
                "count others; use a topic with cleanup.policy=delete"
            )


def _check_settings(cluster: Cluster, deployment: Deployment, names: Names) -> None:
    """Check settings on which the state, or the silence about load, depends; name all wrong ones.

    State would be lost with records that the broker deletes or compacts away. Times of records on
    the release topic must be ours: the broker's would show how long a release took.
    """
    released = [
        t for p in deployment.pipelines for t in (p.release_topic, p.latest_topic) if t is not None
    ]
    kept = {names.ledger, *(spec.name for spec in internal_topics(deployment, names))}
    specs = [*public_topics(deployment), *internal_topics(deployment, names)]
    wanted = {s.name: _wanted(s) for s in specs if s.name in kept}
    wanted |= {t: {"message.timestamp.type": PUBLIC["message.timestamp.type"]} for t in released}
    found = cluster.settings(wanted)
    wrong = [
        f"topic {topic} has {name}={found[topic].get(name)}, and must have {value}"
        for topic, settings in wanted.items()
        for name, value in settings.items()
        if found[topic].get(name) != value
    ]
    if wrong:
        raise EngineError(f"{'; '.join(wrong)}: alter the topics (kafka-configs), then start again")


def _wanted(spec: TopicSpec) -> dict[str, str]:
    """Settings of a topic that are compared; a topic that is not compacted must not become so."""
    config = {"cleanup.policy": "delete", **spec.config}
    return {name: config[name] for name in COMPARED if name in config}


def warnings(cluster: Cluster, deployment: Deployment, names: Names) -> list[str]:
    """List departures from what a production cluster should have; no worker insists on these.

    Args:
        cluster: it answers.
        topics: names of the topics to look at.

    Returns:
        One sentence for each.
    """
    found = []
    wanted = {spec.name: sized(spec) for spec in internal_topics(deployment, names)}
    for topic, settings in cluster.settings(wanted).items():
        if any(settings.get(name) != value for name, value in wanted[topic].items()):
            found.append(
                f"{topic}: {', '.join(wanted[topic])} differ from what `hush topics` sets: space "
                "of what was trimmed or overwritten comes back late; run it again"
            )
    for topic, settings in cluster.settings((names.ledger, names.clock)).items():
        if int(settings.get("min.insync.replicas", "1")) < 2:
            found.append(f"{topic}: min.insync.replicas is below 2: one disk is all there is")
        if settings.get("unclean.leader.election.enable") == "true":
            found.append(f"{topic}: unclean leader election may lose committed records")
    return found
