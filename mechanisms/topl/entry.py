"""The one place where the rest of the product finds `topl`."""

from __future__ import annotations

from ..entry import Entry, Picture
from .advisor import ToPLAdvisor
from .forecaster import ToPLForecaster
from .mechanism import ToPL, bins
from .settings import ToPLParameters, build

ENTRY = Entry(
    name="topl",
    summary="means and sums of values that devices perturb themselves",
    parameters=ToPLParameters,
    mechanisms=(ToPL,),
    grouped=False,
    build=build,
    advisor=ToPLAdvisor(),
    forecaster=ToPLForecaster(),
    picture=Picture("stream", bins=bins),
)
