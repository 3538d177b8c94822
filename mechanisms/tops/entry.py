"""Registration of `tops`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import Entry
from ..slots.settings import PICTURE, adopted, framed
from .mechanism import Tops
from .planner import TopsPlanner
from .settings import TopsParameters, build

ENTRY = Entry(
    name="tops",
    summary="sums of a stream of values by slot, any range, pure privacy",
    parameters=TopsParameters,
    mechanisms=(Tops,),
    grouped=False,
    build=build,
    framed=framed,
    planner=TopsPlanner(build),
    sibling="pak",
    adopted=adopted,
    picture=PICTURE,
)
