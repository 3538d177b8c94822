"""Steps of a stream and the triggers that close them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.slots import Slots
from hushstream.mechanisms.slots.steps import InSteps

SLOTS = Slots(thresholds=(0, 5), horizon=12, warmup=2, per_trigger=3)


class Asked:
    """Noise that records the first triggers of its draws."""

    def __init__(self) -> None:
        self.first: list[list[int]] = []

    def gauss(self, purpose, key, index, variance, first):
        self.first.append(first.tolist())

    laplace = gauss

    def bits(self, purpose, key, index, first):
        self.first.append(first.tolist())


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
def test_a_step_ends_where_its_last_slot_is_closed(width: int) -> None:
    noise = InSteps(Asked(), SLOTS.warmup, SLOTS.per_trigger, width)  # type: ignore[arg-type]
    ends = np.arange(1, (SLOTS.slots - SLOTS.warmup_slots) // width + 1)
    last = SLOTS.warmup_slots + ends * width - 1
    assert noise.triggers(ends).tolist() == SLOTS.closing(last).tolist()


def test_every_draw_gets_the_trigger() -> None:
    asked = Asked()
    noise = InSteps(asked, 2, 3)  # type: ignore[arg-type]
    keys, index, first = Keys.of([b"k"]), np.arange(2), np.array([3, 4])
    noise.gauss("p", keys, index, Fraction(1), first)
    noise.laplace("p", keys, index, Fraction(1), first[:, None])
    noise.bits("p", keys, index, first)
    assert asked.first == [[3, 4], [[3], [4]], [3, 4]]
