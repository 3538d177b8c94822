"""Check of the reports of devices in an epoch against the budget of the epoch."""

from __future__ import annotations

import math

from ....client.survey import Survey
from ....errors import ConfigError
from ....formats.events.fields import InputFields
from ....topics.config.pipelines.schedule import Schedule
from ....topics.config.toml.values import format_duration

SECOND = 1_000_000


def check_period(
    pipeline: str, survey: Survey, slot: str, fields: InputFields, schedule: Schedule
) -> None:
    """Refuse a survey of which one unit may send more reports in an epoch than are paid for.

    A device makes ``survey.reports`` reports in each period of slots, a multiple of the period
    after slot 0. The epoch is charged for as many. So no two periods may reach into one epoch,
    which can be told only if slots are event times in seconds.

    Raises:
        ConfigError: two periods may reach into one epoch, or that cannot be told.
    """
    if not survey.period:
        return  # the number of reports is a bound for ever, and so for any epoch
    name = f"pipeline {pipeline!r}: period = {survey.period}"
    if (fields.time, fields.time_format) != (slot, "epoch_s") or schedule.arrival:
        raise ConfigError(
            f"{name} counts slots, and an epoch is a span of event time. Make them the same with "
            f'time = {{ field = {slot!r}, format = "epoch_s" }} and window.length, or leave '
            f"period out: then a device makes reports = {survey.reports} and no more, ever"
        )
    epoch, period = schedule.per_epoch * schedule.length, survey.period * SECOND
    if period % epoch or schedule.origin % epoch:
        most = survey.reports * _periods(epoch, period, schedule.origin)
        raise ConfigError(
            f"{name}: a device may send up to {most} reports in one epoch of "
            f"{format_duration(epoch)}, which pays for reports = {survey.reports}. Set period to "
            f"the epoch in seconds, {epoch // SECOND}, or a multiple, and window.origin to a time "
            "that is a multiple of the epoch after 1970"
        )


def _periods(epoch: int, period: int, origin: int) -> int:
    """The most periods that any one epoch overlaps.

    Beginnings of epochs, modulo the period, are the origin plus multiples of the common divisor.
    """
    step = math.gcd(epoch, period)
    latest = period - step + origin % step
    return -(-(latest + epoch) // period)
