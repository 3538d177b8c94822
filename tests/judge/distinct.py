"""The histogram that counts distinct values: a pair counts once in a window.

A pair is a key and a value. A unit's bound counts each of its pairs once. An accepted pair is added
at the trigger of its micro-batch, unless any unit had it in an earlier micro-batch of the window.
"""

from collections import defaultdict
from typing import Any

from .histogram import Judge, Release
from .records import Event
from .stream import Clock, Placed


class DistinctJudge(Judge):
    """Judge of a pipeline with an aggregate of kind "distinct"."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own: set[Any] = set()  # accepted pairs, with unit and window
        self.shown: dict[int, set[bytes]] = defaultdict(set)  # by window
        self.waiting: dict[tuple[int, int], dict[bytes, tuple[Event, int]]] = defaultdict(dict)
        self.taken: Any = None

    def take(self, place: Any, one: Placed) -> None:
        """Count a pair that is new for its unit."""
        self.taken = place, one
        if (place, one.window, one.event.pair) not in self.own:
            super().take(place, one)

    def add(self, content: dict[bytes, list[list[int]]], event: Event, lane: int) -> None:
        """Keep an accepted pair until its micro-batch is closed."""
        place, one = self.taken
        self.own.add((place, one.window, event.pair))
        self.waiting[one.window, one.batch][event.pair] = event, lane

    def release(self, trigger: Clock) -> Release:
        """Add the pairs that are new in the window."""
        window = trigger["window"]
        pairs = self.waiting.pop((window, trigger["index"]), {})
        for pair in pairs.keys() - self.shown[window]:
            super().add(self.content[window, trigger["index"]], *pairs[pair])
        self.shown[window] |= pairs.keys()
        if trigger["final"]:
            del self.shown[window]
        return super().release(trigger)
