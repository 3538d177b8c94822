"""The one place where the rest of the product finds `pak`."""

from __future__ import annotations

from fractions import Fraction

from ..entry import Entry
from ..slots.forecaster import SlotForecaster
from ..slots.settings import PICTURE, adopted, framed
from .advisor import PakAdvisor
from .aims import aimed
from .mechanism import Pak
from .settings import PakParameters, build

RATES = (Fraction(1), Fraction(1, 2), Fraction(2))
"""Multiples of the sample's rate that are tried for the threshold."""

ENTRY = Entry(
    name="pak",
    summary="prefix sums of a stream of values with a learnt threshold",
    parameters=PakParameters,
    mechanisms=(Pak,),
    grouped=False,
    build=build,
    framed=framed,
    advisor=PakAdvisor(),
    forecaster=SlotForecaster(build, RATES, further=({"threshold": "top"},), aimed=aimed),
    sibling="tops",
    adopted=adopted,
    picture=PICTURE,
)
