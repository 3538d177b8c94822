"""The one place where the rest of the product finds `phdstream`."""

from __future__ import annotations

from ..entry import Entry, Picture
from ..spatial.settings import adopting
from .mechanism import PHDStream
from .planner import PHDStreamPlanner
from .settings import PHDStreamParameters, build

ENTRY = Entry(
    name="phdstream",
    summary="private tree of a spatial stream with insertions and deletions, at every trigger",
    parameters=PHDStreamParameters,
    mechanisms=(PHDStream,),
    grouped=False,
    build=build,
    planner=PHDStreamPlanner(),
    sibling="privhp",
    adopted=adopting("all", 1),
    picture=Picture("cells"),
)
