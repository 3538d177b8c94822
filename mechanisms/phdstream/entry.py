"""The one place where the rest of the product finds `phdstream`."""

from __future__ import annotations

from ..entry import Entry, as_given, no_objection
from ..parts.bound_advisor import BoundAdvisor
from .mechanism import PHDStream
from .settings import PHDStreamParameters, build

ENTRY = Entry(
    name="phdstream",
    summary="private tree of a spatial stream with insertions and deletions, at every trigger",
    parameters=PHDStreamParameters,
    mechanisms=(PHDStream,),
    grouped=False,
    build=build,
    framed=as_given,
    objections=no_objection,
    advisor=BoundAdvisor("phdstream"),
)
