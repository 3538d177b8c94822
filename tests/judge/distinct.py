"""The histogram that counts distinct values: what a window has shown before counts no more.

A unit's bound counts pairs of key and value, each once. What is accepted is added at the trigger of
its micro-batch if no earlier one of the window had it, by whatever unit.
"""

from collections import defaultdict
from typing import Any

from .histogram import Judge, Release
from .records import Event
from .stream import Clock, Placed


class DistinctJudge(Judge):
    """One pipeline with an aggregate of kind "distinct"."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own: set[Any] = set()  # accepted: unit, window, pair
        self.shown: dict[int, set[bytes]] = defaultdict(set)  # by window
        self.waiting: dict[tuple[int, int], dict[bytes, tuple[Event, int]]] = defaultdict(dict)
        self.taken: Any = None

    def take(self, place: Any, one: Placed) -> None:
        """Count a pair that is new to its unit."""
        self.taken = place, one
        if (place, one.window, one.event.pair) not in self.own:
            super().take(place, one)

    def add(self, content: dict[bytes, list[list[int]]], event: Event, lane: int) -> None:
        """Keep an accepted pair until its micro-batch is closed."""
        place, one = self.taken
        self.own.add((place, one.window, event.pair))
        self.waiting[one.window, one.batch][event.pair] = event, lane

    def release(self, trigger: Clock) -> Release:
        """Add what the window has not shown before."""
        window = trigger["window"]
        pairs = self.waiting.pop((window, trigger["index"]), {})
        for pair in pairs.keys() - self.shown[window]:
            super().add(self.content[window, trigger["index"]], *pairs[pair])
        self.shown[window] |= pairs.keys()
        if trigger["final"]:
            del self.shown[window]
        return super().release(trigger)
