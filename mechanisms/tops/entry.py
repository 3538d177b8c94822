"""The one place where the rest of the product finds `tops`."""

from __future__ import annotations

from ..entry import Entry, no_objection
from ..slots.settings import framed
from .advisor import TopsAdvisor
from .mechanism import Tops
from .settings import TopsParameters, build

ENTRY = Entry(
    name="tops",
    summary="sums of a stream of values by slot, any range, pure privacy",
    parameters=TopsParameters,
    mechanisms=(Tops,),
    grouped=False,
    build=build,
    framed=framed,
    objections=no_objection,
    advisor=TopsAdvisor(),
)
