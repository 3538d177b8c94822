"""The base of streams of values: silence, an opening, then a release with state per trigger."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.columns import Closed, Part, Rows, empty_part, no_releases
from hushstream.mechanisms.contract import Output
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.slots import Slots, with_state
from hushstream.mechanisms.slots.stream import SlotStream

SLOTS = Slots(thresholds=(0, 5), horizon=5, warmup=2, per_trigger=3)


@dataclass(frozen=True)
class Plain(SlotStream):
    """A stream that records its calls."""

    calls: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def _outputs(self):
        return (Output("sum"), Output("prefix"))

    def _open(self, rows, entries, noise):
        self.calls.append(("open", len(entries.slot)))
        return with_state(rows, np.array([7], np.int64)), no_releases(2)

    def _go_on(self, closed, rows, entries, state, noise):
        t = closed.t
        self.calls.append((t, len(entries.slot), int(state[0])))
        value = np.arange(6, dtype=np.int64).reshape(3, 2)
        first = self.slots.range_of(t)[0]
        released = self._released(t, first, value, value.astype(float), {})
        return with_state(rows, state), released


Plain.__abstractmethods__ = frozenset()  # this tests the base class alone, which needs no cost


def part(made: Plain, times: list[float]) -> Part:
    encoded = made.encode({"time": np.array(times), "value": np.full(len(times), 4.0)})
    sums = np.array([[1, 4]] * len(encoded.keys))
    return Part(encoded.keys, np.zeros(len(sums), np.uint8), sums, np.zeros(0, np.int64))


def closed(made: Plain, rows: Rows, arrived: Part, t: int) -> Closed:
    """The closed state of a trigger: kept rows, and fresh rows for arrived keys."""
    kept = rows.key.tolist()
    keys = Keys.of(sorted({*kept, *arrived.key.tolist()}))
    fresh = made.traits.rows(keys)
    for place, key in enumerate(keys.tolist()):
        if key in kept:
            fresh.state[place] = rows.state[kept.index(key)]
    return Closed(fresh, arrived, t)


def test_a_stream_is_silent_then_opens_then_releases_each_triggers_slots():
    made = Plain(SLOTS)
    nothing = made.traits.rows(Keys.of([]))
    rows, released = made.release(closed(made, nothing, part(made, [0, 4]), 1), None)
    assert not len(released.key) and made.calls == []
    rows, _ = made.release(closed(made, rows, part(made, [5]), 2), None)
    assert made.calls == [("open", 3)]  # the slots of the whole warm-up
    for t in (3, 4):
        rows, released = made.release(closed(made, rows, part(made, [3.0 * t - 2]), t), None)
        assert made.calls[-1] == (t, 1, 7)
        assert released.status.tolist() == [t] * 3 and released.value[2].tolist() == [4, 5]
        slots = [int.from_bytes(key[:8], "big") for key in released.key]
        assert len(set(slots)) == 3 and slots == sorted(slots)


def test_a_stream_that_lost_its_state_stops():
    made = Plain(SLOTS)
    lost: Rows = made.traits.rows(Keys.of([]))
    with pytest.raises(ContractError, match="state of the stream is missing"):
        made.release(Closed(lost, empty_part(1), 3), None)
