"""A user's reports: what leaves the device, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from .sampling import Below, below
from .store import ReportStore
from .survey import CHANNELS, HYBRID, NARROW, RANGE, SLOTS, STEP, VALUE, ReportError, Survey

SCHEMA = "hush.report/1"


class Report(NamedTuple):
    """The fields of a report that the aggregator reads.

    Attributes:
        user: identifies the privacy unit.
        slot: number of the slot (a day, an hour), unique per user and survey.
        group: 1 range (Square Wave), 2 value (Hybrid or published), 3 narrow (Square Wave
            within a range).
        theta: published step that the report used: the threshold's plus 8192 times the channel
            (value), or the range's (narrow); else 0.
        code: output of the channel.
    """

    user: str
    slot: int
    group: int
    theta: int
    code: int


@dataclass(frozen=True)
class Client:
    """Makes each report once and returns the same bytes from then on.

    Guarantee: epsilon-local differential privacy per report, ``reports * epsilon`` per user and
    period, and at most the store's budget over all surveys. The store refuses a slot once all
    reports of its period are made or the budget is too small.
    """

    survey: Survey
    store: ReportStore
    uniform: Below = below

    def report(self, user: str, slot: int, value: Any, theta: int | None = None) -> bytes:
        """One report as JSON, on disk before this returns.

        Args:
            user: identifier of the privacy unit.
            slot: 0..2^32-1; a second call with the same user and slot returns the same bytes,
                whatever its value and theta.
            value: any finite number in the user's own units; clipped on both sides.
            theta: step published for the user's group: the threshold for the value group, the
                range for the narrow group. Both need it; the range group ignores it.

        Raises:
            ReportError: a bad argument, no theta where the group needs it, no report left in the
                slot's period, or the device's budget does not suffice.
        """
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < SLOTS:
            raise ReportError(f"slot = {slot!r}: must be an integer from 0 to 2^32 - 1")
        return self.store.once(
            self.survey,
            user,
            slot,
            lambda: _encode(self.survey, self._perturb(user, slot, value, theta)),
        )

    def _perturb(self, user: str, slot: int, value: Any, theta: int | None) -> Report:
        group = self.survey.group(user)
        if group == RANGE:
            return Report(user, slot, group, 0, self.survey.perturb_range(value, self.uniform))
        if theta is None:
            needs = (
                "narrow report needs the published range"
                if group == NARROW
                else ("value report needs the published threshold")
            )
            raise ReportError(f"theta = None: a {needs}")
        if group == NARROW:
            code = self.survey.perturb_narrow(value, theta, self.uniform)
            return Report(user, slot, group, theta, code)
        code = self.survey.perturb_value(value, theta, self.uniform)
        return Report(user, slot, group, theta, code)


def published_threshold(
    record: bytes | str | Mapping[str, Any],
    survey: Survey,
    slot: int | None = None,
    group: int = VALUE,
) -> int | None:
    """The step for `Client.report` in a release record; None if there is none.

    It is the threshold's step, 1 to ``survey.buckets``, plus 8192 times the channel published with
    it. In two rounds the narrow group gets the step of its range instead.

    Any record may be given; rows, manifests before the warm-up and manifests of another survey give
    None. Privacy does not depend on the record: a report costs epsilon whatever theta is. But a
    report counts only in the window for which its threshold was published.

    Args:
        record: release record, raw or decoded.
        survey: the device's survey.
        slot: time to report on, in seconds since 1970; only the manifest of its window counts.
            None: any window's.
        group: group of the user, ``survey.group(user)``.

    Raises:
        ReportError: ``record`` is neither bytes, text nor a mapping; or it is in the wire format
            of a schema registry, whose deserialiser must decode it first.
    """
    if not isinstance(record, bytes | bytearray | str | Mapping):
        kind = type(record).__name__
        raise ReportError(f"record = {kind}: must be bytes, text, or the mapping decoded from them")
    if isinstance(record, bytes | bytearray) and record[:1] == b"\0":
        raise ReportError(
            "record: is in the wire format of a schema registry (release.encoding of the "
            "pipeline): decode it first, and give the mapping"
        )
    try:
        body = record if isinstance(record, Mapping) else json.loads(record)
        name = "range" if group == NARROW else "theta"
        ((number,), (theta,)) = body["public"]["survey"], body["public"][name]
        told = survey.channel == "told" and group != NARROW
        (channel,) = body["public"]["channel"] if told else (HYBRID,)
        theirs = number == survey.number and (slot is None or _within(body["window"], slot))
    except (ValueError, TypeError, KeyError):
        return None
    fits = type(theta) is int and 1 <= theta <= survey.buckets
    fits &= type(channel) is int and 0 <= channel < CHANNELS
    return theta + channel * STEP if fits and theirs else None


def _within(window: Mapping[str, str], slot: int) -> bool:
    """Whether a time in seconds lies in a manifest's window."""
    start, end = (datetime.fromisoformat(window[name]).timestamp() for name in ("start", "end"))
    return start <= slot < end


def _encode(survey: Survey, report: Report) -> bytes:
    record = {
        "schema": SCHEMA,
        "definition": "local",
        "epsilon": str(survey.epsilon),
        "epsilon_user": str(survey.epsilon * survey.reports),
        "period": survey.period,
        "survey": survey.number,
        **report._asdict(),
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def parse(payload: bytes, survey: Survey) -> Report:
    """The report in ``payload``, if it belongs to ``survey`` and could have come from a client.

    Raises:
        ReportError: it does not, or could not.
    """
    try:
        record = json.loads(payload)
        own = record["schema"] == SCHEMA and record["survey"] == survey.number
        report = Report(*(record[name] for name in Report._fields))
    except (ValueError, TypeError, KeyError) as error:
        raise ReportError("report: not readable") from error
    if not own or not possible(report, survey):
        raise ReportError("report: not of this survey")
    return report


def possible(report: Report, survey: Survey) -> bool:
    """Whether a client of ``survey`` can have made ``report``."""
    whole = all(type(part) is int for part in report[1:])
    if not whole or not isinstance(report.user, str) or not 0 <= report.slot < SLOTS:
        return False
    if report.group != survey.group(report.user):
        return False
    if report.group == RANGE:
        return report.theta == 0 and 0 <= report.code < survey.square_wave.outputs
    if report.group == NARROW:
        fits = 1 <= report.theta <= survey.buckets
        return fits and 0 <= report.code < survey.square_wave.outputs
    try:
        _, channel = survey.said_by(report.theta)
    except ReportError:
        return False
    return report.code in survey.outputs(channel)
