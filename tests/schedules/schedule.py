"""One schedule: a deployment, records, faults at random times; then quiet, and a verdict."""

from __future__ import annotations

import gc
import json
import logging
import sys
from asyncio import events
from dataclasses import dataclass, field
from random import Random
from typing import Any

import hushstream.agents.worker.shards.maker as maker_module
from hushstream.agents.deployment.model import Deployment
from hushstream.topics.records import TriggerRequest, encode

from tests.judge.places import home
from tests.judge.stream import Objection

from .deployments import (
    EVERY,
    FURTHER,
    HISTOGRAMS,
    OTHERS,
    OUTAGE,
    SESSION,
    Template,
    template,
)
from .draws import OPERATED
from .ends import FORGOTTEN, GONE, LATE, OF_ONE, REFUSAL
from .faults import Faults
from .group import Group
from .log import START
from .loop import HERE, Stuck
from .machine import Machine
from .network import SERVER
from .operator import Operator
from .recipe import Recipe, has_standbys
from .records import Devices, more
from .registry import framed
from .standing import StandingGroup
from .verdict import RELEASES, committed, judge, noise, waiting
from .world import World, current, enter

TROUBLE = (8.0, 14.0, 20.0)  # faults begin within one of these numbers of seconds
REFUSED = 15.0  # seconds that a schedule continues when workers refuse a rewound cluster
BOUND = 150.0  # seconds from the end of the last fault until everything due must be done
RECORDS = 24
SHARE = 0.2  # share of the schedules that have a deployment of `FURTHER`
KINDS = (*OTHERS, *["histogram"] * len(OTHERS))


@dataclass
class Outcome:
    """The result of one schedule.

    Attributes:
        trace: a number that depends on every choice and on every byte of every log.
        faults: events in words.
        exits: time, name and error of workers that ended by themselves.
        recovery: virtual seconds from the last fault to the end.
        torn: number of transactions' requests that came late or twice.
        taken: number of copies with which shards opened.
        mechanism: mechanism that released.
    """

    seed: int
    trace: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    exits: list[tuple[float, str, str]] = field(default_factory=list)
    recovery: float = 0.0
    torn: int = 0
    taken: int = 0
    callbacks: int = 0
    mechanism: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.differing or self.stuck)


