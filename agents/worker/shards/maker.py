"""Makes the shards of a worker, and the tables of its standbys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka.structs import TopicPartition as TP

from ....topics.frames import seems_barrier
from ...kafka.cluster import Cluster
from ...stages.topology import AGGREGATE, BOUND, VIEW, StageFactory, StageSpec, Topology
from ..setup import WorkerSetup
from ..shared import Shared
from ..tables.local_state import LocalState
from .rest import Rest, Rests
from .shard import Shard
from .spec import Host, ShardSpec

HELD = 60_000  # rows of units that a shard keeps in memory before it writes them: some 8 MB


class ShardMaker:
    """Names, limits and stages of shards, by input partition."""

    def __init__(
        self,
        setup: WorkerSetup,
        shared: Shared,
        topology: Topology,
        factory: StageFactory,
        rests: Rests,
    ) -> None:
        self._setup = setup
        self._shared = shared
        self._topology = topology
        self._factory = factory
        self._rests = rests

    async def begin(self, tp: TP) -> int:
        """Find the first offset of a release topic, for views; 0 for other stages.

        Raises:
            OutageError: its leader stays away for longer than `kafka.outage_timeout`.
        """
        if self._topology.of(*tp).stage != VIEW:
            return 0
        kafka = self._setup.config.kafka
        cluster = Cluster(kafka, kafka.outage_timeout / 1e6)
        return (await asyncio.to_thread(cluster.offsets.begins, tp.topic, 1))[0]

    def shard(self, tp: TP, begin: int, host: Host, copy: LocalState | None) -> Shard:
        """Make a shard, closed.

        Args:
            begin: result of `begin`.
            copy: table that a standby has left open; None: the table is closed.
        """
        made = self._factory.make(self._topology.of(*tp), tp.partition, begin)
        return Shard(self._shared, self._spec(tp, begin), made, host, copy)

    def copy(self, tp: TP, moved: Callable[[], None]) -> LocalState:
        """Make the table of a standby, closed; ``moved`` as for `LocalState`."""
        return self._spec(tp, 0).state(self._shared, moved)

    def _spec(self, tp: TP, begin: int) -> ShardSpec:
        stage, setup = self._topology.of(*tp), self._setup
        raw = stage.pipeline is None
        return ShardSpec(
            tp,
            self._topology.transactional_id(stage, tp.partition),
            stage.changelog,
            self._topology.written(stage, tp.partition),
            self._topology.publishing_id(stage, tp.partition),
            begin=setup.begin_of(stage.source, tp.partition) if raw else begin,
            # Rows of units change often, so those of several steps go to disk together. Rows that
            # aggregate writes are not read before the next trigger.
            hold=0 if stage.stage in (AGGREGATE, VIEW) else HELD,
            step_bytes=setup.config.engine.step_bytes if raw else 0,
            step_records=setup.config.engine.step_records if raw else 0,
            resume=setup.resume_of(stage.source, tp.partition) if raw else 0,
            place=setup.names.place,
            rest=self._rest(tp, stage),
            is_barrier=seems_barrier if stage.stage == BOUND else None,
        )

    def _rest(self, tp: TP, stage: StageSpec) -> Rest | None:
        if stage.stage == VIEW:
            return None
        if stage.pipeline is None:
            return self._rests.add(tp, stage.source.pipelines, raw=True)
        rest = self._rests.add(tp, [stage.pipeline], raw=False, upstreams=stage.upstreams)
        # It commits only at triggers, or when memory is full.
        return None if stage.stage == AGGREGATE else rest
