"""The one place where the rest of the product finds `pak`."""

from __future__ import annotations

from ..entry import Entry, no_objection
from ..slots.settings import framed
from .advisor import PakAdvisor
from .mechanism import Pak
from .settings import PakParameters, build

ENTRY = Entry(
    name="pak",
    summary="prefix sums of a stream of values with a learnt threshold",
    parameters=PakParameters,
    mechanisms=(Pak,),
    grouped=False,
    build=build,
    framed=framed,
    objections=no_objection,
    advisor=PakAdvisor(),
)
