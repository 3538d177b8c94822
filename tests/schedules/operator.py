"""An operator who changes a deployment: stops all workers, runs `hush topics`, restarts them.

The command is the product's and runs in its own process, which may be killed at any point; then it
is repeated, as the documentation allows. Faults continue meanwhile.
"""

from __future__ import annotations

from functools import lru_cache, partial
from random import Random
from typing import Any

from confluent_kafka import KafkaException
from hushstream.agents.clock.genesis import Beginning
from hushstream.agents.clock.start import last_triggers
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.cluster import Cluster
from hushstream.errors import HushError, LedgerError
from hushstream.topics.config.load import Config

from .deployments import Template, followed
from .log import START
from .loop import Process
from .machine import Machine
from .network import SERVER
from .patches import SECRET
from .world import World

NAME = "operator"
ADDED = 1  # partitions
LENGTH = 10  # seconds in a window
STOPPING = 3.0  # seconds until workers that have not stopped are killed
OPERATORS = 10**15  # apart from all seeds


@lru_cache(None)
def _grown(template: Template, partitions: int) -> Deployment:
    return compile_config(template.config, {"events": partitions})


class Operator:
    """Changes the deployment of one schedule, once.

    Args:
        template: deployment before the change.

    Attributes:
        deployment: deployment after the change.
        left: remaining work, in words; empty: none.
    """

    def __init__(self, world: World, machines: list[Machine], template: Template) -> None:
        self._world, self._machines, self._template = world, machines, template
        self._random = Random(world.seed + OPERATORS)
        self.deployment = template.deployment
        self._config = template.config
        self.left = ""
        self._end = 0

    # -- what is changed --------------------------------------------------------------------------

    def follow(self, at: float) -> float:
        """Let another pipeline follow; return the virtual second at which its windows begin."""
        self.left = "the operator has not declared the next generation"
        self._end = (int(at + STOPPING + 2) // LENGTH + 1) * LENGTH
        self._world.loop.call_at(at, self._stop, self._follow, context=SERVER)
        return float(self._end)

    def grow(self, at: float, seconds: float) -> None:
        """Add partitions to the raw topic, and count them some seconds later."""
        self.left = "the operator has not counted the new partitions"
        loop = self._world.loop
        loop.call_at(at, self._add, context=SERVER)
        loop.call_at(at + seconds, self._stop, self._grow, context=SERVER)

    def warrants(self, text: str) -> bool:
        """Whether a worker may end with this error: added partitions are not counted yet."""
        return bool(self.left) and "hush topics --grow" in text

    def _follow(self) -> Config:
        now, begun = self._now(), True
        standing = self._config.engine.standbys > 0
        while True:
            until = int((START + self._end) * 1e6)
            config, made = followed(until, len(self._template.begins), standing)
            try:
                self._beginning(made, now).begin()
            except LedgerError:  # the epoch has begun by now
                assert begun, "no boundary is late enough"
                begun, self._end = False, (int(self._world.loop.now) // LENGTH + 1) * LENGTH
                continue
            self.deployment = made
            return config

    def _grow(self) -> Config:
        made = _grown(self._template, self._world.broker.topics["events"])
        grow = partial(last_triggers, self._config.kafka)
        self._beginning(made, self._now(), grow).begin()
        self.deployment = made
        return self._config

    def _beginning(self, made: Deployment, now: int, grow: Any = None) -> Beginning:
        return Beginning(Cluster(self._config.kafka), made, -1, now, SECRET, grow)

    def _now(self) -> int:
        return int((START + self._world.loop.now) * 1e6)

    def _add(self) -> None:
        broker = self._world.broker
        broker.extend("events", broker.topics["events"] + ADDED)

    # -- how --------------------------------------------------------------------------------------

    def _later(self, seconds: float, work: Any, *args: Any) -> None:
        self._world.loop.call_later(seconds, work, *args, context=SERVER)

    def _stop(self, work: Any) -> None:
        for machine in self._machines:
            machine.up = False
            machine.stop()
        self._later(STOPPING, self._run, work)

    def _run(self, work: Any) -> None:
        for machine in self._machines:
            machine.kill(0.0)
        process = Process(NAME)
        self._world.loop.call_soon(self._command, process, work, context=process.context)
        if self._random.random() < 0.4:
            self._later(self._random.random() * 2, self._cut_off, process, work)

    def _cut_off(self, process: Process, work: Any) -> None:
        if not process.dead:
            process.dead = True
            self._later(0.5 + self._random.random(), self._run, work)

    def _command(self, process: Process, work: Any) -> None:
        try:
            config = work()
        except (
            HushError,
            KafkaException,
        ) as error:  # the brokers are away, or the clock was faster
            self.left = f"the operator tries again: {type(error).__name__}: {error}"
            process.dead = True
            self._later(1.0, self._run, work)
            return
        process.dead = True
        self.left = ""
        for machine in self._machines:
            machine.set_config(config)
            self._later(self._random.random() * 2, machine.start)
