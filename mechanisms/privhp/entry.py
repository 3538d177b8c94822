"""The one place where the rest of the product finds `privhp`."""

from __future__ import annotations

from ..entry import Entry, Picture
from ..spatial.settings import adopting
from .mechanism import PrivHP
from .planner import PrivHPPlanner
from .settings import PrivHPParameters, build

ENTRY = Entry(
    name="privhp",
    summary="private tree of a spatial stream and synthetic points, in bounded memory",
    parameters=PrivHPParameters,
    mechanisms=(PrivHP,),
    grouped=False,
    build=build,
    planner=PrivHPPlanner(),
    sibling="phdstream",
    adopted=adopting("binary", 2),
    picture=Picture("cells"),
)
