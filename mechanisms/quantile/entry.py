"""Registration of `quantile`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import Entry, Picture
from ..factorization.prefix_noise import longest
from .mechanism import Quantiles
from .planner import QuantilePlanner
from .settings import QuantileParameters, build, objections

ENTRY = Entry(
    name="quantile",
    summary="medians and other quantiles of a number per key, keys known or not",
    parameters=QuantileParameters,
    mechanisms=(Quantiles,),
    grouped=True,
    build=build,
    objections=objections,
    triggers=lambda parameters: longest(parameters.factorization),
    planner=QuantilePlanner(),
    picture=Picture(reach=lambda settings: (settings["low"], settings["high"])),
    published=lambda settings: f"count, and quantiles {', '.join(map(str, settings['at']))}",
)
