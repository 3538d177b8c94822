"""Admission: may a worker start? The one decision that `hush worker` and `hush check` share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from confluent_kafka import KafkaException

from ...errors import EngineError, KeyOutageError, LedgerError, OutageError, RightError
from ...mechanisms.noise import fingerprint
from ...topics.config.access.ratchet_file import RatchetFile, ratchet_of
from ...topics.config.access.secret import noise_key, own_keys, signing_key
from ...topics.config.load import Config
from ...topics.config.model import Kafka
from ...topics.names import Names, ledger_topic
from ...topics.private_files import could_be_made
from ..clock.begins import read_begins
from ..clock.forecast import forecast
from ..clock.genesis import NoLedgerError, read_ledger, refuse_lost
from ..clock.ledger import FORMAT, Ledger
from ..clock.loss.accept import read_accepted, resumed
from ..clock.loss.found import Loss, check_lost, find_lost
from ..clock.pinned import signed, verify, verify_key, verify_signing, verify_there
from ..clock.start import check_clock_log
from ..clock.timeline import Timeline
from ..clock.witness import Witness
from ..deployment.cluster.growth import with_joined
from ..deployment.cluster.rights import Role, rights, wanted
from ..deployment.cluster.topic_specs import (
    PUBLIC,
    TopicSpec,
    internal_topics,
    public_topics,
    sized,
)
from ..deployment.compile import compile_config
from ..deployment.compiling.lineage import with_lineage
from ..deployment.model import Deployment
from ..deployment.published.schema_pins import with_pinned_codecs
from ..kafka.access.groups import may_read
from ..kafka.access.orphans import left_behind
from ..kafka.access.owners import verify_owned
from ..kafka.access.refusals import user_of
from ..kafka.cluster import Cluster
from ..kafka.logs import passing
from ..snapshots.objects import Objects
from .forgetting import check_ratchet
from .setup import WorkerSetup
from .tables.evidence import check_tables

Told = Callable[[str], None]
ATTEMPT_SECONDS = 30.0  # that one attempt waits for each part of the cluster that does not answer
STRANGE_SECONDS = 60.0  # for errors that seem not to be transient
SAID_SECONDS = 60.0
CONFIRM_SECONDS = 5.0  # within which a broker that was cut off usually learns of the new leaders
CUT_OFF = (
    "(looked at twice; a broker that is cut off from the others answers with what was before, and "
    "looks the same: then start again once they are together)"
)
log = logging.getLogger("hushstream")
COMPARED = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


class _Patience:
    """Limits how long a start waits for a cluster that does not answer, and logs the wait."""

    def __init__(self, where: str, seconds: float, waiting: Callable[[], None]) -> None:
        self._where, self._seconds, self._waiting = where, seconds, waiting
        self._began = time.monotonic()
        self._said = -SAID_SECONDS

    def tell(self, reason: str, what: str = "") -> None:
        """Log what the start waits for (empty: the cluster), at most once per `SAID_SECONDS`."""
        self._waiting()
        waited = time.monotonic() - self._began
        if waited - self._said >= SAID_SECONDS:
            self._said = waited
            log.warning("the start is waiting for %s, for up to %g s: %s",
                        what or f"Kafka at {self._where}", self._seconds, reason)  # fmt: skip

    def check(self, error: OutageError | KafkaException) -> None:
        """Log why an attempt failed; raise its error once the patience is used up."""
        if isinstance(error, OutageError):
            reason, most = str(error), self._seconds
        else:
            reason = f"Kafka at {self._where} stopped answering: {error.args[0].str()}"
            most = self._seconds if passing(error.args[0]) else STRANGE_SECONDS
        if time.monotonic() - self._began > min(most, self._seconds):
            raise EngineError(f"{reason} (waited for {min(most, self._seconds):g} s)") from None
        self.tell(reason, "a key" if isinstance(error, KeyOutageError) else "")


def _passed() -> None:
    """Do nothing."""


def prepare(
    config: Config,
    member: str = "",
    patience: float = 60.0,
    told: Told | None = None,
    waiting: Callable[[], None] = _passed,
    role: Role = "worker",
    whole: Callable[[], Config] | None = None,
) -> WorkerSetup:
    """Decide whether a worker may start, from the cluster as it is; see `admit`.

    Args:
        member: name of the worker, and of its folder below ``engine.data_dir``.
        patience: seconds to wait for a cluster, a partition, or a key's command, without an answer.
        told: called with each finding in order, also where a later one stops the worker.
        waiting: called, again and again, while something does not answer.
        role: role whose rights the cluster must grant; a replay only reads.
        whole: reads the configuration with its tables of topics; None: it has them.

    Raises:
        ConfigError, LedgerError, EngineError: something does not fit; the message says what to do.
    """
    left, refused = _Patience(config.kafka.bootstrap, patience, waiting), False
    while True:
        found: list[str] = []
        cluster = Cluster(config.kafka, min(patience, ATTEMPT_SECONDS), role)
        try:
            cluster.wait(left.tell)
            config = config if whole is None else whole()
            return admit(config, cluster, member, found.append, role)
        except (OutageError, KafkaException) as error:
            # The cluster answered and then went away. Earlier findings may be stale when it is
            # back, so every check runs again.
            left.check(error)
            found.clear()
            time.sleep(1.0)
        except (LedgerError, EngineError) as error:
            if isinstance(error, RightError) or not _divisible(cluster):
                raise
            if refused:
                error.args = (f"{error} {CUT_OFF}",)
                raise
            refused = True
            found.clear()
            time.sleep(CONFIRM_SECONDS)
        finally:
            if told is not None:
                for text in found:
                    told(text)


def _divisible(cluster: Cluster) -> bool:
    """Whether the broker that answered may be cut off from others."""
    try:
        return cluster.brokers() > 1
    except KafkaException:
        return False


def admit(
    config: Config, cluster: Cluster, member: str, told: Told, role: Role = "worker"
) -> WorkerSetup:
    """Check key, configuration, topics, ledger and clock log against each other; fail closed.

    Raises:
        ConfigError, LedgerError, EngineError: something does not fit; the message says what to do.
    """
    # The order matters. Every check relies on those before it: without the right key no seal can
    # be read, and without a whole ledger nothing says which topics are the right ones.
    secret = noise_key(config)
    told(f"noise key, fingerprint {fingerprint(secret)}")
    ratchet = _ratchet(config, role)  # before the ledger, which must reach at least as far
    topics = cluster.topics()
    told(f"cluster at {config.kafka.bootstrap}: {len(topics)} topics")
    ledger = _ledger(cluster, config)
    verify_key(ledger, secret)
    signing = None if role == "auditor" or ledger.public_key is None else signing_key(config)
    if role != "auditor":
        verify_signing(ledger, signing)
    told(signed(ledger))
    numbers = {name: body["number"] for name, body in ledger.pipelines.items()}
    known = {p.name for p in config.pipeline} <= set(numbers)
    partitions = {i.topic: cluster.partitions(i.topic, "READ") for i in config.input}
    verify_there([t for t, number in partitions.items() if number], partitions, ledger)
    _check_inputs(cluster, partitions, {one.topic for one in config.input if one.attributes_of})
    told(f"input topics: {', '.join(f'{t} ({n} partitions)' for t, n in partitions.items())}")
    own = own_keys(config)
    for name, key in own.items():
        told(f"noise key of pipeline {name}, fingerprint {fingerprint(key)}")
    compiled = compile_config(config, partitions, numbers if known else None, ledger.spread)
    deployment = compiled.with_keys(own)
    _check_rights(config.kafka, cluster, deployment, ledger, role)
    names = verify(cluster, deployment, ledger)
    deployment = with_lineage(with_pinned_codecs(deployment, ledger.pipelines), ledger.pipelines)
    deployment = with_joined(
        deployment, {p.name: ledger.joined(p.name) for p in deployment.pipelines}
    )
    verify_owned(cluster, deployment)
    _check_settings(cluster, deployment, names)
    told("topics: those that the ledger pinned, set and owned as they must be")
    data_dir = Path(config.engine.data_dir) / (member or "worker")
    if role == "worker":
        could_be_made(data_dir)
    tables = check_tables(config.kafka, cluster, names, data_dir)
    told(f"local tables: {tables}, none of them ahead of the cluster")
    begins = read_begins(cluster, names, ledger, secret)
    accepted = read_accepted(cluster, names, ledger, secret)
    ledger, lines = check_clock_log(config.kafka, cluster, names, ledger, deployment)
    witness = witness_of(config, names, secret)
    if witness is not None:
        witness.check(config.kafka, lambda: read_ledger(cluster, names.deployment))
        told(f"witness {config.engine.witness}: it has seen nothing that the cluster lacks")
    told(f"ledger: {len(ledger.charges)} charges, chain whole, every trigger paid for")
    if ratchet is not None:
        check_ratchet(ratchet, ledger, deployment, lines)
        told(f"ratchet {ratchet.name}: at record {ratchet.step}, {len(ratchet.kept)} keys kept")
    setup = WorkerSetup(
        config, deployment, names, ledger, secret, data_dir, member, begins, witness, own, accepted,
        owed(deployment, ledger, lines, int(time.time() * 1e6)), signing,
        ratchet,
    )  # fmt: skip
    if role == "worker":
        if url := config.engine.snapshots:
            Objects(url)  # so that a bad address fails here and not in a worker
            told(f"snapshots of tables: {url}")
        check_format(ledger)
        told(f"format {ledger.format}, that of this version")
        check_lost(lost(cluster, setup))
        told("raw topics: all that was not used is there")
        told(owing(setup.owed))
    return setup


def owed(
    deployment: Deployment, ledger: Ledger, lines: Mapping[str, Timeline], now: int
) -> dict[str, int]:
    """Count the epochs that a start at ``now`` (microseconds) charges at once, by pipeline, if any.

    This includes triggers that came due while no worker ran the clock, even for windows without
    records: charges are public, and must not depend on whether records came.
    """
    found = {
        p.name: forecast(p, lines[p.name], ledger, now).charges
        for p in deployment.pipelines
        if not p.external and lines[p.name].first is not None
    }
    return {name: number for name, number in found.items() if number}


def owing(charges: Mapping[str, int]) -> str:
    """Say how many epochs a start charges at once."""
    if not charges:
        return "charges: none is due"
    each = ", ".join(f"{name}: {number}" for name, number in charges.items())
    return (
        f"charges: a start now charges {sum(charges.values())} epochs that are due ({each}), "
        "including those in which no worker ran; set `until` to retire a pipeline instead"
    )


def lost(cluster: Cluster, setup: WorkerSetup) -> list[Loss]:
    """Find raw records that were deleted before they were used, and are not accepted as lost."""
    return find_lost(
        setup.config.kafka, cluster, setup.names, setup.deployment, setup.ledger, setup.begins,
        resumed(setup.accepted),
    )  # fmt: skip


def check_format(ledger: Ledger) -> None:
    """Refuse to write under a format that the ledger lacks: an older version would not stop.

    Raises:
        EngineError: the ledger names an earlier one.
    """
    if ledger.format < FORMAT:
        raise EngineError(
            f"this deployment has format {ledger.format}, and workers of this version write "
            f"{FORMAT}: stop all workers and run `hush topics` of this version; no version that "
            f"does not know format {FORMAT} goes on after that"
        )


def witness_of(config: Config, names: Names, secret: bytes) -> Witness | None:
    """Make the configured witness; None if the configuration names none."""
    path = config.engine.witness
    return Witness(Path(path), names, secret) if path else None


def _ratchet(config: Config, role: Role) -> RatchetFile | None:
    """Read the ratchet, if one is configured; only a worker must have it."""
    if role != "worker" and not Path(config.secret.ratchet_file).exists():
        return None
    return ratchet_of(config)


def _ledger(cluster: Cluster, config: Config) -> Ledger:
    """Read the ledger; if it is missing, look for signs that one existed."""
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


def _check_rights(
    kafka: Kafka, cluster: Cluster, deployment: Deployment, ledger: Ledger, role: Role
) -> None:
    """Ask the cluster for every right now: a missing one would stop a worker later."""
    names = ledger.names(deployment.name)
    specs = [*public_topics(deployment), *internal_topics(deployment, names)]
    every = [*(source.topic for source in deployment.inputs), *(spec.name for spec in specs)]
    cluster.rights.demand(wanted(rights(role, deployment, names), every))
    if role == "worker":
        _check_group(kafka, names.group, role)


def _check_group(kafka: Kafka, group: str, role: Role) -> None:
    if not may_read(kafka, group):
        raise RightError([("READ", "group", group)], user_of(kafka), role)


def _check_inputs(cluster: Cluster, partitions: dict[str, int], stating: Container[str]) -> None:
    others = (topic for topic in partitions if topic not in stating)
    for topic, settings in cluster.settings(others).items():
        if "compact" in settings.get("cleanup.policy", "delete"):
            raise EngineError(
                f"input topic {topic!r} is compacted: records vanish from it, and a replay would "
                "count others; use a topic with cleanup.policy=delete"
            )


def _check_settings(cluster: Cluster, deployment: Deployment, names: Names) -> None:
    """Check the topic settings that protect state, or hide load; name all wrong ones.

    If the broker deletes or compacts records too early, state is lost. Records of the release topic
    must carry our timestamps: the broker's would show how long a release took.
    """
    released = [
        t for p in deployment.pipelines for t in (p.release_topic, p.latest_topic) if t is not None
    ] + [v.release_topic for v in deployment.views]
    kept = {names.ledger, *(spec.name for spec in internal_topics(deployment, names))}
    specs = [*public_topics(deployment), *internal_topics(deployment, names)]
    required = {s.name: _wanted(s) for s in specs if s.name in kept}
    required |= {t: {"message.timestamp.type": PUBLIC["message.timestamp.type"]} for t in released}
    found = cluster.settings(required)
    wrong = [
        f"topic {topic} has {name}={found[topic].get(name)}, and must have {value}"
        for topic, settings in required.items()
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
    """List settings that a production cluster should have and this one lacks; not enforced."""
    found = []
    space = {spec.name: sized(spec) for spec in internal_topics(deployment, names)}
    for topic, settings in cluster.settings(space).items():
        if any(settings.get(name) != value for name, value in space[topic].items()):
            found.append(
                f"{topic}: {', '.join(space[topic])} differ from what `hush topics` sets: space "
                "of what was trimmed or overwritten comes back late; run it again"
            )
    for topic, settings in cluster.settings((names.ledger, names.clock)).items():
        if int(settings.get("min.insync.replicas", "1")) < 2:
            found.append(f"{topic}: min.insync.replicas is below 2: one disk is all there is")
        if settings.get("unclean.leader.election.enable") == "true":
            found.append(f"{topic}: unclean leader election may lose committed records")
    return found + [str(one) for one in left_behind(cluster, deployment.name, names.genesis)]
