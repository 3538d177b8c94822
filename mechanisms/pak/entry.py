"""Registration of `pak`: all that the rest of the product imports of it."""

from __future__ import annotations

from ..entry import Entry
from ..slots.settings import PICTURE, adopted, framed
from .aims import aimed
from .mechanism import Pak
from .planner import PakPlanner
from .settings import PakParameters, build

ENTRY = Entry(
    name="pak",
    summary="prefix sums of a stream of values with a learnt threshold",
    parameters=PakParameters,
    mechanisms=(Pak,),
    grouped=False,
    build=build,
    framed=framed,
    planner=PakPlanner(build, aimed),
    sibling="tops",
    adopted=adopted,
    picture=PICTURE,
)
