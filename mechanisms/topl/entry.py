"""Registration of `topl`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import Entry, Picture
from .mechanism import ToPL, bins
from .planner import ToPLPlanner
from .settings import ToPLParameters, build

ENTRY = Entry(
    name="topl",
    summary="means and sums of values that devices perturb themselves",
    parameters=ToPLParameters,
    mechanisms=(ToPL,),
    grouped=False,
    build=build,
    planner=ToPLPlanner(),
    picture=Picture("stream", bins=bins),
)
