"""Sessions, specified a second time: times of a unit and key, sorted and cut at long pauses."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .conditions import fulfils
from .histogram import Judge
from .records import Event, columns, stepped
from .stream import Clock, Objection, Place, Placed

ROOM = 64  # open sessions of a unit; with more, their order matters, and the judge does not know it


def of_records(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that applies to a single record: its key, and no number."""
    if "session" not in config:
        return config
    return config | {"aggregate": [], "apart": [], "mechanism": {"kind": "none"}}


class SessionJudge(Judge):
    """A judge that counts sessions in place of records."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.edges: dict[Place, int] = {}
        self.open: dict[tuple[int, Any], dict[bytes, list[int]]] = defaultdict(dict)

    def apply(self, entry: Clock) -> None:
        if "ordinal" in entry:
            config, place = self.rules.config, (entry["window"], entry["index"])
            end = self.rules.start(entry["window"] + 1)
            self.edges[place] = end if entry["final"] else min(
                entry["scheduled"] - config["lateness"], end)  # fmt: skip
        super().apply(entry)

    def bound(self, place: Place) -> None:
        """Bound the sessions that the trigger ends; all records placed so far precede its cut."""
        self.needed.clear()
        for queue in self.queues.values():
            while queue:
                one = queue.popleft()
                whose = self.open[one.window // self.rules.per_epoch, one.event.unit]
                whose.setdefault(one.event.key, []).append(one.event.time)
        low, high = self.rules.start(place[0]), self.edges.pop(place)
        epoch = place[0] // self.rules.per_epoch
        for unit, keys in [(u, keys) for (e, u), keys in self.open.items() if e == epoch]:
            runs = [(run[-1], key, run) for key, times in keys.items() for run in self.runs(times)]
            if len(runs) > ROOM:
                raise Objection("a unit has more open sessions than can be judged")
            for last, key, run in sorted(runs):
                if low <= last < high:
                    keys[key] = [time for time in keys[key] if time not in run]
                    self.take((epoch, unit), Placed(0, self.session(unit, key, run), *place))

    def runs(self, times: list[int]) -> Iterator[list[int]]:
        """Runs of times without a pause longer than the gap."""
        times, run = sorted(times), list[int]()
        for time in times:
            if run and time - run[-1] > self.rules.config["session"]:
                yield run
                run = []
            run.append(time)
        if run:
            yield run

    def session(self, unit: Any, key: bytes, run: list[int]) -> Event:
        """A session as one record."""
        config = self.rules.config
        told = {"session_length": (run[-1] - run[0]) / 1e6, "session_events": float(len(run))}
        values = tuple(stepped(c, told, fulfils(told, c.where)) for c in columns(config))
        number = told.get((config["inputs"] or {}).get("value", ""), 0.0)
        return Event(run[-1], unit, key, values, 1, b"", number)
