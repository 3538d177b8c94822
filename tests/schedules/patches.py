"""Where the simulation replaces libraries: Kafka clients, RocksDB, time, Faust.

The product's own modules run unchanged. The simulation replaces names of *libraries* that they
import, and `make_app` with `declare_agents`, which stand for Faust. This changes the whole process,
so schedules run in processes of their own.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

from hushstream.agents.clock import genesis, known
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka import clients, cluster, logs, trim
from hushstream.agents.stages.aggregate.computation import Computation
from hushstream.agents.stages.topology import Topology
from hushstream.agents.state import rocks
from hushstream.agents.state.units import block_files
from hushstream.agents.worker import admission, owned_clock, shared, worker
from hushstream.agents.worker.shards import producers, transaction
from hushstream.agents.worker.tables import evidence, local_state, standbys
from hushstream.topics.config.access import ratchet_file

from . import admin, disk, keys, registry, world
from .clients import SimConsumer, SimProducer, send_once
from .group import SimApp
from .standing import StandingApp

GENESIS = "5eed5eed50"
SECRET = bytes(range(32))


class Nothing:
    """Metrics without a reader: every attribute and every call returns the object itself."""

    def __getattr__(self, name: str) -> Nothing:
        return self

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        """Let errors pass."""


def install() -> None:
    """Install the simulation, once for all schedules of this process."""
    library = SimpleNamespace(AIOKafkaProducer=SimProducer, AIOKafkaConsumer=SimConsumer)
    _replace(clients, aiokafka=library, send_once=send_once, new_epochs=lambda producer: True)
    _replace(clients, end_forgotten=_nothing_hangs)  # this broker ends every transaction
    _replace(producers, ended=_ended)
    _replace(cluster, AdminClient=admin.Administration, Producer=admin.Writer)
    _replace(logs, Consumer=admin.Reader)
    _replace(trim, AdminClient=admin.Administration)
    _replace(genesis, secrets=SimpleNamespace(token_hex=lambda size: GENESIS))
    seeded = SimpleNamespace(token_hex=lambda size: world.current().urandom(size).hex())
    _replace(known, secrets=seeded)
    counted = SimpleNamespace(token_hex=lambda size: world.current().name(size))
    _replace(transaction, secrets=counted)
    _replace(rocks, Rdict=disk.Table, WriteBatch=disk.Writes, ReadOptions=disk.Span)
    _replace(block_files, SstFileWriter=disk.Rows)
    _replace(local_state, discard=disk.discard)
    _replace(admission, Path=disk.Folder, noise_key=lambda config: SECRET,
             may_read=admin.may_read, could_be_made=disk.could_be_made)  # fmt: skip
    _replace(worker, os=SimpleNamespace(urandom=lambda size: world.current().urandom(size)),
             make_app=_app, declare_agents=_subscribe,
             asking_of=registry.asking_of)  # fmt: skip
    _replace(ratchet_file, Path=keys.File, read=keys.read, replace=keys.replace,
             locked=keys.locked)  # fmt: skip
    _spare()
    _watch_noise()
    _watch_copies()
    for name, module in list(sys.modules.items()):
        ours = name.startswith("hushstream.agents.")
        if ours and type(getattr(module, "time", None)).__name__ == "module":
            _replace(module, time=world.VirtualTime)
    assert evidence.time is world.VirtualTime  # type: ignore[comparison-overlap]


async def _nothing_hangs(*_: Any) -> None:
    """Find no transaction without an end."""


async def _ended(producer: SimProducer, place: Any) -> None:
    """Wait until a producer has no open transaction in a partition."""
    broker = producer._broker
    while True:
        if not await broker.call(lambda: broker.writing(producer._id, tuple(place))):
            return
        await asyncio.sleep(0.05)


def _replace(module: Any, **names: Any) -> None:
    for name, made in names.items():
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, made)


def _app(setup: Any, topology: Topology, fail: Any, client_id: str, claimed: Any) -> SimApp:
    if setup.config.engine.standbys:
        return StandingApp(setup, fail, client_id, claimed)
    return SimApp(setup, fail)


def _subscribe(app: SimApp, topology: Topology, clock: str, deliver: Any) -> None:
    app.subscribe([*{spec.topic: None for spec in topology.specs}, clock], deliver)


def _spare() -> None:
    """Skip what costs time and decides nothing: metrics, options of RocksDB, compiling."""
    nothing = Nothing()
    _replace(worker, OperatorMetrics=lambda: nothing, PublicMetrics=lambda: nothing)
    _replace(shared, Cache=lambda size: None)
    _replace(owned_clock, code_version=lambda: "simulated")
    _replace(rocks, _options=lambda cache, buffer: None, WriteOptions=SimpleNamespace)
    compiled: dict[Any, Deployment] = {}
    compile_config = admission.compile_config

    def once(config: Any, partitions: Any, numbers: Any, spread: Any) -> Deployment:
        key = (id(config), tuple(partitions.items()), tuple((numbers or {}).items()), spread)
        if key not in compiled:
            compiled[key] = compile_config(config, partitions, numbers, spread)
        return compiled[key]

    _replace(admission, compile_config=once)


def _watch_copies() -> None:
    """Count the shards that open with a copy."""
    take = standbys.Standbys.take

    async def watched(self: Any, tp: Any) -> Any:
        copy = await take(self, tp)
        world.current().taken += copy is not None
        return copy

    standbys.Standbys.take = watched  # type: ignore[method-assign]


def _watch_noise() -> None:
    """Note the contents for which each noise is drawn: one label must never have two."""
    run = Computation.run

    def watched(self: Any, reader: Any, trigger: Any, chosen: Any, nonces: Any, step: Any) -> Any:
        releases = run(self, reader, trigger, chosen, nonces, step)
        if chosen.end is None:
            nonce = [n for begin, n in nonces if begin <= trigger.index][-1]
            label = (trigger.charge, trigger.window, trigger.index, self._partition, nonce)
            content = (releases.key.tolist(), releases.value.tolist())
            world.current().contents.setdefault(label, set()).add(repr(content))
        return releases

    Computation.run = watched  # type: ignore[method-assign]
