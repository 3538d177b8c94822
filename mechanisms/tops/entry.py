"""The one place where the rest of the product finds `tops`."""

from __future__ import annotations

from fractions import Fraction

from ..entry import Entry
from ..slots.forecaster import SlotForecaster
from ..slots.settings import PICTURE, adopted, framed
from .advisor import TopsAdvisor
from .mechanism import Tops
from .settings import TopsParameters, build

EXCESSES = tuple(Fraction(one) for one in ("2", "1/2", "4", "1/4", "16", "1/16"))
"""Multiples of the sample's excess that are tried for the threshold.

Its penalty is inverse to the excess, so a step is one in the number of records above the threshold.
Between steps of 2 at most 1.4 times too many or few are above it: with a tail of exponent 2.2 its
threshold is off by 1.17, and the error, which is flat there, by a few per cent.
"""

ENTRY = Entry(
    name="tops",
    summary="sums of a stream of values by slot, any range, pure privacy",
    parameters=TopsParameters,
    mechanisms=(Tops,),
    grouped=False,
    build=build,
    framed=framed,
    advisor=TopsAdvisor(),
    forecaster=SlotForecaster(build, excesses=EXCESSES),
    sibling="pak",
    adopted=adopted,
    picture=PICTURE,
)
