"""Configuration of ToPL: settings, their checks, and the survey for devices."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from ...client.survey import OCTAVES, ReportError, Survey
from ...errors import ParameterError
from ..contract import Setting
from ..validate import at_least, between
from .mechanism import ToPL
from .rounds import GUARD


@dataclass(frozen=True)
class ToPLParameters:
    """Settings of ToPL.

    Attributes:
        salt: public text that assigns users to groups.
        reports: reports per unit and epoch; each gets an equal part of epsilon.
        period: slots of a device's period, in which it sends that many; 0 for one without end.
        share: fraction of users whose reports find the threshold, as text or number; 0 for a tenth,
            or a fifth in two rounds.
        buckets, levels: resolution of Square Wave and of Hybrid.
        warmup: trigger at which the threshold is chosen; with two rounds, the length of each.
        expected: reports expected per trigger, for the error forecast.
        smooth: whether expectation maximisation is smoothed.
        rounds: 1 or 2; 0 for two where the window has enough triggers.
        beyond: whether releases state the share of values at or above the threshold.
        guard: estimated mass outside the range of two rounds, in units of its noise.
        channel: ``"told"``: the channel of value reports is chosen and published with the
            threshold, which is B unless another is clearly better; or ``"hybrid"``.
    """

    salt: str = "hushstream"
    reports: int = 1
    share: str | float = 0
    buckets: int = 512
    levels: int = 512
    warmup: int = 1
    expected: int = 1000
    smooth: bool = True
    period: int = 0
    rounds: int = 0
    beyond: bool = True
    guard: float = GUARD
    channel: str = "told"

    def pinned(self) -> dict[str, Any]:
        """The charged settings: later ones only where they differ from earlier behaviour."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        before = {"beyond": False, "guard": 1, "channel": "hybrid"}
        return {name: value for name, value in plain.items() if value != before.get(name)}


def rounds_of(parameters: ToPLParameters, horizon: int) -> int:
    """The configured rounds, or two where window and buckets allow them."""
    between("rounds", parameters.rounds, 0, 2)
    fits = 2 * parameters.warmup < horizon and parameters.buckets % OCTAVES == 0
    return parameters.rounds or 1 + fits


def survey_of(parameters: ToPLParameters, setting: Setting) -> Survey:
    """The survey to publish to devices.

    Raises:
        ParameterError: there is not exactly one value column starting at zero, there is a public
            key list, or the survey refuses a parameter.
    """
    if setting.keys is not None:
        raise ParameterError("keys", len(setting.keys), "topl estimates one stream, without keys")
    if len(setting.columns) != 1 or setting.columns[0][1] != 0:
        raise ParameterError("columns", setting.columns, "topl needs one value column from 0 up")
    at_least("reports", parameters.reports, 1)
    rounds = rounds_of(parameters, setting.horizon)
    try:
        return Survey(
            setting.epsilon / parameters.reports,
            setting.columns[0][2] * setting.grids[0],
            parameters.salt,
            parameters.reports,
            Fraction(str(parameters.share)) or Fraction(rounds, 10),
            parameters.buckets,
            parameters.levels,
            parameters.period,
            rounds,
            parameters.channel,
        )
    except (ReportError, ZeroDivisionError) as error:
        raise ParameterError("topl", parameters, str(error)) from error
    except ValueError as error:
        raise ParameterError("share", parameters.share, "must be a fraction") from error


def build(parameters: ToPLParameters, setting: Setting) -> ToPL:
    """The aggregator for a configuration; raises `ParameterError` if settings clash."""
    return ToPL(
        survey_of(parameters, setting),
        setting.grids[0],
        setting.horizon,
        parameters.warmup,
        parameters.expected,
        parameters.smooth,
        parameters.beyond,
        parameters.guard,
    )
