"""Settings that the mechanisms over streams of values share, and the slots made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from ...errors import ParameterError
from ..contract import Setting
from ..entry import Frame, Picture
from ..parts.thresholds.clip import geometric_thresholds
from ..validate import at_least, without_unset
from .slots import Slots

FEWEST = 1 << 24
"""Least number of records at the largest value for which a window's sums must have room."""
STRETCHES = 256
"""Most stretches of a window with their own thresholds."""
SPARE = 16
"""Multiple of the expected records for which a window's sums must have room."""


@dataclass(frozen=True)
class SlotParameters:
    """Settings of a stream of values in event-time slots.

    Attributes:
        bound: most records that one unit contributes per epoch; 1 where a unit is one record.
        warmup: triggers at the start of a window from which the threshold is chosen.
        slots_per_trigger: slots that every trigger closes.
        slot: length of a slot, in the units of the time column.
        origin: time at which slot 0 of some window begins; a pipeline that gives neither ``slot``
            nor ``origin`` takes both from its schedule.
        resolution: thresholds grow by a factor of about 1 + 1/resolution.
        expected: public guess of the records per slot; affects accuracy alone.
        watch: share of ε, after the warm-up, for the number of records above the threshold, which
            every trigger then releases; 0 releases none.
        relearn: triggers after which the threshold is learnt anew; 0 keeps the first one.
        relearn_share: share of ε, after the warm-up, for relearning.
    """

    later: ClassVar[tuple[str, ...]] = ()

    bound: int = 1
    warmup: int = 1
    slots_per_trigger: int = 1
    slot: int = 1
    origin: int = 0
    resolution: int = 16
    expected: int = 1
    watch: float = 0.0
    relearn: int = 0
    relearn_share: float = 0.1

    def pinned(self) -> dict[str, Any]:
        """The charged settings: later ones only where they differ from the default."""
        return without_unset(self, ("relearn", "relearn_share", *self.later))


P = TypeVar("P", bound="SlotParameters")


def framed(parameters: P, frame: Frame) -> P:
    """Slots of event time, from the pipeline's schedule where no slots are given.

    Raises:
        ParameterError: the time between triggers cannot be divided into this number of slots.
    """
    given, every = parameters, frame.every
    if given.slot != 1 or given.origin or every is None or frame.timed:
        return given
    if given.slots_per_trigger < 1 or every % given.slots_per_trigger:
        rule = f"does not divide triggers.every, which is {every / 1_000_000:g} seconds"
        raise ParameterError("slots_per_trigger", given.slots_per_trigger, rule)
    return replace(given, slot=every // given.slots_per_trigger, origin=frame.origin)


def slots_of(parameters: SlotParameters, setting: Setting) -> Slots:
    """The public frame of a stream.

    Raises:
        ParameterError: there is a public key list, not exactly one value column that starts at 0,
            or a parameter is out of range.
    """
    if setting.keys is not None:
        raise ParameterError("keys", len(setting.keys), "streams of values have no keys")
    if len(setting.columns) != 1 or setting.columns[0][1] != 0:
        raise ParameterError("columns", setting.columns, "one value column from 0 upwards")
    at_least("expected", parameters.expected, 1)
    return Slots(
        geometric_thresholds(setting.columns[0][2], parameters.resolution),
        setting.horizon,
        parameters.warmup,
        parameters.slots_per_trigger,
        parameters.origin,
        parameters.slot,
        setting.grids[0] if setting.grids else Fraction(1),
        parameters.bound,
    )


def watch_of(parameters: SlotParameters) -> Fraction:
    """Share of ε that counts the records above the threshold.

    Raises:
        ParameterError: it would leave nothing for the sums.
    """
    share = Fraction(parameters.watch).limit_denominator(1000)
    if not 0 <= share < 1 or (parameters.watch and not share):
        raise ParameterError("watch", parameters.watch, "must be 0, or from 0.001 to below 1")
    return share


def relearn_of(parameters: SlotParameters, slots: Slots) -> Fraction:
    """Share of ε that learns thresholds after the first; 0 if there is only one.

    Raises:
        ParameterError: the number of stretches or the share is out of range, or nothing would be
            left for the sums.
    """
    every = parameters.relearn
    if not every:
        return Fraction(0)
    late = slots.horizon - slots.warmup
    if not 0 < every < late or -(-late // every) > STRETCHES:
        rule = (
            f"must be 0 or below {late}, the triggers after the warm-up, and divide them into at "
            f"most {STRETCHES} stretches"
        )
        raise ParameterError("relearn", every, rule)
    share = Fraction(parameters.relearn_share).limit_denominator(1000)
    if not 0 < share < 1 - watch_of(parameters):
        rule = "must lie above 0 and, with watch, below 1"
        raise ParameterError("relearn_share", parameters.relearn_share, rule)
    return share


def check_sums(slots: Slots, steps: int, expected: int) -> None:
    """Refuse a stream whose released sums could exceed 63 bits even if it is as expected.

    Args:
        slots: slots of the stream.
        steps: output steps per grid step of a value.
        expected: records per slot.

    Raises:
        ParameterError: `FEWEST` records, or `SPARE` times the number expected in a window, do not
            fit if each has the largest value.
    """
    records = max(FEWEST, SPARE * expected * slots.slots)
    if slots.top * steps * records >= 1 << 62:
        rule = (
            f"is {slots.top:,} grid steps: the sum of {records:,} such records would not fit into "
            "63 bits; choose a coarser grid, a smaller largest value (high), or expect less"
        )
        raise ParameterError("high", slots.top, rule)


def check_delta(setting: Setting, spent: Fraction) -> None:
    """Refuse a δ that does not cover the keyed sampler's own need.

    Raises:
        ParameterError: δ is too small.
    """
    if setting.delta < spent:
        rule = f"must be at least {float(spent):.1e}, the distance of drawn from exact noise"
        raise ParameterError("delta", float(setting.delta), rule)


def adopted(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that have the same meaning under another mechanism over slots."""
    return {name: settings[name] for name in ("bound", "warmup") if name in settings}


def slot_length(settings: Mapping[str, Any], every: int) -> int | None:
    """Length of a slot in microseconds, from the settings and the time between triggers."""
    if settings["slot"] == 1 and not settings["origin"]:
        return every // int(settings["slots_per_trigger"]) or None
    return int(settings["slot"])


PICTURE = Picture("slots", slot=slot_length)
