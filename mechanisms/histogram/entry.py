"""The one place where the rest of the product finds `histogram`."""

from __future__ import annotations

from ..entry import Entry
from .mechanism import Histogram
from .planner import HistogramPlanner
from .rounds import Rounds
from .settings import HistogramParameters, build, framed, objections

DISTINCT = {"bound": "per-key", "per_key": 1}
"""Settings with which a count is one of distinct units."""

ENTRY = Entry(
    name="histogram",
    summary="counts and sums per key, keys known or not, one privacy unit spread over many keys",
    parameters=HistogramParameters,
    mechanisms=(Histogram, Rounds),
    grouped=True,
    build=build,
    framed=framed,
    objections=objections,
    planner=HistogramPlanner(),
)