class Schedule:
    """Runs one seed.

    Args:
        seed: seed of everything, or a recipe.
        kind: kind of deployment; empty: drawn from the seed.
    """

    def __init__(self, seed: int | Recipe, kind: str = "") -> None:
        self.recipe = Recipe(seed) if isinstance(seed, int) else seed
        seed = self.recipe.seed
        self.outcome = Outcome(seed)
        self.world = world = World(seed)
        random = world.random
        self.kind = kind or kind_of(seed)
        variant = str(random.randrange(len(HISTOGRAMS)))
        variant = variant if self.kind == "histogram" else self.kind
        standing = has_standbys(seed)
        self.template: Template = template(variant, random.random() < 0.5, standing)
        enter(world)
        self.template.build(world.broker)
        world.group = StandingGroup(world, SESSION) if standing else Group(world, SESSION)
        maker_module.HELD = random.choice((0, 4, 60_000))
        self._trouble = random.choice(TROUBLE)
        names = ["a", "b", "c"][: random.choice((2, 2, 3) if standing else (1, 2, 2, 2, 3))]
        self.machines = [Machine(world, self.template.config, n, self._ended) for n in names]
        changelog = self.template.names.changelog("ingest", "events")
        self.outcome.mechanism = self.template.deployment.pipelines[0].kind
        self._devices = Devices(self.template, random)
        self.operator = None
        if self.kind in OPERATED:
            self.operator = Operator(world, self.machines, self.template)
        self.faults = Faults(
            world, self.machines, self.outcome.faults, changelog, self.kind, self.operator
        )
        self._elsewhere = Random(f"elsewhere {seed}")

    def run(self) -> Outcome:
        """Run the schedule to its end."""
        events._set_running_loop(self.world.loop)
        try:
            self._run()
        except Stuck as error:
            self.outcome.stuck.append(str(error))
        finally:
            events._set_running_loop(None)
        loop, made = self.world.loop, self.outcome
        logs = tuple(tuple(log.records) for log in self.world.broker.logs.values())
        made.trace = hash(repr((loop.trace, logs))) & 0xFFFFFFFFFFFFFFFF
        made.callbacks, made.torn = loop.ran, self.world.broker.tore
        made.taken = self.world.taken
        return made

    def plan(self) -> float:
        """Plan records, requests, starts and faults; return when the last fault is over."""
        loop, random = self.world.loop, self.world.random
        self._produce()
        self._requests()
        for machine in self.machines:
            loop.call_later(random.random() * 2, machine.start, context=SERVER)
        for turn in self.recipe.turns:
            other = f"{self.recipe.seed} {turn.number}"
            loop.call_at(turn.at, random.seed, other, context=SERVER)
        return self.faults.plan(self._trouble, self.recipe.faults)

    def _run(self) -> None:
        loop = self.world.loop
        peace = self.plan()
        loop.run(peace)
        self.faults.heal()
        until = int((START + (peace // EVERY + 1) * EVERY) * 1e6)
        self._ask(until, max(until / 1e6 - START - peace, 0.0))
        left = self._left(until)
        while left and loop.now < peace + (REFUSED if self._refused else BOUND):
            loop.run(loop.now + 1.0)
            left = self._left(until)
        self.outcome.recovery = loop.now - peace
        self.outcome.stuck.extend(self.world.group.objections)
        if left and not self._refused:
            self.outcome.stuck.append(f"{left} {loop.now - peace:.0f} s after the last fault")
        if self._refused:  # all workers must then be stopped, and releases of others are void
            self.outcome.doubled.extend(noise(self.world))
            return
        try:
            told = judge(self.world, self.template, self._deployment)
        except Objection as error:  # no program could follow such a clock log
            told = {"differing": [str(error)]}
        if self.faults.resets.of_one:  # bad records are set aside again, which counts nobody twice
            counted = [one for one in told.get("doubled", ()) if not one.startswith("dead letter")]
            told["doubled"] = counted
        for kind, found in told.items():
            getattr(self.outcome, kind).extend(found)

    @property
    def _deployment(self) -> Deployment:
        return self.template.deployment if self.operator is None else self.operator.deployment

    def _left(self, until: int) -> str:
        """What is still to be done, in words."""
        if self.operator is not None and self.operator.left:
            return self.operator.left
        return waiting(self.world.broker, self.template, until)

    @property
    def _refused(self) -> bool:
        """Whether a worker has refused a cluster that was reset to an earlier state.

        A worker that stops later, at the first gap that it meets, has not noticed the reset in
        time.
        """
        if not self.faults.resets.rewound:  # it has asked a former leader
            return False
        texts = [text for _, _, text in self.outcome.exits if text.startswith(REFUSAL)]
        texts += [t for _, _, t in self.outcome.exits if FORGOTTEN in t or GONE in t]
        ends = [text for _, _, text in self.outcome.exits]
        if self.faults.resets.of_one and any(one in t for t in ends for one in OF_ONE):
            return True
        return any(not any(late in text for late in LATE) for text in texts)

    def _ended(self, name: str, error: Any) -> None:
        if error is None:
            return
        text = f"{type(error).__name__}: {error}"
        self.outcome.exits.append((round(self.world.loop.now, 3), name, text))
        if not self.faults.warrants(text, name):
            self.outcome.stuck.append(f"{name} ended at {self.world.loop.now:.1f} s: {text}")

    # -- records ----------------------------------------------------------------------------------

    def _produce(self) -> None:
        random, loop = self.world.random, self.world.loop
        for number in range(RECORDS):
            at = 0.5 + random.random() * (self._trouble + 4)
            left_out = number in self.recipe.without
            if self.kind == "topl":
                work, what = self._report, (number, at)
            else:
                work, what = self._send, (self._record(number, at),)  # type: ignore[assignment]
            if not left_out:
                loop.call_later(at, work, *what, context=SERVER)

    def _record(self, number: int, at: float) -> tuple[int, bytes, bytes]:
        random = self.world.random
        user = f"u{random.randrange(6)}"
        away = random.random()
        shift = 40.0 if away < 0.03 else -25.0 if away < 0.1 else -2.0 * random.random()
        made = {
            "user": user,
            "page": random.choice("aaaabbcd"),
            "t": int((START + at + shift) * 1e6),
        }
        if self.kind == "framed":
            return self._addressed(user, framed(made, random), number)
        value = json.dumps(made | more(self.kind, random)).encode()
        return self._addressed(user, value, number)

    def _report(self, number: int, at: float) -> None:
        """Send a device's report, by the thresholds published so far."""
        told = [r.value for r in committed(self.world.broker, RELEASES)]
        user = f"d{number}"
        value = self._devices.report(user, int(START + at), told)
        if value is not None:
            self._send(self._addressed(user, value, number))

    def _addressed(self, user: str, value: bytes, number: int) -> tuple[int, bytes, bytes]:
        value = value if self.world.random.random() > 0.05 else b"bad %d" % number
        return home((user,), "murmur2", len(self.template.begins)), user.encode(), value  # type: ignore[return-value]

    def _requests(self) -> None:
        """Request each trigger when it is due, some twice, and cancel some requests."""
        random = self.world.random
        for number in range(1, int(self._trouble // EVERY) + 1):
            at, due = number * EVERY + random.random() * 5, int((START + number * EVERY) * 1e6)
            for _ in range(1 + (random.random() < 0.2)):
                self._ask(due, at, cancel=random.random() < 0.1)

    def _ask(self, due: int, seconds: float, cancel: bool = False) -> None:
        request = TriggerRequest(f"{due} {seconds}", due, None, cancel)
        topic = self.template.names.requests
        self.world.loop.call_later(seconds, self._append, (topic, 0), None, encode(request),
                                   context=SERVER)  # fmt: skip

    def _append(self, place: Any, key: Any, value: bytes) -> None:
        """Append an outsider's record; retry while the broker is away."""
        if self.world.broker.down:
            self.world.loop.call_later(1.0, self._append, place, key, value, context=SERVER)
        else:
            self.world.broker.append(place, key, value, None, ())

    def _send(self, record: Any) -> None:
        partition, key, value = record
        random = self.world.random
        many = self.world.broker.topics["events"]
        if many > len(self.template.begins) and self._elsewhere.random() < 0.5:
            partition = self._elsewhere.randrange(len(self.template.begins), many)
        self._append(("events", partition), key, value)
        if random.random() < 0.05:  # a retry: the duplicate counts as a record
            self.world.loop.call_later(random.random() * 5, self._send, record, context=SERVER)


def kind_of(seed: int) -> str:
    """The kind of a schedule: "histogram", or a name of `deployments.OTHERS` or `FURTHER`."""
    further = Random(f"further kind of {seed}")
    if further.random() < SHARE:
        return further.choice((*FURTHER,))
    return Random(f"kind of {seed}").choice(KINDS)


def run(seed: int | Recipe) -> Outcome:
    """Run one seed or recipe, in a process in which `patches.install` was called."""
    return Schedule(seed).run()


def planned(seed: int) -> set[str]:
    """The kinds of a seed's faults, without running it."""
    one = Schedule(seed)
    one.plan()
    return {told.split()[2] for told in one.outcome.faults}


def _line(record: logging.LogRecord) -> bool:
    process = HERE.get()
    name = "-" if process is None else process.name
    print(f"{current().loop.now:9.3f} {name} {record.name}: {record.getMessage()}")
    return False


def quiet(aloud: bool = False) -> None:
    """Silence the product and disable garbage collection: processes end before it matters.

    Args:
        aloud: whether to print the product's log with virtual time and worker.
    """
    for name in ("hushstream", "asyncio"):
        logging.getLogger(name).setLevel(logging.INFO if aloud else logging.CRITICAL + 1)
    if aloud:
        handler = logging.StreamHandler()
        handler.addFilter(_line)
        logging.getLogger("hushstream").addHandler(handler)
    gc.disable()
    sys.unraisablehook = lambda _: None


assert OUTAGE < BOUND
