"""The Faust application of a worker: one agent for each stage, and one for the clock.

An event is an `Interval`: a whole fetched list of one partition, with the offsets that it covers.
An agent hands it to the shard of that partition and asks for the next at once. Shards commit in
transactions of their own, so Faust's tables, its acknowledgements and its producer are not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

import faust

from ...topics.private_files import private_folder
from ..kafka import transport
from ..kafka.intervals import Interval
from ..kafka.private import of_faust_assignor
from ..kafka.private.of_faust import FailingApp, PromptTables
from ..stages.topology import AGGREGATE, BOUND, INGEST, VIEW, Place, StageSpec, Topology
from .setup import WorkerSetup

Deliver = Callable[[Interval], None]

FETCH_BYTES = 2 << 20  # of one partition in one answer of a broker; a larger batch comes whole


def instance_of(member: str, specs: Iterable[StageSpec], clock: str) -> str | None:
    """Derive a worker's group instance id from its name and what it reads; None if it has no name.

    A member that comes back under a name that the group knows gets its old partitions without a
    rebalance. If its new configuration has other topics, those would stay unread, without an error,
    until the next rebalance. So the id changes with the topics.
    """
    read = sorted({clock, *(_read(spec) for spec in specs)})
    mark = hashlib.sha256("\n".join(read).encode()).hexdigest()[:12]
    return f"{member}-{mark}" if member else None


def _read(spec: StageSpec) -> str:
    seat = f" from {spec.first}" if spec.first else ""
    return f"{spec.topic}/{spec.partitions}{seat}"


def heartbeat_seconds(session: float) -> float:
    """Choose the time between two heartbeats of a member, seconds.

    A member learns of a rebalance from the answer to a heartbeat, and the rebalance waits for all
    members.
    """
    return max(min(session / 5, 0.5), 0.3)


def make_app(
    setup: WorkerSetup,
    topology: Topology,
    fail: Callable[[BaseException], None],
    client_id: str = "hush",
    claimed: Iterable[Place] = (),
) -> faust.App:
    """Make the application of one worker, without its agents.

    Args:
        fail: called with what an agent raised; Faust would acknowledge the event and lose it.
        claimed: partitions for which it has tables.
    """
    transport.register()
    engine, kafka = setup.config.engine, setup.config.kafka
    session = engine.session_timeout / 1e6
    private_folder(setup.data_dir, whole=False)
    app = FailingApp(
        setup.names.group,
        broker=[f"{transport.ALIAS}://{address}" for address in kafka.bootstrap.split(",")],
        broker_credentials=transport.credentials(kafka),
        # Faust's own tables, web pages and leader topic are switched off: state is in the shards.
        store="memory://",
        TableManager=PromptTables,
        broker_client_id=client_id,
        datadir=str(setup.data_dir / "faust"),
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        stream_buffer_maxsize=16,
        stream_wait_empty=False,
        broker_session_timeout=session,
        broker_heartbeat_interval=heartbeat_seconds(session),
        broker_request_timeout=max(60.0, session + 1),
        broker_rebalance_timeout=60.0,
        # A long restore must not look like a dead worker: heartbeats show that it is alive.
        broker_max_poll_interval=3600.0,
        broker_commit_interval=5.0,
        consumer_auto_offset_reset="none",  # a lost position is an error, never a fresh start
        # Clients hold what they fetched, and two copies of each answer while they parse it.
        consumer_max_fetch_size=min(engine.step_bytes, FETCH_BYTES),
        consumer_group_instance_id=instance_of(setup.member, topology.specs, setup.names.clock),
        loghandlers=[],
    )
    app.conf.web_tables_enabled = False
    of_faust_assignor.claim(app.assignor, claimed)
    app.on_agent_failure = fail
    app.outage_timeout = kafka.outage_timeout
    return app


def declare_agents(app: faust.App, topology: Topology, clock: str, deliver: Deliver) -> None:
    """Subscribe the worker to everything that stages read, and to the clock.

    Args:
        deliver: hands an interval to the shard of its partition; never waits.
    """

    async def delivered(intervals: AsyncIterable[Interval]) -> None:
        """Deliver intervals to the shards of a stage."""
        async for interval in intervals:
            deliver(interval)

    for stage in (INGEST, BOUND, AGGREGATE, VIEW):
        if topics := topology.topics(stage):
            app.agent(_topic(app, topics), name=stage)(delivered)

    @app.agent(_topic(app, [clock]), name="clock")
    async def own_clock(intervals: AsyncIterable[Interval]) -> None:
        """Ignore the records: the worker that is assigned this partition owns the clock.

        Every worker reads the clock log, not only its owner, so none of them reads it here.
        """
        async for _ in intervals:
            pass


def _topic(app: faust.App, names: list[str]) -> Any:
    """Topics whose events are intervals, passed through without decoding."""
    return app.topic(*names, key_serializer="raw", value_serializer="raw", internal=False)
