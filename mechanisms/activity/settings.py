"""Settings of `Activity`, and its calibration from them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ...errors import ParameterError
from ..accounting.calibration import fit
from ..contract import Setting
from ..parts.unit_profile import UnitProfile
from .mechanism import Activity


@dataclass(frozen=True)
class ActivityParameters:
    """Settings of ``mechanism = "activity"``.

    Attributes:
        most: most records of a unit that are examined, a power of two from 2 to 4096; a unit with
            more counts as one with this many.
    """

    most: int = 64


def build(parameters: ActivityParameters, setting: Setting) -> Activity:
    """The mechanism with the least noise that the budget allows.

    Raises:
        ParameterError: a window has more than one trigger, or an epoch more than one window; values
            are to be summed; or the budget does not pay for Gaussian noise.
    """
    if setting.horizon != 1:
        rule = "must be 1: a look before the end of a window would cost as much again"
        raise ParameterError("triggers", setting.horizon, rule)
    if setting.windows != 1:
        rule = "must be 1: a unit is counted once, at the end of its epoch"
        raise ParameterError("epoch / window.length", setting.windows, rule)
    if setting.columns:
        rule = "has no effect: units are counted, and nothing is summed"
        raise ParameterError("aggregate", setting.columns[0][0], rule)
    profile = UnitProfile(parameters.most)
    fitted = fit(setting, [profile.need(Fraction(1))], 1, Fraction(0))
    return Activity(profile, fitted.variance[0], fitted.loss)
