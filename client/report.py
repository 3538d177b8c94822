"""A user's reports: what leaves the device, byte by byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from .sampling import Below, below
from .store import ReportStore
from .survey import RANGE, SLOTS, ReportError, Survey

SCHEMA = "hush.report/1"


class Report(NamedTuple):
    """The fields of a report that the aggregator reads.

    Attributes:
        user: identifies the privacy unit.
        slot: what the report is about (a day, an hour), unique per user and survey.
        group: 1 range (Square Wave), 2 value (Hybrid).
        theta: step of the threshold of a value report; 0 in a range report.
        code: output of the channel.
    """

    user: str
    slot: int
    group: int
    theta: int
    code: int


@dataclass(frozen=True)
class Client:
    """Makes each report once and hands out the same bytes ever after.

    Guarantee: epsilon-local differential privacy per report, ``reports * epsilon`` per user and
    period; the store refuses a user's next slot when all reports of its period have been made.
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
            theta: step of the published threshold. The value group cannot report without it;
                the range group does not use it.

        Raises:
            ReportError: a bad argument, a value group without threshold, or no report left in
                the slot's period.
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
            raise ReportError("theta = None: a value report needs the published threshold")
        code = self.survey.perturb_value(value, theta, self.uniform)
        return Report(user, slot, group, theta, code)


def published_threshold(payload: bytes | str, survey: Survey) -> int | None:
    """The threshold step that a record of the release topic tells devices, if it is one that does.

    Any record may be given: rows, manifests before the warm-up and those of another survey tell
    nothing. Privacy does not depend on what it says: a report costs epsilon whatever theta is.

    Returns:
        A step from 1 to ``survey.buckets``, or None.
    """
    try:
        public = json.loads(payload)["public"]
        ((number,), (theta,)) = public["survey"], public["theta"]
    except (ValueError, TypeError, KeyError):
        return None
    fits = type(theta) is int and 1 <= theta <= survey.buckets
    return theta if fits and number == survey.number else None


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
    return 1 <= report.theta <= survey.buckets and 0 <= report.code < survey.hybrid.outputs
