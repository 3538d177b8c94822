"""Registration of `phdstream`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import MANY, Entry, Picture
from ..factorization.prefix_noise import longest
from ..spatial.settings import adopting, map_of
from .mechanism import PHDStream
from .planner import PHDStreamPlanner
from .settings import PHDStreamParameters, build


def triggers(parameters: PHDStreamParameters) -> int:
    """Most triggers of the counter; it counts nothing before trigger ``first``."""
    if parameters.counter != "matrix":
        return MANY
    return longest(parameters.factorization) + max(parameters.first - 1, 0)


ENTRY = Entry(
    name="phdstream",
    summary="private tree of a spatial stream with insertions and deletions, at every trigger",
    parameters=PHDStreamParameters,
    mechanisms=(PHDStream,),
    grouped=False,
    build=build,
    triggers=triggers,
    planner=PHDStreamPlanner(),
    sibling="privhp",
    adopted=adopting("all", 1),
    picture=Picture("cells"),
    published=map_of,
)
