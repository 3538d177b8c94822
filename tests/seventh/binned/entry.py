"""Settings of ``mechanism = { kind = "binned" }``, and the entry by which `hush` finds it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting.calibration import Need, fit
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.entry import Entry
from hushstream.mechanisms.validate import at_least

from .mechanism import MOST, Binned

ZERO = Fraction(0)


@dataclass(frozen=True)
class BinnedParameters:
    """Settings of the mechanism.

    Attributes:
        edges: ends of the bins, increasing; values outside all of them are not counted.
        bound: most records of one unit in an epoch.
    """

    edges: tuple[float, ...] = (0.0, 1.0)
    bound: int = 1


def build(parameters: BinnedParameters, setting: Setting) -> Binned:
    """Build the mechanism with the least noise that the budget affords.

    Raises:
        ParameterError: there is no public list of keys, edges do not increase, or the budget does
            not pay for Gaussian noise.
    """
    edges, bound = tuple(map(float, parameters.edges)), at_least("bound", parameters.bound, 1)
    if setting.keys is None:
        raise ParameterError("public_keys", None, "must list the keys: binned selects none")
    if not 2 <= len(edges) <= MOST + 1 or any(a >= b for a, b in pairwise(edges)):
        raise ParameterError("edges", parameters.edges, f"must be 2 to {MOST + 1}, increasing")
    horizon = at_least("horizon", setting.horizon, 1)
    # A record counts at every trigger from its own on, so at most at T triggers.
    fitted = fit(setting, [Need(Fraction(horizon * bound**2), Fraction(1))], horizon * bound, ZERO)
    return Binned(horizon, edges, bound, fitted.variance[0], fitted.loss)


ENTRY = Entry(
    name="binned",
    summary="how many records of each public key have a number in each public bin",
    parameters=BinnedParameters,
    mechanisms=(Binned,),
    grouped=True,
    build=build,
)
