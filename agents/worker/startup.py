"""Starting a worker: every check that must come before the first record is read."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from pathlib import Path

from confluent_kafka import KafkaException

from ...errors import EngineError, LedgerError
from ...mechanisms.noise import fingerprint
from ...topics.config.load import Config
from ...topics.config.secret import noise_key
from ...topics.names import ledger_topic
from ..clock.genesis import read_ledger, verify
from ..clock.ledger import Ledger
from ..deployment.compile import compile_config
from ..kafka.cluster import Cluster
from .http import health_page, metrics_page, serve
from .redaction import on_loop_error
from .setup import WorkerSetup
from .worker import Worker

log = logging.getLogger("hushstream")


def prepare(config: Config, member: str = "", patience: float = 60.0) -> WorkerSetup:
    """Check ledger, key, configuration and topics against each other; fail closed.

    Raises:
        ConfigError, LedgerError, EngineError: what does not fit, and what to do.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return _prepare(config, member, patience)
        except KafkaException as error:  # it answered, and then went away
            if time.monotonic() > until:
                raise EngineError(
                    f"Kafka at {config.kafka.bootstrap} stopped answering: {error.args[0].str()}"
                ) from None
            time.sleep(1.0)


def _prepare(config: Config, member: str, patience: float) -> WorkerSetup:
    secret = noise_key(config)
    cluster = Cluster(config.kafka, patience)
    cluster.wait()
    data_dir = Path(config.engine.data_dir) / (member or "worker")
    ledger = _ledger(cluster, config, data_dir)
    _check_key(ledger, secret)
    topics = cluster.topics()
    numbers = {name: body["number"] for name, body in ledger.pipelines.items()}
    missing = [p.name for p in config.pipeline if p.name not in numbers]
    if missing:
        raise EngineError(f"pipelines {', '.join(missing)} are not declared: run `hush topics`")
    partitions = {i.topic: topics.get(i.topic, 0) for i in config.input}
    deployment = compile_config(config, partitions, numbers)
    names = verify(cluster, deployment, ledger)
    return WorkerSetup(config, deployment, names, ledger, secret, data_dir, member)


def _ledger(cluster: Cluster, config: Config, data_dir: Path) -> Ledger:
    try:
        return read_ledger(cluster, config.deployment.name)
    except LedgerError:
        if data_dir.exists() and any(data_dir.iterdir()):
            topic = ledger_topic(config.deployment.name)
            raise LedgerError(
                f"there is state in {data_dir}, but no ledger {topic!r}: "
                "restore the ledger topic from its backup, or delete the state folder and run "
                "`hush topics` to begin anew"
            ) from None
        raise


def _check_key(ledger: Ledger, secret: bytes) -> None:
    mine = fingerprint(secret)
    for record in ledger.charges.values():
        if record.body["key_fingerprint"] != mine:
            raise LedgerError(
                f"this noise key (fingerprint {mine}) is not the one that ledger record "
                f"{record.seq} was charged with ({record.body['key_fingerprint']}): use that key, "
                "or begin a new deployment (another deployment.name)"
            )


def run_worker(config: Config, member: str = "") -> None:
    """Run one worker process until SIGINT or SIGTERM; raises what made it stop."""
    _collect_rarely()
    asyncio.run(_run(config, member))


def _collect_rarely() -> None:
    """Acyclic short-lived records make frequent garbage collection wasteful."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


async def _run(config: Config, member: str) -> None:
    plan = prepare(config, member)
    worker = Worker(plan)
    engine = config.engine
    servers = []
    if engine.public_port:
        pages = {
            "/metrics": metrics_page(worker.public.registry),
            "/live": health_page(lambda: True),
            "/ready": health_page(lambda: bool(worker.public.ready._value.get())),
        }
        servers.append(serve(engine.public_host, engine.public_port, pages))
    if engine.operator_port:
        page = {"/internal/metrics": metrics_page(worker.operator.registry)}
        servers.append(serve(engine.operator_host, engine.operator_port, page))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(on_loop_error)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: worker.stopped.set())
    log.info("worker %s of deployment %s (%d)", member or "-", plan.names.base, os.getpid())
    try:
        await worker.run()
    finally:
        for server in servers:
            server.shutdown()
