"""Outages while producers buffer, in virtual time: which records were in time and end up late?

    python -m tests.schedules.outages --case moved --seed 3

There is one event each tenth of a second, sent when it happens. While the brokers are away, its
producer keeps it and sends it within some seconds of their return. Whatever the clock does, all of
these records must be before the last cut of their window.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.judge.places import home

from .deployments import RAW, SESSION, template
from .faults import Faults
from .group import Group
from .log import START
from .machine import Machine
from .network import SERVER
from .verdict import committed, triggers, waiting
from .world import World, enter

BEGIN, END = 14.0, 60.0  # seconds of the fault
FLUSH = 8.0  # seconds from the brokers' return until producers have sent everything
UNTIL = 100.0  # of the events
LENGTH = 10_000_000  # of a window, in microseconds
ORIGIN = int(START * 1e6)


class Case:
    """One run.

    Args:
        seed: seed of everything but the fault.
    """

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.template = template("late", False)
        enter(world)
        self.template.build(world.broker)
        world.group = Group(world, SESSION)
        self.exits: list[str] = []
        self.machines = [
            Machine(world, self.template.config, name, self._ended) for name in ("a", "b")
        ]
        self.faults = Faults(world, self.machines, [], "")
        self.kept: list[tuple[int, int]] = []
        self.sent: dict[tuple[int, int], int] = {}  # (partition, offset) -> event time

    def _ended(self, name: str, error: Any) -> None:
        if error is not None:
            self.exits.append(f"{name}: {type(error).__name__}: {error}")

    def at(self, seconds: float, work: Callable[..., object], *args: object) -> None:
        """Call a function at a time."""
        self.world.loop.call_at(seconds, work, *args, context=SERVER)

    def run(self) -> dict[str, Any]:
        """Run to the end, and count."""
        loop, random = self.world.loop, self.world.random
        for machine in self.machines:
            self.at(random.random(), machine.start)
        for number in range(int(UNTIL * 10)):
            at = 0.5 + number / 10
            self.at(at, self.send, number, int((START + at) * 1e6))
        until = ORIGIN + int(UNTIL * 1e6)
        loop.run(UNTIL + 5)
        while waiting(self.world.broker, self.template, until) and loop.now < UNTIL + 200:
            loop.run(loop.now + 1)
        return self.counted()

    def send(self, number: int, time: int) -> None:
        """Send an event, or keep it while the brokers are away."""
        broker = self.world.broker
        if broker.down:
            self.kept.append((number, time))
            return
        user = f"u{number % 7}"
        partition = home((user,), "murmur2", RAW)
        assert partition is not None
        value = json.dumps({"user": user, "page": "abc"[number % 3], "t": time}).encode()
        answer = broker.append(("events", partition), user.encode(), value, None, ())
        self.sent[partition, answer.offset] = time

    # -- faults -----------------------------------------------------------------------------------

    def none(self) -> None:
        """Do nothing."""

    def outage(self) -> None:
        """The brokers are away, for less time than workers wait."""
        self.at(BEGIN, self.away)
        self.at(END, self.come_back)

    def blip(self) -> None:
        """The brokers are away for some seconds, and back just before a window ends."""
        self.at(BEGIN, self.away)
        self.at(BEGIN + 8.9, self.come_back)  # its last trigger is due at 22 s

    def moved(self) -> None:
        """An outage, with a rebalance right after it."""
        self.outage()
        self.at(END + 0.2, self.faults._forget_all)
        self.at(END + 4.0, self.world.group.rebalance)

    def downtime(self) -> None:
        """Workers and brokers are away, come back together, and workers die again."""
        for machine in self.machines:
            self.at(BEGIN, machine.kill, END - BEGIN + 1.0)
        self.outage()
        for machine in self.machines:
            self.at(END + 6.0, machine.kill, 1.0)

    def hour(self) -> None:
        """Both are away for half a minute; no trigger was due before, and one is soon after."""
        for machine in self.machines:
            self.at(BEGIN, machine.kill, 7.0 + 39.0 - BEGIN)
        self.at(BEGIN, self.away)
        self.at(7.0 + 38.5, self.come_back)

    def away(self) -> None:
        """Take the brokers away."""
        self.faults._go_down()

    def come_back(self) -> None:
        """Bring the brokers back; within a while, producers send all that they hold."""
        self.faults._come_back()
        loop, random = self.world.loop, self.world.random
        for number, time in self.kept:
            loop.call_later(random.random() * FLUSH, self.send, number, time, context=SERVER)

    # -- counts -----------------------------------------------------------------------------------

    def counted(self) -> dict[str, Any]:
        """Late records, delays of triggers in seconds, and the other results."""
        broker = self.world.broker
        fired = triggers(broker, self.template)
        last = {entry["window"]: entry["offsets"]["events"] for entry in fired if entry["final"]}
        schedule = self.template.deployment.pipelines[0].windows
        first = min((entry["window"] for entry in fired), default=0)
        late = sum(
            offset >= last.get(schedule.window(time), [1 << 60] * RAW)[partition]
            for (partition, offset), time in self.sent.items()
            if schedule.window(time) >= first
        )
        beats = [json.loads(r.value)["time"] for r in committed(broker, self.template.names.clock)]
        return {
            "late": late,
            "sent": len(self.sent),
            "triggers": len(fired),
            "delays": [round((entry["time"] - entry["scheduled"]) / 1e6, 2) for entry in fired],
            "due": [round((entry["scheduled"] - ORIGIN) / 1e6, 2) for entry in fired],
            "waiting": waiting(broker, self.template, ORIGIN + int(UNTIL * 1e6)),
            "exits": self.exits,
            "records": len(beats),
        }


CASES = ("none", "outage", "blip", "moved", "downtime", "hour")


def main() -> None:
    """Run one case in this process, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    from .prepared import schedule

    schedule.quiet()
    from asyncio import events

    case = Case(args.seed)
    events._set_running_loop(case.world.loop)
    getattr(case, args.case)()
    print(json.dumps(case.run()))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
