"""A pipeline's raw logs, divided by its clock log: the micro-batch of each record."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .records import Event
from .rules import Rules

Clock = Mapping[str, Any]  # one record of the clock log
Place = tuple[int, int]  # window, trigger
Order = Callable[[int, tuple[Any, ...]], deque[int]]


class Objection(Exception):
    """The logs contradict each other."""


class Placed(NamedTuple):
    """A record in its micro-batch, before the bound."""

    origin: int  # raw partition
    event: Event
    window: int
    batch: int


class Stream:
    """Records of one pipeline on their way to the contribution bound.

    Args:
        order: for records re-partitioned by unit: the raw partitions of a unit's records in a span,
            in the order of the units log.
    """

    def __init__(self, rules: Rules, order: Order | None = None) -> None:
        self.rules = rules
        self.order = order
        self.first_window: int | None = None
        self.end: int | None = None  # the first window after the end of a retired pipeline
        self.floor = self.ordinal = 0
        self.done: dict[int, int] = {}
        self.closed: set[int] = set()
        self.due: deque[Clock] = deque()  # triggers whose releases are still to be made
        self.feed: Iterator[bool] = iter(())
        self.queues: dict[Any, deque[Placed]] = defaultdict(deque)  # by (span, unit)
        self.needed: dict[Place, Counter[Any]] = defaultdict(Counter)

    def follow(
        self, clock: Iterable[Clock], raw: Sequence[Iterable[tuple[int, Event]]]
    ) -> Iterator[bool]:
        """Take the entries of the clock log, one after the other."""
        logs = [iter(log) for log in raw]
        ahead = [next(log, None) for log in logs]
        topic = self.rules.config["input"]["topic"]
        for entry in clock:
            # The first entry whose offsets pass a record decides where the record belongs.
            for partition, end in enumerate(entry.get("offsets", {}).get(topic, ())):
                while (head := ahead[partition]) is not None and head[0] < end:
                    self.place(partition, head[1], entry["time"])
                    ahead[partition] = next(logs[partition], None)
            if entry.get("pipeline") == self.rules.config["name"]:
                self.apply(entry)
            yield True

    def place(self, origin: int, event: Event, beat: int) -> None:
        """Put a record into the open micro-batch of its window, unless it is late or too early."""
        rules = self.rules
        if not rules.kept(event):
            return
        if not rules.arrival:
            window = rules.window(event.time)
            if event.time > beat + rules.config["max_future_skew"]:
                return
        else:
            early = rules.config["schedule"] == "wall" and beat < rules.start(self.floor)
            window = self.floor - early
        if self.first_window is None or window < self.floor or window in self.closed:
            return
        if self.end is not None and window >= self.end:
            return
        placed = Placed(origin, event, window, self.done.get(window, 0) + 1)
        unit = (rules.span(window), event.unit)
        self.queues[unit].append(placed)
        self.needed[window, placed.batch][unit] += 1

    def apply(self, entry: Clock) -> None:
        """Apply a start, a skip, an end or a trigger."""
        if entry["type"] == "start":
            self.first_window = self.floor = entry["window"]
        elif entry["type"] == "skipped":
            for window in range(entry["window"], entry.get("until") or entry["window"] + 1):
                self.close(window)
        elif entry["type"] == "retired":
            self.end = entry["window"]
        else:
            window, index, rules = entry["window"], entry["index"], self.rules
            if self.end is not None and window >= self.end:
                raise Objection(f"a trigger of window {window}, beyond the pipeline's end")
            self.ordinal += 1
            expected = (self.ordinal, self.done.get(window, 0) + 1, index == rules.triggers(window),
                        window // rules.per_epoch)  # fmt: skip
            if (entry["ordinal"], index, entry["final"], entry["epoch"]) != expected:
                raise Objection(f"trigger {self.ordinal} does not follow from the one before")
            self.done[window] = index
            self.due.append(entry)
            if entry["final"]:
                self.close(window)

    def close(self, window: int) -> None:
        """Close a window: no more records and triggers of it follow."""
        self.done.pop(window, None)
        self.closed.add(window)
        while self.floor in self.closed:
            self.closed.discard(self.floor)
            self.floor += 1

    def next(self, unit: Any) -> Placed:
        """The unit's next record; after re-partitioning, the units log tells its raw partition."""
        queue = self.queues[unit]
        if self.order is None:
            return queue.popleft()
        origins = self.order(*unit)
        if not origins:
            raise Objection("the units log lacks a record")
        origin = origins.popleft()
        while not (mine := [one for one in queue if one.origin == origin]):
            # Shards do not wait for each other, so the log may have the record before its turn.
            if not next(self.feed, False):
                raise Objection("the units log has a record too many")
        queue.remove(mine[0])
        return mine[0]
